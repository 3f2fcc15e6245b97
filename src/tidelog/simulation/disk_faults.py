"""Disk faults: data loss within the limits of I4, and operations that fail or are slow."""

import errno

from tidelog.runtime.memory_disk import NEEDS_DESCRIPTOR, PLENTY_BYTES
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import SimulatedWorkers
from tidelog.simulation.cluster import LOG_DIRECTORIES
from tidelog.simulation.fault_scene import Faults, FaultScene
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.lost_disks import LostDisks
from tidelog.simulation.untimely_losses import UntimelyLosses
from tidelog.types import BrokerId

SLOW_DISK_S = 3.0
FULL_DISK_ROOM_BYTES = 2000
FAILING_OPERATIONS = ("append", "sync", "truncate", "rename", "write_file_atomically", "open", "read")


class DiskFaults:
    """Disks are lost, fail, fill up and are slow; brokers run out of descriptors."""

    def __init__(self, scene: FaultScene, lost_disks: LostDisks) -> None:
        self._scene = scene
        self._lost_disks = lost_disks
        self._randomness = SeededRandomness(scene.config.seed * 7919 + 2)
        self._untimely = UntimelyLosses(
            scene.cluster, scene.supervisor, lost_disks.may_lose, self._wipe_now, self._cut_power_now, scene.log_event
        )
        self.faults: Faults = {
            "power_cut": self._lose_disk,
            "lost_disk": self._lose_disk,
            "late_election": self._lose_disk_in_time,
            "last_standing": self._lose_disk_in_time,
            "disk_error": self._fail_disk,
            "disk_full": self._fill_disk,
            "failed_log_dir": self._fail_log_dir,
            "no_descriptors": self._take_descriptors,
            "short_stop": self._stop_short,
            "slow_disk": self._slow_disk,
        }

    def _lose_disk(self, event: FaultEvent) -> None:
        """Power loss or an empty disk. Both lose data, so I4 limits how many happen at a time."""
        broker_id = self._scene.target_broker(event)
        if not self._lost_disks.may_lose(broker_id):
            return
        if event.kind == "power_cut":
            self._scene.log_applied(event, f"cut the power of broker {broker_id}, for {event.for_s} s")
            self._cut_power(broker_id, event.for_s)
        else:
            self._scene.log_applied(event, f"broker {broker_id} loses its disk, for {event.for_s} s")
            self._wipe(broker_id, event.for_s)

    def _cut_power(self, broker_id: BrokerId, for_s: float = 0.0) -> None:
        self._lost_disks.lose(broker_id)
        self._scene.cluster.cut_power_badly(broker_id, self._randomness, self._scene.config.damage)
        self._scene.supervisor.set_down(broker_id)
        self._scene.supervisor.start_after(broker_id, for_s)

    def _wipe(self, broker_id: BrokerId, for_s: float = 0.0) -> None:
        self._lost_disks.lose(broker_id)
        self._scene.supervisor.kill(broker_id)
        self._scene.cluster.wipe(broker_id)
        self._scene.supervisor.set_down(broker_id)
        self._scene.supervisor.start_after(broker_id, for_s)

    def _lose_disk_in_time(self, event: FaultEvent) -> None:
        """Lose a disk at the worst moment."""
        roles = self._untimely.roles()
        if roles is None:
            return
        name, scenario = {
            "late_election": ("the next elected leader, late", self._untimely.elect_late),
            "last_standing": ("the last of three replicas", self._untimely.lose_the_last),
        }[event.kind]
        self._scene.log_applied(event, f"broker {roles.next_leader} is to lose its disk: {name}")
        self._scene.supervisor.spawn(scenario(roles, event))

    def _wipe_now(self, broker_id: BrokerId) -> None:
        self._scene.log_event(f"broker {broker_id} loses its disk")
        self._wipe(broker_id)

    def _cut_power_now(self, broker_id: BrokerId) -> None:
        self._scene.log_event(f"cut the power of broker {broker_id}")
        self._cut_power(broker_id)

    def _directory_of(self, event: FaultEvent) -> str:
        return LOG_DIRECTORIES[event.detail % self._scene.config.log_directories]

    def _fail_disk(self, event: FaultEvent) -> None:
        broker_id, directory = self._scene.target_broker(event), self._directory_of(event)
        operation = FAILING_OPERATIONS[event.detail // 10 % len(FAILING_OPERATIONS)]
        self._scene.log_applied(event, f"{operation} fails on {directory} of broker {broker_id}, for {event.for_s} s")
        self._inject(event, broker_id, errno.EIO, directory, (operation,))

    def _fail_log_dir(self, event: FaultEvent) -> None:
        """A whole log directory fails. Half of the brokers restart meanwhile, without it."""
        broker_id, directory = self._scene.target_broker(event), self._directory_of(event)
        self._scene.log_applied(event, f"{directory} of broker {broker_id} fails, for {event.for_s} s")
        self._inject(event, broker_id, errno.EIO, directory, ())
        if event.detail // 10 % 2 and broker_id in self._scene.supervisor.healthy:
            self._scene.kill_for(broker_id, event.for_s / 3)

    def _inject(
        self, event: FaultEvent, broker_id: BrokerId, error_number: int, path: str, operations: tuple[str, ...]
    ) -> None:
        disk = self._scene.cluster.machines[broker_id].disk
        fault = disk.inject(error_number, path, operations, calls_before=event.detail // 100 % 4)

        def end() -> None:
            disk.faults.remove(fault)
            self._scene.supervisor.restart_if_offline(broker_id)

        self._scene.repair_later(event, end)

    def _fill_disk(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        disk = self._scene.cluster.machines[broker_id].disk
        disk.capacity_bytes = disk.used_bytes + event.detail % FULL_DISK_ROOM_BYTES
        self._scene.log_applied(event, f"the disk of broker {broker_id} is full, for {event.for_s} s")

        def end() -> None:
            disk.capacity_bytes = PLENTY_BYTES
            self._scene.supervisor.restart_if_offline(broker_id)

        self._scene.repair_later(event, end)

    def _take_descriptors(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        self._scene.log_applied(event, f"broker {broker_id} has no descriptors left, for {event.for_s} s")
        self._inject(event, broker_id, errno.EMFILE, "", NEEDS_DESCRIPTOR)

    def _stop_short(self, event: FaultEvent) -> None:
        """A clean stop while the log of one partition cannot be closed because descriptors ran out."""
        broker_id = self._scene.target_broker(event)
        broker = self._scene.cluster.machines[broker_id].broker
        if broker_id in self._scene.supervisor.healthy and broker is not None:
            paths = sorted(partition.log.path for partition in broker.replicas)
            path = paths[event.detail % len(paths)] if paths else ""
            self._scene.log_applied(
                event, f"stop broker {broker_id}, for {event.for_s} s, without descriptors for {path}"
            )
            self._inject(event, broker_id, errno.EMFILE, path, NEEDS_DESCRIPTOR)
            self._scene.supervisor.stop(broker_id, event.for_s)

    def _slow_disk(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        workers = self._scene.cluster.machines[broker_id].workers
        if isinstance(workers, SimulatedWorkers):
            usual_s, workers.longest_delay_s = self._scene.config.longest_worker_delay_s, SLOW_DISK_S
            self._scene.log_applied(event, f"the disk of broker {broker_id} is slow, for {event.for_s} s")
            self._scene.repair_later(event, lambda: setattr(workers, "longest_delay_s", usual_s))
