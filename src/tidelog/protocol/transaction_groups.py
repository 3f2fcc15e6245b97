"""How the transactional ids of a transaction group look: many producers, one decision.

The group is `tidelog-group-<name>`. Its members are `tidelog-group-<name>#<producer id>.<epoch>-<member>`, with
producer id and epoch of the group as it is open: a member of an earlier one can be told by its name.
"""

import re
from typing import NamedTuple

PREFIX = "tidelog-group-"
FEATURE = "tidelog.transaction.groups"
"""Told by brokers that have them, among their supported features."""

_MEMBER = re.compile(rf"({re.escape(PREFIX)}[^#]+)#(\d{{1,19}})\.(\d{{1,5}})-(.+)", re.DOTALL)


class MemberId(NamedTuple):
    group_id: str
    producer_id: int
    producer_epoch: int
    member: str

    def __str__(self) -> str:
        return f"{self.group_id}#{self.producer_id}.{self.producer_epoch}-{self.member}"


def group_id(name: str) -> str:
    if not name or "#" in name:
        raise ValueError(f"a transaction group needs a name without '#', not {name!r}")
    return PREFIX + name


def is_group(transactional_id: str) -> bool:
    return transactional_id.startswith(PREFIX) and "#" not in transactional_id and transactional_id != PREFIX


def parse_member(transactional_id: str) -> MemberId | None:
    """None for an id that is not of a member."""
    found = _MEMBER.fullmatch(transactional_id)
    if found is None:
        return None
    group, producer_id, producer_epoch, member = found.groups()
    return MemberId(group, int(producer_id), int(producer_epoch), member)


def coordinator_key(transactional_id: str) -> str:
    """By which a coordinator is chosen: members belong to that of their group."""
    member = parse_member(transactional_id)
    return transactional_id if member is None else member.group_id
