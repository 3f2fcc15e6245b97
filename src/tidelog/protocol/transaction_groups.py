"""Transactional ids, and those of transaction groups: many producers, one decision.

The group is `tidelog-group-<name>`. Its members are `tidelog-group-<name>#<producer id>.<epoch>-<member>`, with
producer id and epoch of the open group: members of an earlier group are recognised by their names.
"""

import re
from typing import NamedTuple, TypeAlias

PREFIX = "tidelog-group-"
FEATURE = "tidelog.transaction.groups"
"""Name of the feature by which brokers announce transaction groups in ApiVersions."""

_MEMBER = re.compile(rf"({re.escape(PREFIX)}[^#]+)#(\d{{1,19}})\.(\d{{1,5}})-.+", re.DOTALL)


class PlainId(NamedTuple):
    """Transactional id of an ordinary producer, which commits its own transactions."""

    text: str

    @property
    def coordinator_key(self) -> str:
        return self.text


class GroupId(NamedTuple):
    """Transactional id of a transaction group, used by the driver that opens and ends it."""

    text: str

    @property
    def coordinator_key(self) -> str:
        return self.text


class MemberId(NamedTuple):
    """Transactional id of a producer that writes for a transaction group."""

    text: str
    group_id: str
    producer_id: int
    producer_epoch: int
    """Producer id and epoch of the group as its driver opened it."""

    @property
    def coordinator_key(self) -> str:
        """Members belong to the coordinator of their group."""
        return self.group_id


TransactionalId: TypeAlias = PlainId | GroupId | MemberId


def group_id(name: str) -> str:
    if not name or "#" in name:
        raise ValueError(f"a transaction group needs a name without '#', not {name!r}")
    return PREFIX + name


def member_id(group_id: str, producer_id: int, producer_epoch: int, member: str) -> str:
    return f"{group_id}#{producer_id}.{producer_epoch}-{member}"


def parse_transactional_id(text: str) -> TransactionalId:
    if not text.startswith(PREFIX) or text == PREFIX:
        return PlainId(text)
    if "#" not in text:
        return GroupId(text)
    found = _MEMBER.fullmatch(text)
    if found is None:
        return PlainId(text)
    group, producer_id, producer_epoch = found.groups()
    return MemberId(text, group, int(producer_id), int(producer_epoch))


def coordinator_key(transactional_id: str) -> str:
    """Key by which the coordinator is chosen."""
    return parse_transactional_id(transactional_id).coordinator_key
