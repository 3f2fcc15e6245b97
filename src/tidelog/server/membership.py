"""The broker's place in its cluster: a session with the store, and what only a member may do there."""

from dataclasses import dataclass

from tidelog.cluster import znodes
from tidelog.cluster.image import Broker, ClusterImage
from tidelog.controller.configs import ConfigAdministration
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.registration import ControllerTerm, claim_controller, register_broker
from tidelog.controller.topics import TopicAdministration
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import Randomness
from tidelog.server.cluster_state import ClusterState
from tidelog.store.interface import Store


class NotAlone(Exception):
    """Another broker is controller of this store."""

    def __init__(self) -> None:
        super().__init__("another broker uses this coordination store; clusters of several brokers are not supported")


async def check_alone(store: Store) -> None:
    """To be refused before anything is written; `join` decides."""
    if await store.exists(znodes.CONTROLLER) is not None:
        raise NotAlone


@dataclass(frozen=True, slots=True)
class Membership:
    """Ends with the session; a broker that goes on joins again."""

    store: Store
    broker: Broker
    term: ControllerTerm
    topics: TopicAdministration
    configs: ConfigAdministration
    producer_ids: ProducerIds

    @classmethod
    async def join(
        cls, store: Store, broker: Broker, cluster: ClusterState, clock: Clock, randomness: Randomness
    ) -> "Membership":
        registered = await register_broker(store, broker, clock)
        term = await claim_controller(store, broker.id, clock)
        if term is None:
            raise NotAlone

        def image() -> ClusterImage:
            return cluster.image

        cluster.apply(image().with_brokers({**image().brokers, broker.id: registered}).with_controller(broker.id))
        return cls(
            store,
            registered,
            term,
            TopicAdministration(store, randomness, lambda: cluster.settings, image, term),
            ConfigAdministration(store, broker.id, lambda: cluster.settings, image),
            ProducerIds(store, broker.id),
        )
