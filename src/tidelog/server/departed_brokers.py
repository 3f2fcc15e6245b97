"""Brokers that left the cluster a moment ago, with the addresses that they had."""

from collections.abc import Iterable

from tidelog.cluster.image import BrokerRegistration, ClusterImage
from tidelog.runtime.clock import Clock
from tidelog.types import BrokerId

REMEMBERED_S = 5.0
"""Long enough for clients that lost a connection to ask where their partitions are now."""


class DepartedBrokers:
    """Follows the image of the cluster.

    librdkafka (2.10 and newer) destroys its handle of a broker as soon as a Metadata response does not list it. If the
    same response moves a partition away from that broker, the two cross, the partition is left without a leader, and
    is asked for again only after a second. A response that still lists the broker spares the client that second.
    """

    def __init__(self, clock: Clock, image: ClusterImage) -> None:
        self._clock = clock
        self._live = image.brokers
        self._departed: dict[BrokerId, tuple[float, BrokerRegistration]] = {}

    def on_image(self, image: ClusterImage) -> None:
        earlier, self._live = self._live, image.brokers
        if earlier is image.brokers:
            return
        now = self._clock.monotonic()
        self._departed |= {each.id: (now, each) for each in earlier.values() if each.id not in image.brokers}
        for broker_id in self._departed.keys() & image.brokers.keys():
            del self._departed[broker_id]

    def among(self, broker_ids: Iterable[BrokerId]) -> list[BrokerRegistration]:
        """Those of `broker_ids` that left a moment ago."""
        if not self._departed:
            return []
        since = self._clock.monotonic() - REMEMBERED_S
        self._departed = {key: found for key, found in self._departed.items() if found[0] > since}
        return [self._departed[each][1] for each in sorted(self._departed.keys() & set(broker_ids))]
