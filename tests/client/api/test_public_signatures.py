"""Names and signatures of the public packages, compared with a stored list: nobody changes them by accident.

After a change that is meant: `python -m tests.client.api.test_public_signatures`, and a line in CHANGELOG.md.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "public_signatures.txt"
MODULES = re.compile(r"\b(?:\w+\.)+(?=[A-Za-z])")
PACKAGES = ("tidelog.client", "tidelog.testing")


def signatures() -> str:
    return "".join(f"{line}\n" for package in PACKAGES for line in _package(package))


def _package(name: str) -> Iterator[str]:
    package = import_module(name)
    assert package.__all__ == sorted(package.__all__), "in order, so that a change shows"
    for public in package.__all__:
        yield from _class(f"{name}.{public}", getattr(package, public))


def _class(path: str, cls: type[Any]) -> Iterator[str]:
    if issubclass(cls, BaseException):  # for `except`
        yield f"{path}: {cls.__mro__[1].__name__}"
        return
    yield f"{path}{_signature(cls)}"
    for name in sorted(dir(cls)):
        if name.startswith("_") or name in ("count", "index"):
            continue
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            assert member.fget is not None
            yield f"{path}.{name}{_signature(member.fget)}"
        elif inspect.isfunction(member):
            is_async = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
            yield f"{'async ' if is_async else ''}{path}.{name}{_signature(member)}"
        elif not isinstance(member, classmethod):
            yield f"{path}.{name}"


def _signature(function: Any) -> str:
    """Without the modules of types, which are internal."""
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    return MODULES.sub("", text)


def test_public_signatures_are_those_that_were_promised() -> None:
    assert signatures() == STORED.read_text(), (
        "the public interface has changed: say so in CHANGELOG.md, mend docs/client.md or docs/testing.md, then run"
        " python -m tests.client.api.test_public_signatures"
    )


def test_every_public_name_is_documented() -> None:
    for package, page in (("tidelog.client", "client.md"), ("tidelog.testing", "testing.md")):
        text = (Path(__file__).parents[3] / "docs" / page).read_text()
        for name in import_module(package).__all__:
            cls = getattr(import_module(package), name)
            assert (cls.__doc__ or "").strip(), f"{package}.{name} has no docstring"
            for method, member in vars(cls).items():
                if inspect.isfunction(member) and not method.startswith("_") and not issubclass(cls, Exception):
                    assert f"{method}(" in text, f"docs/{page} does not mention {name}.{method}"


if __name__ == "__main__":
    STORED.write_text(signatures())
