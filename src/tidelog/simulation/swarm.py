"""Swarm configurations: the faults and kinds of work that one simulated run combines, drawn from its seed.

Every seed omits most faults and some kinds of work. Runs with everything are all alike; rare states are found where a
few kinds of faults meet without the others (Groce et al., "Swarm Testing", 2012).
"""

from dataclasses import dataclass

from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, MAGIC_POSITION
from tidelog.runtime.memory_disk import CrashDamage
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.drawing import Draw
from tidelog.simulation.storage_settings import StorageSettings, draw_storage

PROCESS_FAULTS = ("kill", "kill_all", "stop", "freeze", "kill_while_starting")
LINK_FAULTS = ("cut_link", "one_way_cut", "isolate", "isolate_and_kill", "cut_clients", "slow_link", "reset_link")
STORE_FAULTS = ("cut_store", "end_session", "store_step", "slow_store")
DISK_FAULTS = ("power_cut", "lost_disk", "disk_error", "disk_full", "no_descriptors", "slow_disk")
CLOCK_FAULTS = ("clock_jump",)
COMBINED_FAULTS = (
    "depose_controller",
    "lost_store",
    "turns",
    "unheard_failovers",
    "late_election",
    "last_standing",
    "late_joining",
    "late_rejoining",
    "short_stop",
)
FAULTS = PROCESS_FAULTS + LINK_FAULTS + STORE_FAULTS + DISK_FAULTS + CLOCK_FAULTS + COMBINED_FAULTS

ALL_FAULTS = (*FAULTS, "failed_log_dir")
"""Also the one that is drawn from a random source of its own."""

CONDITIONS = ("latency", "interleaved_workers", "clock_skew", "torn_writes", "lost_names", "flipped_bits")
"""Conditions of the whole run, or of its power cuts."""

WORK = (
    "topic_churn",
    "partition_growth",
    "settings_changes",
    "compaction",
    "retention",
    "delete_records",
    "elections",
    "unclean_elections",
    "rewinding_reads",
    "giving_up",
    "one_shot_writes",
    "transactions",
    "copying",
    "classic_groups",
    "consumer_groups",
)
"""Kinds of work besides writing, which is always included."""
REASSIGNMENTS = "reassignments"
REASSIGNMENTS_ONE_IN = 5
FOLLOWER_READS_ONE_IN = 4
DISK_MOVES = "disk_moves"
FAILED_LOG_DIR = "failed_log_dir"
DISKS_ONE_IN = 6
"""A run with either has two log directories."""
THROTTLES = "throttles"
THROTTLES_ONE_IN = 8
"""A run with throttles has reassignments, too."""
PIPELINED_WRITES = "pipelined_writes"
PIPELINED_WRITES_ONE_IN = 3
PIPELINED_TRANSACTIONS = "pipelined_transactions"
PIPELINED_TRANSACTIONS_ONE_IN = 6
OPTIONAL_WORK = (*WORK, REASSIGNMENTS, DISK_MOVES, THROTTLES, PIPELINED_WRITES, PIPELINED_TRANSACTIONS)
"""What is not in WORK, and storage settings, have random sources of their own, so that adding them did not change the
other draws of existing seeds."""
DISKS_SOURCE, THROTTLES_SOURCE, STORAGE_SOURCE, PIPELINES_SOURCE = 36, 48, 15, 16
"""Numbers of random sources. With the first two, most seeds that find known mistakes draw neither of them."""
ALWAYS_WORK = frozenset({"writes"})
WORK_ONE_IN = (3, 5, 8)
"""Each kind of work is in one run of this many; the seed chooses the number. Runs have few or many kinds of work."""

BASE_OFFSET_BYTES = 8
TROUBLED_S = (2.5, 60.0)
"""Shortest and longest time with faults. Most runs are short: half end before 5 s, one in ten lasts over 18 s."""
MIN_FAULTS = 5
"""In short runs, pauses between faults are shortened so that the average number of faults is twice this."""
BROKERS = (3, 3, 3, 3, 4, 5, 5, 6, 7)
REPLICATION_FACTOR = 3
MIN_IN_SYNC_REPLICAS = 2
LATENCIES_S = (0.0005, 0.005, 0.02)
STORE_LATENCIES_S = (0.0, 0.005, 0.05)
LAG_LIMITS_MS = (1000, 3000)
SEGMENTS_MS = (3000, 604_800_000)
MAX_PAUSES_MS = (50, 300, 1000, 2000, 4000)
"""Pauses between faults: without or with time to recover."""
WRITE_PAUSES_MS = (250, 600, 1200, 2400)
MAX_BURSTS = 30
"""In long runs, writers pause longer, so that each writes about twice this many bursts: as many as in 7 s."""
WORKER_DELAYS_S = (0.001, 0.02, 0.3)
MAX_SKEW_MS = 1_500_000
"""Maximum difference of two brokers is 50 minutes: records may be one hour ahead (`message.timestamp.after.max.ms`)."""
FLUSH_INTERVALS = (None, None, 1, 10)
"""`flush.messages` of the topics: never, after every record, after ten."""


