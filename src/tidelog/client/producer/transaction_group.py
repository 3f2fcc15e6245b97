"""Transaction group: many producers, one commit. This is the driver; members write with a TransactionalIdentity."""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.network.connection import ClientConnection
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.producer.transactional_identity import TransactionalIdentity
from tidelog.client.routing.coordinators import Coordinators
from tidelog.errors import UnsupportedVersion, raise_error
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.transaction_groups import FEATURE, group_id, member_id

NO_BATCH = -1


class OpenGroup(NamedTuple):
    """An opened group, which the driver passes to its tasks."""

    group_id: str
    producer_id: int
    producer_epoch: int
    last_batch_id: int
    """The last committed batch; -1 if there is none."""

    def member_id(self, member: str) -> str:
        return member_id(self.group_id, self.producer_id, self.producer_epoch, member)


class TransactionGroup:
    """The last driver that opened the group owns it; members of an earlier driver are fenced."""

    def __init__(self, coordinators: Coordinators, name: str, *, timeout_s: float, transaction_timeout_ms: int) -> None:
        self._identity = TransactionalIdentity(
            coordinators, group_id(name), timeout_s=timeout_s, transaction_timeout_ms=transaction_timeout_ms
        )

    async def is_supported(self) -> bool:
        """Whether the brokers support transaction groups. Others would treat the ids as ordinary transactional ids."""

        async def attempt(connection: ClientConnection) -> bool:
            return FEATURE in connection.supported_features

        return await self._identity.ask_coordinator("asking for transaction groups", attempt)

    async def open(self) -> OpenGroup:
        """Raises UnsupportedVersion if the brokers do not support transaction groups."""
        if not await self.is_supported():
            raise UnsupportedVersion("the brokers do not support transaction groups")
        response = await self._identity.initialize()
        return OpenGroup(
            self._identity.transactional_id, response.producer_id, response.producer_epoch, response.group_batch_id
        )

    async def commit(self, opened: OpenGroup, batch_id: int, winners: Iterable[str]) -> None:
        """Commit the writes of the winners and the batch id; writes of all other members are aborted.

        No effect if the batch is committed already.
        """
        await self._end(opened, is_committed=True, batch_id=batch_id, winners=list(winners))

    async def abort(self, opened: OpenGroup) -> None:
        await self._end(opened, is_committed=False, batch_id=NO_BATCH, winners=[])

    async def _end(self, opened: OpenGroup, *, is_committed: bool, batch_id: int, winners: list[str]) -> None:
        request = EndTxnRequest(
            transactional_id=opened.group_id,
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            committed=is_committed,
            group_batch_id=batch_id,
            group_winners=winners,
        )
        what = f"{'committing' if is_committed else 'aborting'} transaction group {opened.group_id}"

        async def attempt(connection: ClientConnection) -> None:
            response = await connection.ask(request, EndTxnResponse, timeout_s=self._identity.timeout_s)
            raise_error(response.error_code, what)

        await self._identity.ask_coordinator(what, attempt)


def member_identity(
    coordinators: Coordinators, opened: OpenGroup, member: str, *, timeout_s: float, transaction_timeout_ms: int
) -> TransactionalIdentity:
    """Identity of a member: call `initialize` and `begin`, then write. The driver commits or aborts."""
    return TransactionalIdentity(
        coordinators, opened.member_id(member), timeout_s=timeout_s, transaction_timeout_ms=transaction_timeout_ms
    )


def shared_identity(
    coordinators: Coordinators, transactional_id: str, identity: ProducerIdAndEpoch, *, timeout_s: float
) -> TransactionalIdentity:
    """Identity of a task that writes as its driver: no two tasks may write to the same partition."""
    shared = TransactionalIdentity(coordinators, transactional_id, timeout_s=timeout_s, transaction_timeout_ms=0)
    shared.set_identity(identity.producer_id, identity.producer_epoch)
    return shared
