"""Records that readers get from transactions that are open, committed and aborted."""

from compat.answers.conversation import Conversation, chapter
from compat.answers.requests import create_topic
from compat.answers.writers import Writer, prepare
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.types import Uuid

FETCH_VERSIONS = (4, 5, 7, 11, 12, 13, 17)
LIST_VERSIONS = (2, 4, 7, 11)
ISOLATION_LEVELS = (0, 1)
NO_ISOLATION_LEVELS = (2, -1)
LATEST, EARLIEST, FIRST_TIMESTAMP = -1, -2, 0
BEYOND = 9


@chapter("reading transactions")
def reading(talk: Conversation) -> None:
    prepare(talk)
    topic, topic_id = create_topic(talk, "topic")
    first, second = Writer(talk, "first"), Writer(talk, "second")
    write(talk, first, topic, "the first")
    write(talk, second, topic, "the second")
    read(talk, "both open", topic, topic_id)
    talk.ask("the first is aborted", first.end(committed=False), 4)
    first.wait_until_ended()
    read(talk, "the first aborted", topic, topic_id)
    write(talk, first, topic, "the first, once more,")
    talk.ask("the second is aborted", second.end(committed=False), 4)
    second.wait_until_ended()
    read(talk, "both aborted, the first open again", topic, topic_id)
    talk.ask("the first is committed", first.end(), 4)
    first.wait_until_ended()
    for offset in range(BEYOND + 1):
        read(talk, "all ended", topic, topic_id, offset)
    for isolation in NO_ISOLATION_LEVELS:
        list_offsets(talk, f"as if there were isolation {isolation}", topic, isolation)
        talk.ask(f"read as if there were isolation {isolation}", fetching(topic, topic_id, 0, isolation), 17)


def write(talk: Conversation, writer: Writer, topic: str, what: str) -> None:
    talk.ask(f"{what} adds", writer.add((topic, [0])), 3)
    talk.ask(f"{what} writes", writer.produce(topic), 11)
    writer.wrote()


def read(talk: Conversation, when: str, topic: str, topic_id: Uuid, offset: int = 0) -> None:
    for isolation in ISOLATION_LEVELS:
        for version in FETCH_VERSIONS:
            found = talk.ask_quietly(fetching(topic, topic_id, offset, isolation), version, FetchResponse)
            for partition in (each for answered in found.responses for each in answered.partitions):
                size = len(bytes(partition.records or b""))  # type: ignore[arg-type]
                partition.records = f"{size} bytes".encode()
            talk.note(f"{when}: read from {offset} with isolation {isolation}, v{version}", found)
        if offset == 0:
            list_offsets(talk, when, topic, isolation)


def list_offsets(talk: Conversation, when: str, topic: str, isolation: int) -> None:
    for version in LIST_VERSIONS:
        for timestamp in (LATEST, EARLIEST, FIRST_TIMESTAMP):
            wanted = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=timestamp)])]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=wanted, timeout_ms=1_000)
            found = talk.ask_quietly(request, version, ListOffsetsResponse)
            for partition in (each for answered in found.topics for each in answered.partitions):
                partition.timestamp = min(partition.timestamp, 0)
            talk.note(f"{when}: offset of {timestamp} with isolation {isolation}, v{version}", found)


def fetching(topic: str, topic_id: Uuid, offset: int, isolation: int) -> FetchRequest:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )
