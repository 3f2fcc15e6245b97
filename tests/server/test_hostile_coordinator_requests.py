"""Coordinators under requests of all kinds and versions that make little sense, or sense at the wrong moment.

Whatever they say, each is answered on a connection that stays open, nothing fails inside, and what a coordinator knows
afterwards is what it would know if it had read its records.
"""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from tests.protocol.samples import BITS, Samples
from tests.server.harness import Client, Harness
from tests.server.test_group_offsets import TOPIC, prepare
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.fields import Array, Binary, Field, Fixed, Text
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.protocol.internal.versioned import encode_versioned
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.protocol.structs import Request, Struct
from tidelog.runtime.virtual_time import run_virtually

GROUP_APIS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69)
TRANSACTION_APIS = (22, 24, 25, 26, 27, 28, 61, 65, 66)
OFTEN = (8, 11, 11, 11, 12, 14, 14, 13, 68, 68, 68, 28)
REQUESTS = 250
TEXTS_BY_NAME = {
    "group_id": ("g1", "g2", "g3"),
    "groups": ("g1", "g2", "g3"),
    "groups_names": ("g1", "g2", "g3"),
    "group_ids": ("g1", "g2", "g3"),
    "transactional_id": ("x1", "x2"),
    "name": (TOPIC, "range", "roundrobin"),
    "subscribed_topic_names": (TOPIC, "other"),
    "subscribed_topic_regex": (f"{TOPIC}.*", "[a-z]+", "(", "(a|b)*{3}", ""),
    "server_assignor": ("uniform", "range", "none such"),
    "protocol_type": ("consumer", "connect", ""),
    "protocol_name": ("range", "roundrobin", ""),
    "group_instance_id": ("static-1", "static-2", ""),
    "instance_id": ("static-1", "static-2", ""),
}
ODD_TEXTS = ("", "x" * 32_767, "\0", "a\nb", "é" * 100, "__consumer_offsets")
USUAL_INTEGERS = (0, 0, -1, -1, -2, 1, 1, 2, 3)
TIMEOUTS_MS = (-1, 0, 1, 10_000, 30_000, 60_000, 2**31 - 1)


def metadata_of(random: Random) -> bytes:
    subscription = ConsumerProtocolSubscription(topics=[TOPIC] * random.choice((0, 1)))
    assignment = ConsumerProtocolAssignment()
    good = encode_versioned(subscription, random.choice((0, 1, 3))), encode_versioned(assignment, 1)
    return random.choice((*good, *good, b"", b"\0", b"\0\0\xff\xff", random.randbytes(random.choice((3, 30)))))


