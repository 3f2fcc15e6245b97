"""Generator of decoders: one straight-line Python function per message and version.

Bounds: indexing and unpacking past the end of the frame raise exceptions, which the function turns into
MalformedMessage in one place. Slices, which Python would shorten silently, and arrays, whose size comes from the wire,
are checked where they are read.

Consecutive values of fixed size, together with the length or count of the next value, are read by one unpack. A compact
length is read as one byte; only longer ones need another call.
"""

import struct
from collections.abc import Callable
from typing import Any

from tidelog.protocol import primitives
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.fields import EMPTY_ARRAY, Array, Binary, Field, FieldType, Fixed, Nested, Records, Text
from tidelog.protocol.layout import absent_fields, minimum_bytes, plain_fields, tagged_fields
from tidelog.protocol.source import FunctionSource, literal_or_constant
from tidelog.protocol.structs import Message, Request, Struct

CODE_SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "i": 4, "q": 8, "d": 8, "16s": 16}

MAX_ELEMENTS = 2**24
MAX_REQUEST_ELEMENTS = 2**16
"""Array elements and tagged fields of one message. Bounds by size alone would let a frame of empty elements cost many
times its size, and much time. Responses come from a trusted broker, requests from any client. The decoder of a request
may set another limit."""

FREE_NUMBERS = 64
"""Arrays of at most this many numbers, such as the replicas of a partition, do not count against the limit."""

READ_ERRORS = (struct.error, IndexError, UnicodeDecodeError)


def compile_decoder(message: type[Message], version: int) -> Callable[..., Any]:
    return DecoderWriter(message, version).write().build()


