"""Coordinators: who coordinates what, and how groups are listed, described and deleted."""

from compat.answers.conversation import Conversation, chapter, wait_until
from compat.answers.requests import heartbeat, join, leave, offset_commit, sync
from tidelog.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

GROUP, TRANSACTION, SHARE_GROUP = 0, 1, 2
SINGLE_VERSIONS = range(4)
BATCHED_VERSIONS = range(4, 7)

NOT_YET = {CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code}


def find_coordinators(talk: Conversation, key_type: int, *keys: str) -> None:
    """Waits until there is one: the topic behind it is created when it is first asked for."""

    def is_found() -> bool:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        response = talk.ask_quietly(request, 6, FindCoordinatorResponse)
        return all(each.error_code == 0 for each in response.coordinators)

    wait_until(is_found, "there is a coordinator")
    wait_until(lambda: _has_loaded(talk, key_type, list(keys)), "the coordinator has loaded")


def _has_loaded(talk: Conversation, key_type: int, keys: list[str]) -> bool:
    """The broker that is found may still have to learn that it is the coordinator, and load its partition."""
    found: list[int] = []
    if key_type == GROUP:
        groups = talk.ask_quietly(DescribeGroupsRequest(groups=keys), 5, DescribeGroupsResponse)
        found = [each.error_code for each in groups.groups]
        found += [talk.ask_quietly(heartbeat(key, 1, "nobody"), 4, HeartbeatResponse).error_code for key in keys]
    elif key_type == TRANSACTION:
        request = DescribeTransactionsRequest(transactional_ids=keys)
        transactions = talk.ask_quietly(request, 0, DescribeTransactionsResponse)
        found = [each.error_code for each in transactions.transaction_states]
    return NOT_YET.isdisjoint(found)


@chapter("coordinators")
def coordinators(talk: Conversation) -> None:
    for key_type in (GROUP, TRANSACTION):
        find_coordinators(talk, key_type, "somebody")
    for version in SINGLE_VERSIONS:
        for what, key in (("somebody", "somebody"), ("nobody", "")):
            talk.ask(f"who coordinates group {what}, v{version}", FindCoordinatorRequest(key=key), version)
    for version in (1, 3):
        for key_type in (TRANSACTION, SHARE_GROUP, 3, -1):
            request = FindCoordinatorRequest(key="", key_type=key_type)
            talk.ask(f"who coordinates key '' of type {key_type}, v{version}", request, version)
            request = FindCoordinatorRequest(key="x", key_type=key_type)
            if key_type != SHARE_GROUP:
                talk.ask(f"who coordinates key x of type {key_type}, v{version}", request, version)
    for version in BATCHED_VERSIONS:
        for key_type in (GROUP, TRANSACTION, 3, -1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "", "b", "a"])
            talk.ask(f"who coordinates some keys of type {key_type}, v{version}", request, version)
        talk.ask(f"who coordinates nothing, v{version}", FindCoordinatorRequest(key_type=GROUP), version)
    for keys in (["x"], ["a:b"], ["group:AAAAAAAAAAAAAAAAAAAAAA:x"], [""]):
        request = FindCoordinatorRequest(key_type=SHARE_GROUP, coordinator_keys=keys)
        talk.ask(f"who coordinates {keys} of share groups, v6", request, 6)
        talk.ask(f"who coordinates {keys} of share groups, v5", request, 5)


@chapter("listing, describing and deleting groups")
def administration(talk: Conversation) -> None:
    find_coordinators(talk, GROUP, "somebody")
    empty, stable, plain = talk.fresh("empty"), talk.fresh("stable"), talk.fresh("plain")
    member_id = talk.ask("a member of the group to be empty", join(empty), 3).member_id
    talk.name(member_id, "of the empty group")
    talk.ask("it leaves", leave(empty, member_id=member_id), 1)
    joined = talk.ask("a member of the stable group", join(stable), 3)
    talk.name(joined.member_id, "member")
    talk.ask("it is in sync", sync(stable, 1, joined.member_id, {joined.member_id: b"all"}), 3)
    talk.ask("offsets of the plain group", offset_commit(plain, {}), 9)
    ours = (empty, stable, plain)

    def listed(what: str, version: int, states: list[str] | None = None, types: list[str] | None = None) -> None:
        request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
        response = talk.ask_quietly(request, version, ListGroupsResponse)
        response.groups = sorted((one for one in response.groups if one.group_id in ours), key=lambda one: one.group_id)
        talk.note(f"which groups there are, {what}, v{version}", response)

    for version in range(6):
        listed("all", version)
    for states in (["Stable"], ["stable", "EMPTY"], ["Nonsense"], ["Nonsense", "Empty"], [""], ["Unknown"]):
        listed(f"in states {states}", 4, states)
        listed(f"in states {states}", 5, states)
    for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"], ["nonsense"], ["nonsense", "classic"], [""]):
        listed(f"of types {types}", 5, types=types)
    for version in range(7):
        request = DescribeGroupsRequest(groups=[stable, empty, plain, "nobody", "", stable])
        talk.ask(f"what groups are like, v{version}", request, version)
        with_rights = DescribeGroupsRequest(groups=[stable, "nobody"], include_authorized_operations=True)
        talk.ask(f"what groups are like, and who may do what, v{version}", with_rights, version)
        talk.ask(f"what no groups are like, v{version}", DescribeGroupsRequest(), version)
    for version in range(3):
        impossible = DeleteGroupsRequest(groups_names=[stable, "nobody", "", "nobody"])
        talk.ask(f"delete groups that cannot be, v{version}", impossible, version)
        talk.ask(f"delete no groups, v{version}", DeleteGroupsRequest(), version)
    talk.ask("delete a group, twice", DeleteGroupsRequest(groups_names=[empty, empty]), 2)
    talk.ask("delete a group that is gone", DeleteGroupsRequest(groups_names=[empty]), 2)
    talk.ask("what the deleted group is like", DescribeGroupsRequest(groups=[empty]), 5)
