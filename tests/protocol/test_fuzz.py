"""Whatever bytes arrive, a decoder returns a message or raises MalformedMessage, soon and in bounded memory."""

import contextlib
import struct
from collections.abc import Callable, Iterator
from random import Random

from tests.allocations import allocations
from tests.protocol.samples import ALL_MESSAGES, Samples, for_all_messages
from tidelog.protocol.codec import decoder, encode
from tidelog.protocol.errors import MalformedMessage, UnknownApi
from tidelog.protocol.header import RequestHeader, read_request_header, request_header
from tidelog.protocol.structs import Message

FRAMES = 210_000
FRAMES_EACH = -(-FRAMES // len(ALL_MESSAGES))
MUTATIONS_PER_SAMPLE = 60
MAX_FRAME_BYTES = 1500
HUGE_COUNTS = (
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", 1_000_000),
    struct.pack(">i", -2),
    struct.pack(">h", 32767),
    struct.pack(">h", -32768),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\x7f",
    b"\x80\x80\x80\x80\x00",
    b"\xff\x7f",
)


def flip_bytes(frame: bytearray, random: Random) -> None:
    for _ in range(random.randint(1, 4)):
        frame[random.randrange(len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def truncate(frame: bytearray, random: Random) -> None:
    del frame[random.randrange(len(frame)) :]


def inflate_a_count(frame: bytearray, random: Random) -> None:
    place = random.randrange(len(frame))
    huge = random.choice(HUGE_COUNTS)
    frame[place : place + random.choice((0, 1, len(huge)))] = huge


def repeat_a_piece(frame: bytearray, random: Random) -> None:
    first = random.randrange(len(frame))
    piece = frame[first : first + random.randint(1, 40)]
    place = random.randrange(len(frame))
    frame[place:place] = piece * random.randint(1, 5)


def remove_a_piece(frame: bytearray, random: Random) -> None:
    first = random.randrange(len(frame))
    del frame[first : first + random.randint(1, 10)]


def replace_with_garbage(frame: bytearray, random: Random) -> None:
    frame[:] = random.randbytes(random.randrange(200))


MUTATIONS: tuple[Callable[[bytearray, Random], None], ...] = (
    flip_bytes,
    flip_bytes,
    truncate,
    inflate_a_count,
    inflate_a_count,
    repeat_a_piece,
    remove_a_piece,
    replace_with_garbage,
)


def mutated_frames(message: type[Message], version: int) -> Iterator[bytes]:
    samples = Samples(seed=message.__api_key__ * 100 + version)
    random = samples.random
    original = b"\0"
    for number in range(FRAMES_EACH):
        if number % MUTATIONS_PER_SAMPLE == 0:
            original = encode(samples.message(message, version), version)[:MAX_FRAME_BYTES] or b"\0"
        frame = bytearray(original)
        random.choice(MUTATIONS)(frame, random)
        yield bytes(frame)


@for_all_messages
def test_a_decoder_survives_mutated_frames(message: type[Message], version: int) -> None:
    decode = decoder(message, version)
    rejected = accepted = 0
    for frame in mutated_frames(message, version):
        try:
            decoded, end = decode(memoryview(frame), 0)
        except MalformedMessage:
            rejected += 1
        else:
            accepted += 1
            assert end <= len(frame)
            encode(decoded, version)  # what was accepted is a message in all its parts
    assert rejected + accepted == FRAMES_EACH
    assert rejected or encode(message(), version) == b"", "the mutations do no harm, so they prove nothing"


def test_the_request_header_survives_mutated_frames() -> None:
    random = Random(1)
    outcomes: set[type] = set()
    for _ in range(20_000):
        key, version = random.choice(((0, 9), (1, 4), (3, 12), (18, 3)))
        frame = bytearray(request_header(key, version, random.randrange(2**31), random.choice((None, "client"))))
        random.choice(MUTATIONS)(frame, random)
        try:
            _, end = read_request_header(memoryview(frame))
        except (MalformedMessage, UnknownApi) as error:
            outcomes.add(type(error))
        else:
            outcomes.add(RequestHeader)
            assert end <= len(frame)
    assert outcomes == {MalformedMessage, UnknownApi, RequestHeader}


@for_all_messages
def test_an_inflated_count_allocates_nothing(message: type[Message], version: int) -> None:
    decode = decoder(message, version)
    sample = encode(Samples(seed=version).message(message, version), version)[:400]
    with allocations() as peak:
        for place in range(len(sample)):
            for huge in HUGE_COUNTS[:1] + HUGE_COUNTS[5:6]:
                frame = memoryview(sample[:place] + huge + sample[place + len(huge) :])
                with contextlib.suppress(MalformedMessage):
                    decode(frame, 0)
    assert peak.bytes < 1_000_000