class DecoderWriter:
    """Variables of the generated function: `view` is the frame, `at` the position, `end` the end of the frame,
    `budget` the number of elements that are still allowed."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.__flexible__
        self.label = f"{message.__name__} version {version}"
        budget = MAX_REQUEST_ELEMENTS if issubclass(message, Request) else MAX_ELEMENTS
        self.source = FunctionSource(f"decoder of {self.label}", f"view, at, budget={budget}")
        self._run: list[tuple[str, str]] = []

    def write(self) -> FunctionSource:
        source = self.source
        errors = source.constant("READ_ERRORS", READ_ERRORS)
        malformed = source.helper(MalformedMessage)
        with source.block("try:"):
            source.line("end = len(view)")
            result = self._struct(self.message)
            source.line(f"return {result}, at")
        with source.block(f"except {errors} as error:"):
            source.line(f"raise {malformed}(f'{self.label}: {{error}}') from None")
        return source

    def _struct(self, struct_class: type[Struct]) -> str:
        """Generate code that reads a struct into a new object without its constructor. Returns the variable's name."""
        source = self.source
        name = source.new_name("struct")
        new = source.constant("new", object.__new__)
        source.line(f"{name} = {new}({source.constant(struct_class.__name__, struct_class)})")
        for field in plain_fields(struct_class, self.version):
            self._value(field.type, f"{name}.{field.name}", nullable=self.version in field.nullable)
        tagged = tagged_fields(struct_class, self.version)
        for field in [*absent_fields(struct_class, self.version), *tagged]:
            self._default(field, f"{name}.{field.name}")
        if self.flexible:
            self._tags(tagged, name)
        else:
            self._read_run()
        return name

    def _default(self, field: Field, target: str) -> None:
        value = field.default
        text = "[]" if value is EMPTY_ARRAY else literal_or_constant(self.source, f"default_{field.name}", value)
        self.source.line(f"{target} = {text}")

    def _read_run(self) -> None:
        """Generate one unpack for the values collected so far."""
        if not self._run:
            return
        codes = [code for code, _ in self._run]
        targets = [target for _, target in self._run]
        size_bytes = sum(CODE_SIZES[code] for code in codes)
        if codes == ["B"]:
            self.source.line(f"{targets[0]} = view[at]")
        else:
            comma = "," if len(targets) == 1 else ""
            self.source.line(f"{', '.join(targets)}{comma} = {self.source.unpack(codes)}(view, at)")
        self.source.line(f"at += {size_bytes}")
        self._run.clear()

    def _value(self, type_: FieldType, target: str, *, nullable: bool) -> None:
        match type_:
            case Fixed(code, _):
                self._run.append((code, target))
            case Text():
                self._text(target, nullable)
            case Records():
                self._bytes(target, nullable, "view[at:{end}]")
            case Binary():
                self._bytes(target, nullable, "bytes(view[at:{end}])")
            case Array(element):
                self._array(element, target, nullable)
            case Nested(struct_class):
                self._nested(struct_class, target, nullable)

    def _text(self, target: str, nullable: bool) -> None:
        source = self.source
        length = source.new_name("length")
        self._run.append(("B" if self.flexible else "h", length))
        self._read_run()
        if self.flexible:
            null, short = f"{length} == 0", f"0 < {length} < 128"
            readers = source.constant("COMPACT_TEXT_READERS", primitives.COMPACT_TEXT_READERS)
            advance, read_long = f"{length} - 1", source.helper(primitives.read_long_compact_text)
        else:
            null, short = f"{length} < 0", f"0 <= {length} < 128"
            readers = source.constant("TEXT_READERS", primitives.TEXT_READERS)
            advance, read_long = length, source.helper(primitives.read_long_text)
        with source.block(f"if {short}:"):
            source.line(f"{target} = {readers}[{length}](view, at)[0].decode()")
            source.line(f"at += {advance}")
        if nullable:
            with source.block(f"elif {null}:"):
                source.line(f"{target} = None")
        with source.block("else:"):
            source.line(f"{target}, at = {read_long}(view, at, {length})")

    def _length(self, prefix: str) -> str:
        """Generate code that reads the length of records or the count of an array; -1 means null in all versions."""
        source = self.source
        length = source.new_name(prefix)
        self._run.append(("B" if self.flexible else "i", length))
        self._read_run()
        if self.flexible:
            with source.block(f"if {length} > 127:"):
                source.line(f"{length}, at = {source.helper(primitives.finish_varint)}(view, at, {length})")
            source.line(f"{length} -= 1")
        return length

    def _bytes(self, target: str, nullable: bool, slice_: str) -> None:
        source = self.source
        length = self._length("length")
        with source.block(f"if {length} < 0:"):
            if nullable:
                source.line(f"{target} = None")
            else:
                source.line(f"raise {source.helper(primitives.null_value)}()")
        with source.block("else:"):
            source.line(f"{length} += at")
            with source.block(f"if {length} > end:"):
                source.line(f"raise {source.helper(primitives.cut_short)}()")
            source.line(f"{target} = {slice_.format(end=length)}")
            source.line(f"at = {length}")

    def _array(self, element: FieldType, target: str, nullable: bool) -> None:
        source = self.source
        count = self._length("count")
        if nullable:
            with source.block(f"if {count} < 0:"):
                source.line(f"{target} = None")
            with source.block("else:"):
                self._elements(element, target, count)
        else:
            self._elements(element, target, count)

    def _elements(self, element: FieldType, target: str, count: str) -> None:
        source = self.source
        element_bytes = minimum_bytes(element, self.version, self.flexible)
        if element_bytes == 0:
            raise TypeError(f"{self.label}: the elements of {target} have no bytes, so nothing bounds their number")
        bad_count = source.helper(primitives.bad_count)
        with source.block(f"if {count} < 0 or {count} * {element_bytes} > end - at:"):
            source.line(f"raise {bad_count}({count}, end - at)")
        if isinstance(element, Fixed):
            with source.block(f"if {count} > {FREE_NUMBERS}:"):
                self._spend(count)
        else:
            self._spend(count)
        if isinstance(element, Fixed):
            reader = source.constant(f"read_{element.code}", primitives.array_reader(element.code))
            source.line(f"{target} = {reader}(view, at, {count})")
            source.line(f"at += {count} * {element.size_bytes}")
            return
        items = source.new_name("items")
        source.line(f"{items} = {target} = []")
        with source.block(f"while {count}:"):
            source.line(f"{count} -= 1")
            source.line(f"{items}.append({self._element(element)})")

    def _spend(self, count: str) -> None:
        self.source.line(f"budget -= {count}")
        with self.source.block("if budget < 0:"):
            self.source.line(f"raise {self.source.helper(primitives.too_many_elements)}({count})")

    def _element(self, element: FieldType) -> str:
        if isinstance(element, Nested):
            return self._struct(element.struct)
        name = self.source.new_name("element")
        self._value(element, name, nullable=False)
        self._read_run()
        return name

    def _nested(self, struct_class: type[Struct], target: str, nullable: bool) -> None:
        source = self.source
        if not nullable:
            self._read_run()
            source.line(f"{target} = {self._struct(struct_class)}")
            return
        mark = source.new_name("mark")
        self._run.append(("b", mark))
        self._read_run()
        with source.block(f"if {mark} < 0:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            source.line(f"{target} = {self._struct(struct_class)}")

    def _tags(self, tagged: list[Field], struct_name: str) -> None:
        source = self.source
        count = source.new_name("tags")
        self._run.append(("B", count))
        self._read_run()
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > 127:"):
                source.line(f"{count}, at = {source.helper(primitives.finish_varint)}(view, at, {count})")
            self._spend(count)
            if tagged:
                self._known_tags(tagged, struct_name, count)
            else:
                source.line(f"at = {source.helper(primitives.skip_tags)}(view, at, {count})")

    def _known_tags(self, tagged: list[Field], struct_name: str, count: str) -> None:
        source = self.source
        read_varint = source.helper(primitives.read_varint)
        tag, tag_end = source.new_name("tag"), source.new_name("tag_end")
        with source.block(f"while {count}:"):
            source.line(f"{count} -= 1")
            source.line(f"{tag}, at = {read_varint}(view, at)")
            source.line(f"{tag_end}, at = {read_varint}(view, at)")
            source.line(f"{tag_end} += at")
            with source.block(f"if {tag_end} > end:"):
                source.line(f"raise {source.helper(primitives.cut_short)}()")
            for number, field in enumerate(tagged):
                with source.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                    self._tagged_value(field, f"{struct_name}.{field.name}")
            with source.block("else:"):
                source.line(f"at = {tag_end}")
            with source.block(f"if at != {tag_end}:"):
                source.line(f"raise {source.helper(primitives.bad_tag_size)}({tag})")

    def _tagged_value(self, field: Field, target: str) -> None:
        if isinstance(field.type, Nested) and self.version in field.nullable:
            self._nullable_tagged_struct(field.type.struct, target)
        elif isinstance(field.type, Nested):
            self.source.line(f"{target} = {self._struct(field.type.struct)}")
        else:
            self._value(field.type, target, nullable=self.version in field.nullable)
        self._read_run()

    def _nullable_tagged_struct(self, struct_class: type[Any], target: str) -> None:
        """Null is zero, as an unsigned varint; elsewhere a struct that may be null is -1 or begins with 1."""
        presence = self.source.new_name("presence")
        self._run.append(("B", presence))
        self._read_run()
        with self.source.block(f"if {presence}:"):
            self.source.line(f"{target} = {self._struct(struct_class)}")
        with self.source.block("else:"):
            self.source.line(f"{target} = None")
