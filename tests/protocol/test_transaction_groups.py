import pytest

from tidelog.protocol.transaction_groups import (
    GroupId,
    MemberId,
    PlainId,
    coordinator_key,
    group_id,
    member_id,
    parse_transactional_id,
)


def test_members_belong_to_the_coordinator_of_their_group() -> None:
    group = group_id("orders")
    member = member_id(group, 1234, 7, "3.0")
    assert parse_transactional_id(group) == GroupId(group)
    assert parse_transactional_id(member) == MemberId(member, group, 1234, 7)
    assert coordinator_key(member) == coordinator_key(group) == group


@pytest.mark.parametrize(
    "transactional_id", ["orders#1.2-3", "tidelog-group-", "tidelog-group-#1.2-3", "tidelog-group-a#x.2-3", "a", ""]
)
def test_ids_of_others_are_their_own_keys(transactional_id: str) -> None:
    assert isinstance(parse_transactional_id(transactional_id), PlainId)
    assert coordinator_key(transactional_id) == transactional_id


@pytest.mark.parametrize("name", ["", "a#b"])
def test_a_group_needs_a_name_from_which_members_get_theirs(name: str) -> None:
    with pytest.raises(ValueError, match="without '#'"):
        group_id(name)


def test_numbers_that_no_producer_has_make_no_member() -> None:
    assert isinstance(parse_transactional_id(f"tidelog-group-copies#{'9' * 5000}.0-task"), PlainId)
    assert isinstance(parse_transactional_id("tidelog-group-copies#1.123456-task"), PlainId)
