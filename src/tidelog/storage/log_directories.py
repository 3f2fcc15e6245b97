"""Log directories of a broker, all of log.dirs: checks at startup, choice for new logs, and failures (R5)."""

import asyncio
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from tidelog.errors import KafkaStorageError
from tidelog.storage.log_directory import (
    META_PROPERTIES,
    NO_BROKER_EPOCH,
    Identity,
    LogDirectory,
    StorageContext,
    StorageSetupError,
)
from tidelog.types import TopicPartition

OfflineCallback = Callable[[LogDirectory, AbstractSet[TopicPartition]], None]


class LogDirectories:
    """A broker works as long as one of its log dirs is online. Call every method on the event loop."""

    def __init__(self, paths: tuple[str, ...], context: StorageContext) -> None:
        self.all = [LogDirectory(path, context) for path in paths]
        self.on_offline: list[OfflineCallback] = []
        """Called on the event loop with each log dir that failed and the partitions in it."""

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self.all)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.all if directory.is_online]

    # ---- startup

    def acquire(self, identity: Identity) -> None:
        """Lock all log dirs. Raises StorageSetupError if one is in use, or belongs to another cluster or broker."""
        for directory in self.all:
            directory.guarded(directory.acquire)
        for directory in self.all:
            directory.guarded(directory.check_identity, identity.cluster_id, identity.broker_id)
        self._check_one_cluster()

    def check_usable(self) -> None:
        self._check_different_ids()
        self.check_one_is_online()

    def write_identity(self, identity: Identity) -> None:
        for directory in self.all:
            directory.guarded(directory.write_identity, identity.cluster_id, identity.broker_id)

    def _check_one_cluster(self) -> None:
        known = {directory.cluster_id: directory.path for directory in self.all if directory.cluster_id}
        if len(known) > 1:
            listed = ", ".join(f"{path} of {cluster_id}" for cluster_id, path in known.items())
            raise StorageSetupError(f"the log dirs belong to different clusters: {listed}")

    def _check_different_ids(self) -> None:
        """KIP-858: with a copied meta.properties an empty disk would look like the original one (R42)."""
        known: dict[str, str] = {}
        for directory in self.all:
            other = known.setdefault(directory.directory_id or directory.path, directory.path)
            if other != directory.path:
                raise StorageSetupError(
                    f"the log dirs {other} and {directory.path} have the same directory.id ({META_PROPERTIES}):"
                    " remove that line from the copied file"
                )

    def check_one_is_online(self) -> None:
        if not self.online:
            reasons = "; ".join(f"{directory.path}: {directory.error}" for directory in self.all)
            raise StorageSetupError(f"no log dir can be used: {reasons}")

    def release(self) -> None:
        for directory in self.all:
            directory.release()

    def find(self, path: str) -> LogDirectory | None:
        """The log dir with this absolute path; a slash at the end makes no difference."""
        return next((each for each in self.all if each.path.rstrip("/") == path.rstrip("/")), None)

    # ---- identity

    @property
    def cluster_id(self) -> str | None:
        """The cluster id in meta.properties; None if no log dir has one."""
        return next((directory.cluster_id for directory in self.all if directory.cluster_id), None)

    @property
    def online_ids(self) -> tuple[str, ...]:
        return tuple(each.directory_id for each in self.all if each.is_online and each.directory_id)

    @property
    def companion_ids(self) -> list[str]:
        """Ids of all log dirs, also of offline ones. Empty for a single one, which contains the marker itself."""
        return [each.directory_id for each in self.all if each.directory_id] if self.all[1:] else []

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last clean shutdown. As in Kafka: only if all log dirs are present and agree.

        It includes log dirs that were removed from log.dirs since: their records are lost on this broker.
        """
        epochs = {each.previous_broker_epoch if each.is_online else NO_BROKER_EPOCH for each in self.all}
        had = frozenset[str]().union(*(each.directories_before for each in self.all))
        return epochs.pop() if len(epochs) == 1 and had.issubset(self.online_ids) else NO_BROKER_EPOCH

    # ---- new logs

    def choose_for(self, name: str, preferred: LogDirectory | None = None) -> LogDirectory:
        """The preferred log dir, else the one with the fewest partitions, for a new log with this directory name.

        If an earlier creation failed, the log dir where it began: a broker does not start with a partition in two.
        """
        online = self.online
        if not online:
            raise KafkaStorageError("all log dirs are offline")
        for directory in online:
            try:
                if directory.context.disk.exists(directory.file(name)):
                    return directory
            except OSError as error:
                raise directory.fail(error) from error
        if preferred is not None and preferred.is_online:
            return preferred
        return min(online, key=lambda candidate: len(candidate.logs))

    def sync_renames(self) -> None:
        """Before a log is created: after a power cut no deleted log of its partition may be in another log dir.

        Waits for the disk on the event loop, but once for all logs that were deleted since.
        """
        for directory in self.online if self.all[1:] else []:
            if directory.has_unsynced_renames:
                try:
                    directory.context.disk.sync_directory(directory.path)
                except OSError as error:
                    raise directory.fail(error) from error
                directory.has_unsynced_renames = False

    # ---- failures

    def report_failures(self) -> None:
        """From now on call `on_offline` for each log dir that fails."""
        loop = asyncio.get_running_loop()

        def report(directory: LogDirectory) -> None:  # may be called in a worker
            loop.call_soon_threadsafe(self._notify_offline, directory)

        for directory in self.all:
            directory.on_failure = report

    def _notify_offline(self, directory: LogDirectory) -> None:
        # Only the future log of a moving partition may be here: the partition itself stays online (R30). In a fixed
        # order, unlike a set.
        partitions = dict.fromkeys(each for each, log in directory.logs.items() if not log.is_future).keys()
        for callback in self.on_offline:
            callback(directory, partitions)
