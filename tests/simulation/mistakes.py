"""Known mistakes that can be put back one at a time, with seeds of the swarm that find each.

A change of the swarm moves the seeds: `python -m tests.simulation.find_mistakes` looks for them again.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from tests.simulation.broken_elections import (
    first_one_back_leads,
    incarnations_forgotten_at_elections,
    nobody_eligible,
    registration_epochs_ignored,
    unfenced_controller_writes,
)
from tests.simulation.broken_recoveries import (
    empty_stores_taken_for_new_clusters,
    future_logs_keep_their_own_high_watermark,
    high_watermark_before_a_cut_learned_by_fetching,
    marked_clean_though_logs_failed_to_close,
    parting_points_learned_by_fetching,
)
from tests.simulation.broken_retries import (
    deletion_answers_of_any_attempt,
    followers_given_up_without_descriptors,
    rejected_roles_forgotten,
)
from tests.simulation.broken_rules import (
    batches_overtake_refused_ones,
    high_watermark_over_the_plain_isr,
    joining_before_the_epoch_start,
    snapshots_of_the_last_batch,
    truncating_to_the_high_watermark,
    unfenced_fetches,
    without_second_question,
)
from tidelog.simulation.chaos import Verdict, run_events
from tidelog.simulation.swarm import (
    ALL_FAULTS,
    CONDITIONS,
    DISK_MOVES,
    OPTIONAL_WORK,
    PIPELINED_TRANSACTIONS,
    PIPELINED_WRITES,
)

FAULTS_S = 8.0
"""How long faults strike in a run that looks for a mistake: the beginning of what the seed draws."""


class Mistake(NamedTuple):
    rule: str
    what: str
    broken: Callable[[], AbstractContextManager[None]]
    needs: frozenset[str] = frozenset()
    """Faults, conditions and work without which hardly any run can show it."""
    helpers: frozenset[str] = frozenset({"kill", "isolate_and_kill"})
    """The faults that bring it about: a search tries seeds first that draw them and little else."""
    faults_s: float = FAULTS_S
    least_brokers: int = 3
    whole: Callable[[], AbstractContextManager[None]] = nullcontext
    """The same without the mistake, which must hold."""


def _names(*names: str) -> frozenset[str]:
    assert set(names) <= {*ALL_FAULTS, *CONDITIONS, *OPTIONAL_WORK}, names
    return frozenset(names)


RESTARTS = _names("kill", "kill_all", "stop", "isolate_and_kill")
LOST_DISKS = RESTARTS | _names("lost_disk", "slow_store", "cut_store", "end_session", "late_election", "last_standing")
DESCRIPTORS = _names("no_descriptors", "stop", "kill")
REJOINING = _names("end_session", "cut_store", "store_step", "late_rejoining", "freeze")

MISTAKES: Mapping[str, Mistake] = {
    # Rules of replication, taken out
    "truncate-to-high-watermark": Mistake(
        "R27",
        "a follower cuts its log to its high watermark instead of asking the leader",
        truncating_to_the_high_watermark,
    ),
    "no-second-question": Mistake(
        "R27",
        "a follower asks only once where the logs part",
        without_second_question,
        _names("unclean_elections"),
        _names("turns"),
        15.0,
    ),
    "unfenced-fetches": Mistake(
        "R16",
        "a leader does not ask which epoch a follower knows",
        unfenced_fetches,
        _names("unheard_failovers"),
        _names("unheard_failovers"),
        least_brokers=4,
    ),
    "high-watermark-over-plain-isr": Mistake(
        "R18",
        "who is about to join does not hold back the high watermark",
        high_watermark_over_the_plain_isr,
        _names("late_joining"),
        _names("late_joining"),
    ),
    "join-before-epoch-start": Mistake(
        "R19", "a follower joins before it has reached the start of the leader's epoch", joining_before_the_epoch_start
    ),
    "high-watermark-before-cut": Mistake(
        "R28",
        "a follower raises its high watermark before it cuts its log",
        high_watermark_before_a_cut_learned_by_fetching,
        helpers=RESTARTS,
        whole=parting_points_learned_by_fetching,
    ),
    "registration-epochs-ignored": Mistake(
        "R39",
        "a broker that registered again counts as the one that was there before",
        registration_epochs_ignored,
        _names("lost_disk"),
        LOST_DISKS,
    ),
    "unfenced-controller-writes": Mistake(
        "R31",
        "a write of a controller does not ask whether its term is over",
        unfenced_controller_writes,
        _names("depose_controller", "stop"),
        _names("depose_controller", "stop"),
    ),
    # Mistakes that lost acknowledged records, or kept a cluster from recovering
    "store-taken-for-new": Mistake(
        "R44",
        "an empty store counts as that of a new cluster, whatever the brokers hold",
        empty_stores_taken_for_new_clusters,
        helpers=_names("lost_store"),
    ),
    "elections-forget-incarnations": Mistake(
        "R41",
        "an election that is written late launders a lost disk",
        incarnations_forgotten_at_elections,
        _names("late_election"),
        _names("late_election"),
    ),
    "nobody-eligible": Mistake(
        "R42",
        "the last replica standing loses its disk, and nobody else may lead",
        nobody_eligible,
        _names("last_standing"),
        _names("last_standing"),
    ),
    "first-one-back-leads": Mistake(
        "R42",
        "of replicas that crashed, the first one back leads, unasked",
        first_one_back_leads,
        _names("last_standing"),
        _names("last_standing"),
    ),
    "marked-clean-after-failure": Mistake(
        "R6",
        "a broker that could not close a log is marked as cleanly stopped",
        marked_clean_though_logs_failed_to_close,
        _names("short_stop"),
        _names("short_stop"),
    ),
    "future-log-keeps-its-high-watermark": Mistake(
        "R30",
        "a log that moved to another log directory has the high watermark of its copy",
        future_logs_keep_their_own_high_watermark,
        _names(DISK_MOVES),
    ),
    "followers-given-up": Mistake(
        "R5",
        "a follower short of descriptors gives up for good",
        followers_given_up_without_descriptors,
        _names("no_descriptors"),
        DESCRIPTORS,
    ),
    "snapshots-of-one-batch": Mistake(
        "I5",
        "after a crash a broker knows only the last batch of a producer that repeats five",
        snapshots_of_the_last_batch,
        _names(PIPELINED_WRITES),
        RESTARTS,
    ),
    "refused-batches-overtaken": Mistake(
        "I5",
        "a batch behind one that was refused for now is out of order",
        batches_overtake_refused_ones,
        _names(PIPELINED_WRITES),
    ),
    "refused-transactional-batches-overtaken": Mistake(
        "I5",
        "the same in a transaction, whose batches wait until it is verified",
        batches_overtake_refused_ones,
        _names(PIPELINED_TRANSACTIONS),
    ),
    "refused-roles-forgotten": Mistake(
        "R43",
        "a broker that rejoins refuses its roles, and does not get them again",
        rejected_roles_forgotten,
        _names("late_rejoining"),
        REJOINING,
    ),
    "deletion-answers-of-any-attempt": Mistake(
        "R43",
        "an answer to an earlier attempt ends the deletion of a topic",
        deletion_answers_of_any_attempt,
        _names("topic_churn"),
        REJOINING,
    ),
}

FOUND_BY: Mapping[str, tuple[int, ...]] = {
    "truncate-to-high-watermark": (4877, 1214, 128, 3065, 1413),
    "no-second-question": (4981, 1607),
    "unfenced-fetches": (2877, 2291, 3903),
    "high-watermark-over-plain-isr": (4103,),
    "join-before-epoch-start": (3593, 4397, 4408, 4435, 3050),
    "high-watermark-before-cut": (4877,),
    "registration-epochs-ignored": (1287,),
    "unfenced-controller-writes": (4775, 1936, 1494, 3985, 3463),
    "store-taken-for-new": (1374,),
    "elections-forget-incarnations": (519,),
    "nobody-eligible": (2292, 986, 2587, 4242, 2953, 1474),
    "first-one-back-leads": (4242, 986, 3403),
    "marked-clean-after-failure": (955,),
    "future-log-keeps-its-high-watermark": (172, 70, 437),
    "followers-given-up": (4463,),
    "snapshots-of-one-batch": (1875, 1079, 3989, 4654, 3059),
    "refused-batches-overtaken": (4408, 3102, 2671, 4477),
    "refused-transactional-batches-overtaken": (42, 47, 111, 135, 546),
    "refused-roles-forgotten": (1788, 2302, 2236),
    "deletion-answers-of-any-attempt": (1788,),
}


def run_with(name: str, seed: int) -> Verdict:
    mistake = MISTAKES[name]
    with mistake.broken():
        return run_events(seed, duration_s=mistake.faults_s)


def run_without(name: str, seed: int) -> Verdict:
    mistake = MISTAKES[name]
    with mistake.whole():
        return run_events(seed, duration_s=mistake.faults_s)