@dataclass(frozen=True, slots=True)
class SwarmConfig:
    """All parameters of a run except its fault schedule."""

    seed: int
    brokers: int
    """Some may host no replica: a topic has three."""
    log_directories: int
    fault_duration_s: float
    faults: frozenset[str]
    conditions: frozenset[str]
    work: frozenset[str]
    latency_s: float
    store_latency_s: float
    longest_worker_delay_s: float
    clock_offsets_ms: tuple[int, ...]
    longest_pause_ms: int
    """Maximum pause between two faults."""
    write_pause_ms: int
    """Maximum pause of a writer between two bursts."""
    lag_limit_ms: int
    segment_ms: int
    flush_messages: int | None
    storage: StorageSettings
    balances_leaders: bool = False
    """Automatic preferred leader election with tolerance 0: in the end every preferred replica leads (R40)."""
    reads_followers: bool = False
    """Every broker is in its own rack, and so are clients: most consumers read from followers (R23)."""
    replication_factor: int = REPLICATION_FACTOR
    min_in_sync_replicas: int = MIN_IN_SYNC_REPLICAS

    @property
    def damage(self) -> CrashDamage:
        return CrashDamage(
            tears_writes="torn_writes" in self.conditions,
            loses_names="lost_names" in self.conditions,
            flips_bits="flipped_bits" in self.conditions,
            spares_byte=is_without_checksum,
        )

    @property
    def summary(self) -> str:
        faults = ", ".join(name for name in ALL_FAULTS if name in self.faults)
        conditions = ", ".join(name for name in CONDITIONS if name in self.conditions)
        work = ", ".join(name for name in OPTIONAL_WORK if name in self.work)
        return (
            f"{self.brokers} brokers with {self.log_directories} log directories each,"
            f" {self.fault_duration_s:g} s of faults;"
            f"{' reads from followers;' if self.reads_followers else ''}"
            f" faults: {faults or 'none'}; conditions: {conditions or 'none'}; work: {work or 'writing and reading'};"
            f" network {self.latency_s} s, store {self.store_latency_s} s, lag limit {self.lag_limit_ms} ms;"
            f" storage: {self.storage.summary}"
        )


def is_without_checksum(data: bytes | bytearray, position: int) -> bool:
    """Whether the byte is part of a batch's base offset, which no CRC covers.

    Recovery finds an error in most of them (tests/storage/test_recovery.py), but not in those of a compacted log.
    """
    start = 0
    while start <= position and start + HEADER_BYTES <= len(data) and data[start + MAGIC_POSITION] == MAGIC:
        if position < start + BASE_OFFSET_BYTES:
            return True
        length = int.from_bytes(data[start + BASE_OFFSET_BYTES : start + LENGTH_OVERHEAD_BYTES], "big", signed=True)
        if length <= 0:
            return False
        start += LENGTH_OVERHEAD_BYTES + length
    return False


def draw_config(seed: int) -> SwarmConfig:
    # Each aspect has its own random source, so that a new kind of work does not change the faults of a seed.
    draw, of_faults, of_work, of_moves, of_reads, of_disks, of_throttles, of_storage, of_pipelines = (
        Draw(SeededRandomness(seed * 7919 + number))
        for number in (10, 11, 12, 13, 14, DISKS_SOURCE, THROTTLES_SOURCE, STORAGE_SOURCE, PIPELINES_SOURCE)
    )
    disks = of_disks.some_of((DISK_MOVES, FAILED_LOG_DIR), DISKS_ONE_IN)
    brokers = draw.one_of(BROKERS)
    conditions = of_faults.some_of(CONDITIONS, 2)
    fault_duration_s = draw.length(*TROUBLED_S)
    skew_ms = MAX_SKEW_MS if "clock_skew" in conditions else 0
    return SwarmConfig(
        seed=seed,
        brokers=brokers,
        log_directories=max(draw.one_of((1, 1, 2)), 2 if disks else 1),
        fault_duration_s=fault_duration_s,
        faults=_draw_faults(of_faults) | (disks & {FAILED_LOG_DIR}),
        conditions=conditions,
        work=of_work.some_of(WORK, of_work.one_of(WORK_ONE_IN))
        | of_moves.some_of((REASSIGNMENTS,), REASSIGNMENTS_ONE_IN)
        | (frozenset({REASSIGNMENTS, THROTTLES}) if of_throttles.below(THROTTLES_ONE_IN) == 0 else frozenset())
        | (disks & {DISK_MOVES})
        | of_pipelines.some_of((PIPELINED_WRITES,), PIPELINED_WRITES_ONE_IN)
        | of_pipelines.some_of((PIPELINED_TRANSACTIONS,), PIPELINED_TRANSACTIONS_ONE_IN)
        | ALWAYS_WORK,
        latency_s=draw.one_of(LATENCIES_S),
        store_latency_s=draw.one_of(STORE_LATENCIES_S),
        longest_worker_delay_s=draw.one_of(WORKER_DELAYS_S) if "interleaved_workers" in conditions else 0.0,
        clock_offsets_ms=tuple(draw.between(-skew_ms, skew_ms) for _ in range(brokers)),
        longest_pause_ms=min(draw.one_of(MAX_PAUSES_MS), int(fault_duration_s * 1000) // MIN_FAULTS),
        write_pause_ms=max(draw.one_of(WRITE_PAUSES_MS), int(fault_duration_s * 1000) // MAX_BURSTS),
        lag_limit_ms=draw.one_of(LAG_LIMITS_MS),
        segment_ms=draw.one_of(SEGMENTS_MS),
        flush_messages=draw.one_of(FLUSH_INTERVALS),
        storage=draw_storage(of_storage),
        balances_leaders=draw.one_of((True, True, False)),
        reads_followers=of_reads.below(FOLLOWER_READS_ONE_IN) == 0,
    )


def _draw_faults(draw: Draw) -> frozenset[str]:
    """Draw few or many kinds. Most runs include kills, because most bugs need restarts."""
    one_in = draw.one_of((2, 3, 5))
    found = draw.some_of(FAULTS, one_in)
    return found | {"kill"} if not found or draw.below(2) else found
