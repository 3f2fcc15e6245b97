"""Writing the prefix of a schema registry."""

import re

import pytest

from tidelog.pipelines.definition.model import Format, FormatKind
from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.python_rows import schema_id_of


def test_prefix_without_an_id_is_refused_with_the_key_that_gives_it() -> None:
    with pytest.raises(FormatError, match=re.escape("format_options = { schema_id = 1 }")):
        schema_id_of(Format(FormatKind.AVRO, confluent_prefix=True))


def test_prefix_has_the_id_that_was_given() -> None:
    assert schema_id_of(Format(FormatKind.AVRO, options={"schema_id": "17"})) == 17
    assert schema_id_of(Format(FormatKind.AVRO)) is None
