"""Builder for the Python source of one function: lines, unique names and constants."""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class FunctionSource:
    def __init__(self, name: str, signature: str) -> None:
        self._name = name
        self._lines = [f"def function({signature}):"]
        self._depth = 1
        self._names = 0
        self._constants: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, name: str, value: object) -> str:
        """Registers `value` under `name`, or under a similar name if that is taken."""
        while self._constants.setdefault(name, value) is not value:
            name += "_"
        return name

    def helper(self, function: Callable[..., Any]) -> str:
        return self.constant(function.__name__, function)

    def unpack(self, codes: Sequence[str]) -> str:
        return self._struct_method("unpack", codes)

    def pack(self, codes: Sequence[str]) -> str:
        return self._struct_method("pack", codes)

    def _struct_method(self, verb: str, codes: Sequence[str]) -> str:
        name = f"{verb}_{''.join(codes).replace('?', 'o')}"
        if name not in self._constants:
            compiled = struct.Struct(">" + "".join(codes))
            self._constants[name] = compiled.unpack_from if verb == "unpack" else compiled.pack
        return name

    def build(self) -> Callable[..., Any]:
        code = compile("\n".join(self._lines), f"<{self._name}>", "exec")
        exec(code, self._constants)
        function: Callable[..., Any] = self._constants["function"]
        return function

    def __str__(self) -> str:
        return "\n".join(self._lines)


def literal_or_constant(source: FunctionSource, name: str, value: object) -> str:
    if value is None or isinstance(value, bool | int | str | bytes):
        return repr(value)
    return source.constant(name, value)
