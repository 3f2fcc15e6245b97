"""Brokers as processes with two log directories each, on two disks as it were."""

from collections.abc import Mapping
from pathlib import Path

from tests.processes.cluster import Cluster
from tests.processes.coordination import Coordination


class TwoDisks(Cluster):
    def __init__(
        self, directory: Path, coordination: Coordination, first_port: int, settings: Mapping[str, str]
    ) -> None:
        self._directory = directory
        self._more_settings = dict(settings)
        super().__init__(directory, coordination, first_port)

    def disks(self, broker_id: int) -> tuple[Path, Path]:
        return self._directory / f"broker-{broker_id}", self._directory / f"broker-{broker_id}-second"

    def _settings(self, broker_id: int) -> dict[str, str]:
        log_dirs = ",".join(map(str, self.disks(broker_id)))
        return super()._settings(broker_id) | {"log.dirs": log_dirs} | self._more_settings
