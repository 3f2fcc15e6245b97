"""Requests that name or list very much: handled with other work in between, and nothing is answered twice.

Counted are the calls of functions of handlers in one turn of the event loop. Unlike time, they do not depend on what
else the machine does.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace

import pytest

from tests.server.test_authorization import Guarded, with_authorizer
from tidelog.authorization.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from tidelog.groups.classic.group import ClassicGroup
from tidelog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, OpData
from tidelog.protocol.messages.alter_client_quotas import EntityData as AlteredData
from tidelog.protocol.messages.alter_client_quotas import EntryData as AlteredEntry
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.runtime.turns import Turns
from tidelog.server.handlers import describe_configs
from tidelog.storage.producer_state import ProducerStateEntry

NUMBER = 300
CALLS_OF_A_TURN = 30
"""Of a handler that yields after each item."""
COUNTED = ("/server/handlers/", "/server/acls.py", "/authorization/")
NAMES = [f"name-{number}" for number in range(NUMBER)]


@pytest.fixture(autouse=True)
def every_slice_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On virtual time none would end."""
    monkeypatch.setattr(Turns, "is_slice_over", lambda _: True)


class LongestTurn:
    def __init__(self) -> None:
        self.calls = 0
        self._current = 0

    def on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "_run_turn":
            self._current = 0
        elif any(part in name for part in COUNTED) and frame.f_code.co_name not in ("<genexpr>", "<listcomp>"):
            self._current += 1
            self.calls = max(self.calls, self._current)


@contextmanager
def longest_turn() -> Iterator[LongestTurn]:
    longest = LongestTurn()
    sys.setprofile(longest.on_event)
    try:
        yield longest
    finally:
        sys.setprofile(None)


# -- divided


def test_producers_of_a_partition() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("t")
        producers = guarded.broker.replicas.get("t", 0).log.producers
        producers.by_id.update({number: ProducerStateEntry(number) for number in range(NUMBER)})
        wanted = [TopicRequest("t", [0, 0]), TopicRequest("t", [0, 1]), TopicRequest("t", [1])]
        with longest_turn() as longest:
            response = await guarded.admin.ask(DescribeProducersRequest(topics=wanted), 0, DescribeProducersResponse)
        answered = [[each.partition_index for each in topic.partitions] for topic in response.topics]
        assert answered == [[0], [1]]
        assert len(response.topics[0].partitions[0].active_producers) == NUMBER
        assert longest.calls < CALLS_OF_A_TURN

    with_authorizer(scenario)


def test_groups_that_are_listed() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        await asyncio.sleep(5)
        ((_, machine),) = guarded.broker._services.groups.topic.loaded()
        machine.groups.update({name: ClassicGroup(name) for name in NAMES})
        await guarded.allow(Operation.DESCRIBE, ResourceType.GROUP, NAMES[7])
        with longest_turn() as longest:
            response = await guarded.admin.ask(ListGroupsRequest(), 5, ListGroupsResponse)
            hidden = await guarded.alice.ask(ListGroupsRequest(states_filter=["eMPTY"]), 5, ListGroupsResponse)
            other = await guarded.admin.ask(ListGroupsRequest(types_filter=["consumer"]), 5, ListGroupsResponse)
        assert [group.group_id for group in response.groups] == NAMES
        assert [(each.group_id, each.group_state, each.group_type) for each in hidden.groups] == [
            (NAMES[7], "Empty", "classic")
        ]
        assert other.groups == []
        assert longest.calls < CALLS_OF_A_TURN

    with_authorizer(scenario)


def test_transactions_that_are_listed() -> None:
    async def scenario(guarded: Guarded) -> None:
        for number in range(30):
            request = InitProducerIdRequest(transactional_id=f"t-{number}", transaction_timeout_ms=1000)
            while (await guarded.admin.ask(request, 4, InitProducerIdResponse)).error_code:
                await guarded.admin.ask(FindCoordinatorRequest(key="t", key_type=1), 3, FindCoordinatorResponse)
                await asyncio.sleep(1)
        with longest_turn() as longest:
            all_of_them = await guarded.admin.ask(ListTransactionsRequest(), 2, ListTransactionsResponse)
            matching = await guarded.admin.ask(
                ListTransactionsRequest(transactional_id_pattern="t-1."), 2, ListTransactionsResponse
            )
        assert len(all_of_them.transaction_states) == 30
        assert {each.transactional_id for each in matching.transaction_states} == {f"t-1{digit}" for digit in range(10)}
        assert longest.calls < CALLS_OF_A_TURN

    with_authorizer(scenario)


def test_quotas_and_passwords() -> None:
    ops = [OpData("consumer_byte_rate", 1e9, remove=False)]
    entries = [AlteredEntry([AlteredData("client-id", name)], ops) for name in NAMES]
    upsertions = [ScramCredentialUpsertion(name, 1, 4096, b"salt", b"salted") for name in NAMES]

    async def scenario(guarded: Guarded) -> None:
        ask = guarded.admin.ask
        with longest_turn() as longest:
            request = AlterClientQuotasRequest(entries=entries, validate_only=True)
            assert len((await ask(request, 1, AlterClientQuotasResponse)).entries) == NUMBER
            users = [UserName(name) for name in NAMES]
            described = DescribeUserScramCredentialsRequest(users=users)
            assert len((await ask(described, 0, DescribeUserScramCredentialsResponse)).results) == NUMBER
        assert longest.calls < CALLS_OF_A_TURN
        with longest_turn() as longest:
            altered = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
            results = (await ask(altered, 0, AlterUserScramCredentialsResponse)).results
        assert [each.error_code for each in results] == [0] * NUMBER
        assert longest.calls < CALLS_OF_A_TURN

    with_authorizer(scenario)


