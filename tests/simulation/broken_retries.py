"""Rules about trying again (R43, R5), each taken out for the length of a block."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import ANY, patch

from tidelog.client.network.in_flight import ConnectionLost
from tidelog.controller import term
from tidelog.controller.channels import _BrokerChannel
from tidelog.controller.events import Event, LeaderAndIsrResponseReceived, TopicDeletionStopReplicaResponseReceived
from tidelog.controller.response_events import leader_and_isr_response_event, stop_replica_response_event
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.structs import Request, Response
from tidelog.replication import follower
from tidelog.server.membership import Membership
from tidelog.types import BrokerId


@contextmanager
def rejections_taken_for_responses() -> Iterator[None]:
    """R43: a broker does not wait until it knows its own epoch, and the controller takes its refusal for an answer."""

    async def ask_once(self: _BrokerChannel, request: Request) -> Response:
        while True:
            try:
                response = await self._connection.ask(request, Response, self._request_timeout_s)
            except ConnectionLost as error:
                self._mark_unreachable(error)
                await asyncio.sleep(self._backoff_s)
                continue
            self._mark_reachable()
            return response

    async def not_at_all(self: Membership, timeout_s: float) -> None: ...

    with (
        patch.object(_BrokerChannel, "_send_until_accepted", ask_once),
        patch.object(Membership, "wait_until_registered", not_at_all),
    ):
        yield


@contextmanager
def rejected_roles_forgotten() -> Iterator[None]:
    """R43: a broker that does not know its own epoch yet refuses its roles, and never gets them again."""

    def forget(broker_id: BrokerId, request: LeaderAndIsrRequest, response: Response) -> LeaderAndIsrResponseReceived:
        event = leader_and_isr_response_event(broker_id, request, response)
        assert isinstance(event, LeaderAndIsrResponseReceived)
        return replace(event, rejected=frozenset())

    with rejections_taken_for_responses(), patch.object(term, "leader_and_isr_response_event", forget):
        yield


@contextmanager
def deletion_answers_of_any_attempt() -> Iterator[None]:
    """R43: an answer counts for the attempt of now, and who refused is not asked again."""

    def of_any(broker_id: BrokerId, request: StopReplicaRequest, response: Response, attempt: int) -> Event | None:
        event = stop_replica_response_event(broker_id, request, response, attempt)
        if not isinstance(event, TopicDeletionStopReplicaResponseReceived):
            return event
        return replace(event, attempt=ANY, failed=event.failed | event.rejected, rejected=frozenset())

    with rejections_taken_for_responses(), patch.object(term, "stop_replica_response_event", of_any):
        yield


@contextmanager
def followers_given_up_without_descriptors() -> Iterator[None]:
    """R5: one EMFILE, and a follower does not fetch the partition any more."""
    with patch.object(follower, "is_transient", lambda error: False):
        yield
