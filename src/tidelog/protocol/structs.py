"""Base classes of declared messages: slots, constructor, equality and repr, derived from the fields."""

from typing import Any, ClassVar, dataclass_transform

from tidelog.protocol.fields import EMPTY_ARRAY, NO_VERSIONS, Field, Versions


@dataclass_transform()
class StructMeta(type):
    """Turns the fields of a class body into slots; the fields themselves stay in `__fields__`."""

    def __new__(
        metaclass,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: str = "none",
        flexible: str = "none",
    ) -> "StructMeta":
        fields = tuple(value._replace(name=key_) for key_, value in namespace.items() if isinstance(value, Field))
        body = {key_: value for key_, value in namespace.items() if not isinstance(value, Field)}
        body |= {
            "__slots__": tuple(field.name for field in fields),
            "__fields__": fields,
            "__api_key__": key,
            "__versions__": Versions.parse(versions),
            "__flexible__": Versions.parse(flexible),
        }
        return super().__new__(metaclass, name, bases, body)


class Struct(metaclass=StructMeta):
    """A group of fields. Its constructor takes them by name or in their order; each has a default."""

    __fields__: ClassVar[tuple[Field, ...]] = ()
    __api_key__: ClassVar[int] = -1
    __versions__: ClassVar[Versions] = NO_VERSIONS
    __flexible__: ClassVar[Versions] = NO_VERSIONS

    def __init__(self, *values: Any, **named_values: Any) -> None:
        # The constructor is generated at the first call and replaces this one: most classes are never used.
        initializer = _compile_initializer(type(self))
        type.__setattr__(type(self), "__init__", initializer)
        initializer(self, *values, **named_values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{field.name}={getattr(self, field.name)!r}" for field in self.__fields__)
        return f"{type(self).__name__}({', '.join(values)})"


class Message(Struct):
    """A struct that is sent as a whole; it knows its versions and which of them are flexible (KIP-482)."""


class Request(Message):
    pass


class Response(Message):
    pass


def _compile_initializer(cls: type[Struct]) -> Any:
    environment: dict[str, Any] = {"EMPTY_ARRAY": EMPTY_ARRAY}
    parameters, assignments = ["self"], ["pass"]
    for field in cls.__fields__:
        value = field.name
        environment[f"default_{value}"] = field.default
        parameters.append(f"{value}=default_{value}")
        if field.default is EMPTY_ARRAY:
            assignments.append(f"self.{value} = [] if {value} is EMPTY_ARRAY else {value}")
        else:
            assignments.append(f"self.{value} = {value}")
    source = f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(assignments)
    exec(source, environment)
    return environment["__init__"]