def test_coordinators_of_groups_that_are_all_denied() -> None:
    async def scenario(guarded: Guarded) -> None:
        with longest_turn() as longest:
            request = FindCoordinatorRequest(coordinator_keys=NAMES)
            response = await guarded.alice.ask(request, 4, FindCoordinatorResponse)
        assert len(response.coordinators) == NUMBER
        assert longest.calls < CALLS_OF_A_TURN

    with_authorizer(scenario)


def test_markers_of_many_producers() -> None:
    topics = [WritableTxnMarkerTopic("t", [0, 1]), WritableTxnMarkerTopic("u", [0])]
    markers = [WritableTxnMarker(number, 0, transaction_result=False, topics=topics) for number in range(NUMBER)]

    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("t")
        with longest_turn() as longest:
            response = await guarded.admin.ask(WriteTxnMarkersRequest(markers=markers), 1, WriteTxnMarkersResponse)
        assert [each.producer_id for each in response.markers] == list(range(NUMBER))
        for marker in response.markers:
            answered = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in marker.topics]
            assert answered == [("t", [0, 1]), ("u", [0])]
        assert {topic.partitions[0].error_code for marker in response.markers for topic in marker.topics[:1]} == {0}
        assert longest.calls < NUMBER + CALLS_OF_A_TURN, "the end, when all of them are committed, is one step"

    with_authorizer(scenario)


def acl_of(number: int) -> tuple[ResourcePattern, AclEntry]:
    pattern = ResourcePattern(ResourceType.TOPIC, f"t{number % 20}")
    return pattern, AclEntry(f"User:{number}", "*", Operation.READ, Permission.ALLOW)


def test_filters_of_access_controls() -> None:
    def matching(number: int) -> DeleteAclsFilter:
        return DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter=f"t{number % 40}", pattern_type_filter=3,
            principal_filter=f"User:{number}", operation=1, permission_type=1,
        )  # fmt: skip

    async def scenario(guarded: Guarded) -> None:
        ask = guarded.admin.ask
        creations = [
            AclCreation(pattern.type, pattern.name, pattern.pattern_type, entry.principal, "*", entry.operation, 3)
            for pattern, entry in map(acl_of, range(100))
        ]
        created = await ask(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
        assert {each.error_code for each in created.results} == {0}
        with longest_turn() as longest:
            described = await ask(
                DescribeAclsRequest(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1),
                3,
                DescribeAclsResponse,
            )
            assert sum(len(resource.acls) for resource in described.resources) == 100
            filters = [matching(number) for number in range(900)]
            deleted = await ask(DeleteAclsRequest(filters=filters), 3, DeleteAclsResponse)
        found = [[each.principal for each in result.matching_acls] for result in deleted.filter_results]
        wanted = [[f"User:{number}"] if number < 100 and number % 40 < 20 else [] for number in range(900)]
        assert found == wanted
        assert longest.calls < 500, "of 900 filters for 100 entries"

    with_authorizer(scenario)


# -- once


def test_what_is_named_again_is_described_once() -> None:
    async def scenario(guarded: Guarded) -> None:
        ask = guarded.admin.ask
        groups = await ask(DescribeGroupsRequest(groups=["g", "h", "g"]), 5, DescribeGroupsResponse)
        assert [group.group_id for group in groups.groups] == ["g", "h"]
        consumers = await ask(ConsumerGroupDescribeRequest(group_ids=["g", "h", "g"]), 1, ConsumerGroupDescribeResponse)
        assert [group.group_id for group in consumers.groups] == ["g", "h"]
        transactions = await ask(
            DescribeTransactionsRequest(transactional_ids=["t", "u", "t"]), 0, DescribeTransactionsResponse
        )
        assert [each.transactional_id for each in transactions.transaction_states] == ["t", "u"]

    with_authorizer(scenario)


def test_settings_are_looked_up_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other: object) -> bool:
            Watched.compared += 1
            return str.__eq__(self, other)

        def __hash__(self) -> int:
            return str.__hash__(self)

    async def scenario(guarded: Guarded) -> None:
        settings = describe_configs._settings_of(DescribeConfigsResource(4, "0", None), guarded.broker._services)
        monkeypatch.setattr(describe_configs, "_settings_of", lambda *_: settings)
        monkeypatch.setattr(describe_configs, "require_config_permission", lambda *_: None)
        wanted = DescribeConfigsResource(4, "0", [*map(Watched, NAMES), "log.dirs"])
        result = describe_configs._describe(wanted, DescribeConfigsRequest(), SimpleNamespace(services=None))  # type: ignore[arg-type]
        assert [each.name for each in result.configs] == ["log.dirs"]
        assert Watched.compared < NUMBER

    with_authorizer(scenario)