class Hostile(Samples):
    """Requests whose fields are often right, and which name whatever answers have named so far."""

    def __init__(self, seed: int, topic_id: bytes) -> None:
        super().__init__(seed, self.integer)
        self.topic_id = topic_id
        self.member_ids = [""]
        self.numbers = [0]

    def request(self) -> tuple[Request, int]:
        random = self.random
        key = random.choice(OFTEN if random.random() < 0.6 else GROUP_APIS + TRANSACTION_APIS)
        message = API_KEYS[key].request
        version = random.randint(message.__versions__.first, message.__versions__.last)
        request = self.message(message, version)
        if random.random() < 0.7:
            self._mend(request)
        return request, version

    def _mend(self, request: Request) -> None:
        """What would keep most requests from getting anywhere."""
        random = self.random
        match request:
            case JoinGroupRequest():
                request.session_timeout_ms = random.choice((6_000, 30_000))
                request.protocol_type = "consumer"
                request.protocols = [JoinGroupRequestProtocol("range", metadata_of(random))]
            case SyncGroupRequest():
                request.protocol_type, request.protocol_name = "consumer", "range"
                request.assignments = [
                    SyncGroupRequestAssignment(member_id, metadata_of(random)) for member_id in self.member_ids
                ]
            case ConsumerGroupHeartbeatRequest(member_epoch=0):
                request.topic_partitions, request.rebalance_timeout_ms = [], 30_000
                request.subscribed_topic_names = request.subscribed_topic_names or [TOPIC]
                request.server_assignor = request.rack_id = None
                request.member_id = request.member_id or f"m{random.randint(1, 9)}"
        if random.random() < 0.7 and hasattr(request, "group_instance_id"):
            request.group_instance_id = None
        if random.random() < 0.7 and hasattr(request, "instance_id"):
            request.instance_id = None

    def integer(self, random: Random, field: Field, code: str) -> int:
        high = 2 ** (BITS[code] - 1)
        choice = random.random()
        if choice < 0.05:
            return random.choice((high - 1, -high, random.randrange(-high, high)))
        if field.name.endswith("timeout_ms"):
            return random.choice(TIMEOUTS_MS)
        return random.choice(self.numbers if choice < 0.4 else USUAL_INTEGERS) % high if choice < 0.7 else 0

    def _present(self, field: Field, type_: Any, version: int) -> Any:
        random = self.random
        match type_:
            case Text():
                usual = self.member_ids if field.name == "member_id" else TEXTS_BY_NAME.get(field.name, ("",))
                return random.choice(ODD_TEXTS if random.random() < 0.02 else usual)
            case Binary():
                return metadata_of(random)
            case Fixed("16s", _):
                return random.choice((self.topic_id, self.topic_id, bytes(16), random.randbytes(16)))
            case Array(_):
                return super()._present(field, type_, version)
        return super()._present(field, type_, version)

    def learn(self, response: Struct) -> None:
        """What an answer says is used in later requests."""
        for field in response.__fields__:
            value = getattr(response, field.name)
            if field.name == "member_id" and value and len(self.member_ids) < 20:
                self.member_ids.append(value)
            elif field.name in ("generation_id", "member_epoch", "producer_id", "producer_epoch") and value >= 0:
                self.numbers = [*self.numbers[-5:], value]
            elif isinstance(value, list):
                for element in value:
                    if isinstance(element, Struct):
                        self.learn(element)


async def known_state(client: Client) -> tuple[Any, Any]:
    """What of groups and offsets must outlive the coordinator."""
    listed = await client.ask(ListGroupsRequest(), 5, ListGroupsResponse)
    assert listed.error_code == 0
    kinds = sorted((group.group_id, group.group_type) for group in listed.groups)
    wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id, _ in kinds]
    fetched = await client.ask(OffsetFetchRequest(groups=wanted), 9, OffsetFetchResponse)
    offsets = {
        (group.group_id, topic.name, each.partition_index): (each.committed_offset, each.metadata)
        for group in fetched.groups
        for topic in group.topics
        for each in topic.partitions
    }
    return kinds, offsets


async def torment(harness: Harness, seed: int) -> tuple[Any, Any]:
    client = await harness.connect()
    hostile = Hostile(seed, await prepare(client))
    waiting = []
    for _ in range(REQUESTS):
        # Each on a connection of its own: answers of one connection come in the order of its requests.
        other = await harness.connect(hostile.random.choice(("", "client", "c\nd", "x" * 32_767)))
        request, version = hostile.request()
        response = other.start(request, version)
        waiting.append((other, request, version, response))
        await asyncio.sleep(hostile.random.choice((0, 0, 0.01, 1, 20)))
        if response.done():
            hostile.learn(response.result())
    await asyncio.sleep(1_000)
    for other, request, version, response in waiting:
        assert other.closed_because is None, (request, version, other.closed_because)
        assert response.done(), (request, version)
    return await known_state(client)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_coordinators_are_asked_is_answered_and_remembered(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    async def main() -> None:
        harness = Harness()
        async with harness.broker(connections_max_idle_ms=10_000_000):
            before = await torment(harness, seed)
        async with harness.broker():
            client = await harness.connect()
            await asyncio.sleep(5)
            assert await known_state(client) == before

    run_virtually(main())
    assert [record.getMessage() for record in caplog.records] == []
