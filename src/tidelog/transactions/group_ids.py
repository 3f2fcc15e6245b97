"""The names of transaction groups and their members: transactional ids of a form of their own.

`tidelog-group-<name>` is a group. `tidelog-group-<name>#<producer id>.<epoch>-<member>` is one of its members, with the
producer id and the epoch that the group got when it was opened. A group and its members have one coordinator.
"""

import re
from typing import NamedTuple

from tidelog.errors import InvalidRequest
from tidelog.transactions.transaction import ProducerIdentity

GROUP_PREFIX = "tidelog-group-"
MEMBER_SEPARATOR = "#"

_MEMBER = re.compile(
    rf"({GROUP_PREFIX}[^{MEMBER_SEPARATOR}]+){MEMBER_SEPARATOR}(\d{{1,19}})\.(\d{{1,5}})-(.+)", re.DOTALL
)


class MemberId(NamedTuple):
    group_id: str
    identity: ProducerIdentity
    """Of the group, when the member's driver opened it."""


def coordinator_key(transactional_id: str) -> str:
    """What decides which broker coordinates an id: members follow their group."""
    if transactional_id.startswith(GROUP_PREFIX):
        return transactional_id.partition(MEMBER_SEPARATOR)[0]
    return transactional_id


def is_group(transactional_id: str) -> bool:
    return transactional_id.startswith(GROUP_PREFIX) and MEMBER_SEPARATOR not in transactional_id


def parse_member(transactional_id: str) -> MemberId | None:
    if not transactional_id.startswith(GROUP_PREFIX):
        return None
    match = _MEMBER.fullmatch(transactional_id)
    if match is None:
        return None
    return MemberId(match[1], ProducerIdentity(int(match[2]), int(match[3])))


def check_group_id(transactional_id: str) -> None:
    """Raises InvalidRequest for an id that begins like a group's and is neither a group's nor a member's."""
    is_member_like = transactional_id.startswith(GROUP_PREFIX) and MEMBER_SEPARATOR in transactional_id
    if transactional_id == GROUP_PREFIX or (is_member_like and parse_member(transactional_id) is None):
        raise InvalidRequest(
            f"{transactional_id!r} begins like the id of a transaction group, which is {GROUP_PREFIX}<name>"
            f" for the group and {GROUP_PREFIX}<name>#<producer id>.<epoch>-<member> for a member"
        )
