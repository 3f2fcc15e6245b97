"""Asks all along what a group has committed.

With our own client: librdkafka's aborts its process when the coordinator dies while such a question is under way.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from threading import Thread
from typing import Self

from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork

INTERVAL_S = 0.05
TIMEOUT_S = 2.0
MAX_FRAME_BYTES = 1 << 24


class CommitWatch:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._is_ended = False
        self.observed: dict[int, list[int]] = defaultdict(list)
        self._thread = Thread(target=lambda: asyncio.run(self._watch()), name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended = True
        self._thread.join()

    async def _watch(self) -> None:
        addresses = parse_bootstrap(self._bootstrap)
        async with Cluster(SocketNetwork(MAX_FRAME_BYTES), addresses, SystemRandomness()) as cluster:
            admin = GroupAdmin(cluster, timeout_s=TIMEOUT_S)
            while not self._is_ended:
                with contextlib.suppress(KafkaError, ConnectionLost, GaveUp):
                    for (_, partition), committed in (await admin.offsets(self._group)).items():
                        self.observed[partition].append(committed.offset)
                await asyncio.sleep(INTERVAL_S)

    def committed(self) -> dict[int, int]:
        return {partition: self.observed[partition][-1] for partition in list(self.observed)}

    def is_beyond(self, wanted: Mapping[int, int]) -> bool:
        committed = self.committed()
        return all(committed.get(partition, 0) >= offset for partition, offset in wanted.items())
