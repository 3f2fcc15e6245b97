"""Whatever is encoded is decoded to the same message."""

import pytest

from tests.protocol.samples import Samples, for_all_messages
from tidelog.protocol.codec import decode, decoder, encode
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.structs import Message

MESSAGES_EACH = 25


@for_all_messages
def test_random_messages_come_back_as_they_were(message: type[Message], version: int) -> None:
    samples = Samples(seed=version)
    for _ in range(MESSAGES_EACH):
        sample = samples.message(message, version)
        encoded = encode(sample, version)
        decoded, end = decoder(message, version)(memoryview(encoded), 0)
        assert decoded == sample
        assert end == len(encoded)


@for_all_messages
def test_a_message_is_found_at_any_position_and_what_follows_is_ignored(message: type[Message], version: int) -> None:
    sample = Samples(seed=version).message(message, version)
    encoded = encode(sample, version)
    decoded, end = decoder(message, version)(memoryview(b"before" + encoded + b"behind"), 6)
    assert decoded == sample
    assert end == 6 + len(encoded)


@for_all_messages
def test_a_message_that_ends_early_is_refused_wherever_it_ends(message: type[Message], version: int) -> None:
    decode = decoder(message, version)
    samples = Samples(seed=version)
    for _ in range(3):
        encoded = encode(samples.message(message, version), version)
        step = max(1, len(encoded) // 500)
        for end in range(0, len(encoded), step):
            with pytest.raises(MalformedMessage):
                decode(memoryview(encoded)[:end], 0)


@for_all_messages
def test_a_message_of_defaults_can_be_sent_in_every_version(message: type[Message], version: int) -> None:
    assert decode(message, version, encode(message(), version)) == message()
