"""Generator of encoders: one straight-line Python function per message and version.

The function passes on parts in order: packed bytes, and records without copying. Consecutive values of fixed size,
together with the length or count of the next value, are packed at once. Fields that the version lacks are omitted.
"""

import struct
from collections.abc import Callable
from typing import Any

from tidelog.protocol import primitives
from tidelog.protocol.errors import UnencodableMessage
from tidelog.protocol.fields import (
    EMPTY_ARRAY,
    Array,
    Binary,
    Field,
    FieldType,
    Fixed,
    Nested,
    Records,
    SharedList,
    Text,
)
from tidelog.protocol.layout import plain_fields, tagged_fields
from tidelog.protocol.source import FunctionSource, literal_or_constant
from tidelog.protocol.structs import Message, Struct

ZERO_BYTE = "x"
"""Generated code for a zero byte, which means null or no tagged fields in flexible versions."""

SHORT_LENGTH = "B"
"""Generated code for a compact length that fits in one byte."""


def compile_encoder(message: type[Message], version: int) -> Callable[..., Any]:
    return EncoderWriter(message, version).write().build()


class EncoderWriter:
    """Variables of the generated function: `message` is the object to encode, `write` takes the parts."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.__flexible__
        self.label = f"{message.__name__} version {version}"
        self.source = FunctionSource(f"encoder of {self.label}", "message, write")
        self._writer = "write"
        self._run: list[tuple[str, str]] = []

    def write(self) -> FunctionSource:
        source = self.source
        error = source.constant("struct_error", struct.error)
        unencodable = source.helper(UnencodableMessage)
        with source.block("try:"):
            source.line("pass")  # a message may have no fields
            self._struct(self.message, "message")
        with source.block(f"except {error} as error:"):
            source.line(f"raise {unencodable}(f'{self.label}: {{error}}') from error")
        return source

    def _struct(self, struct_class: type[Struct], value: str) -> None:
        for field in plain_fields(struct_class, self.version):
            self._value(field.type, f"{value}.{field.name}", nullable=self.version in field.nullable)
        if self.flexible:
            self._tags(tagged_fields(struct_class, self.version), value)
        self._write_run()

    def _write_run(self) -> None:
        """Generate one pack for the values collected so far."""
        if self._run:
            self.source.line(f"{self._writer}({self._packed(self._run)})")
            self._run.clear()

    def _packed(self, run: list[tuple[str, str]]) -> str:
        if all(code == ZERO_BYTE for code, _ in run):
            return repr(bytes(len(run)))
        if len(run) == 1 and run[0][0] == SHORT_LENGTH:
            return f"{self.source.constant('SHORT_VARINTS', primitives.SHORT_VARINTS)}[{run[0][1]}]"
        pack = self.source.pack([code for code, _ in run])
        return f"{pack}({', '.join(value for code, value in run if code != ZERO_BYTE)})"

    def _value(self, type_: FieldType, value: str, *, nullable: bool) -> None:
        if isinstance(type_, Fixed):
            self._run.append((type_.code, value))
            return
        if "." in value:
            name = self.source.new_name("value")
            self.source.line(f"{name} = {value}")
            value = name
        if nullable:
            self._nullable_value(type_, value)
        else:
            self._present_value(type_, value)

    def _nullable_value(self, type_: FieldType, value: str) -> None:
        run = self._run
        with self.source.block(f"if {value} is None:"):
            self._run = [*run, self._null(type_)]
            self._write_run()
        with self.source.block("else:"):
            self._run = run
            if isinstance(type_, Nested):
                self._run.append(("b", "1"))
            self._present_value(type_, value)
        self._run = []

    def _null(self, type_: FieldType) -> tuple[str, str]:
        if isinstance(type_, Nested):
            return "b", "-1"
        if self.flexible:
            return ZERO_BYTE, ""
        return "h" if isinstance(type_, Text) else "i", "-1"

    def _present_value(self, type_: FieldType, value: str) -> None:
        source = self.source
        match type_:
            case Text():
                source.line(f"{value} = {value}.encode()")
                self._length(value, "h", primitives.text_length)
                source.line(f"{self._writer}({value})")
            case Records() | Binary():
                self._length(value, "i", primitives.varint)
                source.line(f"{self._writer}({value})")
            case Array(Fixed(code, _)):
                self._length(value, "i", primitives.varint)
                writer = source.constant(f"write_{code}", primitives.array_writer(code))
                with source.block(f"if {value}:"):
                    source.line(f"{self._writer}({writer}({value}))")
            case Array(element, may_be_shared):
                self._length(value, "i", primitives.varint)
                if may_be_shared:
                    self._shared_elements(element, value)
                else:
                    self._elements(element, value)
            case Nested(struct_class):
                self._struct(struct_class, value)
            case Fixed():
                raise TypeError("a fixed value is part of a run")

    def _length(self, value: str, code: str, long_length: Callable[[int], bytes]) -> None:
        """Generate code for the collected values and the next length, which is compact and plus one if flexible."""
        source = self.source
        if not self.flexible:
            self._run.append((code, f"len({value})"))
            self._write_run()
            return
        length = source.new_name("length")
        source.line(f"{length} = len({value}) + 1")
        with source.block(f"if {length} < 128:"):
            source.line(f"{self._writer}({self._packed([*self._run, (SHORT_LENGTH, length)])})")
        with source.block("else:"):
            self._write_run()
            source.line(f"{self._writer}({source.helper(long_length)}({length}))")
        self._run.clear()

    def _elements(self, element: FieldType, value: str) -> None:
        item = self.source.new_name("item")
        with self.source.block(f"for {item} in {value}:"):
            if isinstance(element, Nested):
                self._struct(element.struct, item)
            else:
                self._value(element, item, nullable=False)
                self._write_run()

    def _shared_elements(self, element: FieldType, value: str) -> None:
        source, outer_writer = self.source, self._writer
        key, encoded, parts = repr(f"{self.label} {value}"), source.new_name("encoded"), source.new_name("parts")
        with source.block(f"if {value}.__class__ is {source.constant('SharedList', SharedList)}:"):
            source.line(f"{encoded} = {value}.encoded.get({key})")
            with source.block(f"if {encoded} is None:"):
                source.line(f"{parts} = []")
                self._writer = f"{parts}.append"
                self._elements(element, value)
                self._writer = outer_writer
                source.line(f"{encoded} = {value}.encoded[{key}] = b''.join({parts})")
            source.line(f"{outer_writer}({encoded})")
        with source.block("else:"):
            self._elements(element, value)

    def _tags(self, tagged: list[Field], value: str) -> None:
        if not tagged:
            self._run.append((ZERO_BYTE, ""))
            return
        run = self._run
        conditions = [self._is_present(field, value) for field in tagged]
        with self.source.block(f"if {' or '.join(conditions)}:"):
            self._run = list(run)
            self._write_run()
            self._present_tags(tagged, conditions, value)
        with self.source.block("else:"):
            self._run = [*run, (ZERO_BYTE, "")]
            self._write_run()

    def _is_present(self, field: Field, value: str) -> str:
        """A tagged field is on the wire only if it differs from its default."""
        if isinstance(field.type, Nested):
            differs = self._differs_from_default(field.type.struct, f"{value}.{field.name}")
            if self.version in field.nullable:
                return f"({value}.{field.name} is None or {differs})"
            return f"({value}.{field.name} is not None and {differs})"
        if field.default is None:
            return f"{value}.{field.name} is not None"
        if field.default is EMPTY_ARRAY:
            return f"{value}.{field.name}"
        return f"{value}.{field.name} != {literal_or_constant(self.source, f'default_{field.name}', field.default)}"

    def _differs_from_default(self, struct_class: type[Struct], value: str) -> str:
        """Field by field if all are of fixed size, such as the replica state in each Fetch of a follower."""
        if not all(isinstance(field.type, Fixed) for field in struct_class.__fields__):
            return f"{value} != {self.source.constant(f'default_{struct_class.__name__}', struct_class())}"
        fields = (
            (field.name, literal_or_constant(self.source, f"default_{field.name}", field.default))
            for field in struct_class.__fields__
        )
        return f"({' or '.join(f'{value}.{name} != {default}' for name, default in fields)})"

    def _present_tags(self, tagged: list[Field], conditions: list[str], value: str) -> None:
        source, outer_writer = self.source, self._writer
        tags, parts = source.new_name("tags"), source.new_name("parts")
        source.line(f"{tags} = []")
        for field, condition in zip(tagged, conditions, strict=True):
            with source.block(f"if {condition}:"):
                source.line(f"{parts} = []")
                self._writer = f"{parts}.append"
                self._tagged_value(field, f"{value}.{field.name}")
                source.line(f"{tags}.append({source.helper(primitives.tagged_field)}({field.tag}, {parts}))")
        self._writer = outer_writer
        source.line(f"{outer_writer}({source.helper(primitives.varint)}(len({tags})))")
        source.line(f"{outer_writer}(b''.join({tags}))")

    def _tagged_value(self, field: Field, value: str) -> None:
        if isinstance(field.type, Nested) and self.version in field.nullable:
            self._nullable_tagged_struct(field.type.struct, value)
        elif isinstance(field.type, Nested):
            self._struct(field.type.struct, value)
        else:
            self._value(field.type, value, nullable=self.version in field.nullable)
        self._write_run()

    def _nullable_tagged_struct(self, struct_class: type[Any], value: str) -> None:
        """Null is zero, as an unsigned varint; elsewhere a struct that may be null is -1 or begins with 1."""
        with self.source.block(f"if {value} is None:"):
            self._run = [(ZERO_BYTE, "")]
            self._write_run()
        with self.source.block("else:"):
            self._run.append(("b", "1"))
            self._struct(struct_class, value)
            self._write_run()
