"""Workspace: the cluster as one user sees it, with that user's credentials, and what the console keeps of it."""

import asyncio

from tidelog.client.routing.cluster import Cluster
from tidelog.console.broker_metrics import BrokerMetrics
from tidelog.console.changes import Changes, LocalCluster
from tidelog.console.groups import Groups
from tidelog.console.observer import Observer
from tidelog.console.topics import Topics


class Workspace:
    def __init__(self, cluster: Cluster, local: LocalCluster | None = None) -> None:
        self.cluster = cluster
        self.observer = Observer(cluster, BrokerMetrics())
        self.changes = Changes(cluster, local)
        self.topics = Topics(self.observer)
        self.groups = Groups(cluster, self.observer.samples)
        self.observer.sample_lags = self.groups.sample_lags
        self._task: asyncio.Task[None] | None = None

    @property
    def title(self) -> str:
        cluster_id = self.observer.snapshot.cluster_id or self.cluster.metadata.cluster_id
        return f"cluster {cluster_id}" if cluster_id else "cluster"

    def start(self) -> "asyncio.Task[None]":
        """Observes the cluster until the task is cancelled."""
        self._task = asyncio.get_running_loop().create_task(self.observer.run())
        return self._task

    def close(self) -> None:
        """Ends the streams of its pages, and the connections."""
        self.observer.close()
        if self._task is not None:
            self._task.cancel()
        self.cluster.close()
