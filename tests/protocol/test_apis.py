import pkgutil
import subprocess
import sys

import pytest

from tidelog.protocol import messages
from tidelog.protocol.apis import API_KEYS, APIS, NEVER, Api
from tidelog.protocol.fields import LAST_VERSION, NO_VERSIONS, Array, Nested, Versions
from tidelog.protocol.structs import Message, Struct

for_all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def test_every_file_of_messages_is_in_the_table() -> None:
    files = {f"{messages.__name__}.{module.name}" for module in pkgutil.iter_modules(messages.__path__)}
    assert {api.request.__module__ for api in APIS} == files


def test_keys_are_unique_and_in_order() -> None:
    assert list(API_KEYS) == sorted(API_KEYS)
    assert len(API_KEYS) == len(APIS)


@for_all_apis
def test_the_table_says_what_the_messages_say(api: Api) -> None:
    for message in (api.request, api.response):
        assert message.__api_key__ == api.key
        assert message.__versions__ == api.versions
        assert message.__flexible__ == _flexible_versions(api)
    assert api.request.__module__ == api.response.__module__


def _flexible_versions(api: Api) -> Versions:
    return NO_VERSIONS if api.flexible_from == NEVER else Versions(api.flexible_from, LAST_VERSION)


@for_all_apis
def test_what_is_advertised_is_what_is_declared_but_for_produce(api: Api) -> None:
    expected = Versions(0, 13) if api.name == "Produce" else api.versions
    assert api.advertised == expected


@for_all_apis
def test_every_field_is_on_the_wire_in_some_version(api: Api) -> None:
    for message in (api.request, api.response):
        versions = range(message.__versions__.first, message.__versions__.last + 1)
        assert_fields_are_used(message, message, list(versions))


def assert_fields_are_used(message: type[Message], struct: type[Struct], versions: list[int]) -> None:
    for field in struct.__fields__:
        present_in = [version for version in versions if version in field.versions]
        assert present_in, f"{message.__name__}: {struct.__name__}.{field.name}"
        inner = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(inner, Nested):
            assert_fields_are_used(message, inner.struct, present_in)


def test_importing_the_table_imports_no_messages() -> None:
    program = (
        "import sys, tidelog.protocol.apis; print([name for name in sys.modules if name.startswith(sys.argv[1] + '.')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, messages.__name__], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
