"""Stop of broker processes: controlled shutdown in the right order, or SIGKILL."""

import signal
import time
from collections.abc import Callable, Iterable, Sequence

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.data_directory import BrokerProcess
from tidelog.cli.local_cluster.detached_processes import POLL_S, reap, send_signal
from tidelog.runtime.process_identity import is_running

MAX_STOP_S = 60.0


def stop_order(processes: Iterable[BrokerProcess], controller: int | None) -> list[list[BrokerProcess]]:
    """The controller last: it moves the leaders of the other brokers, and no new controller has to be elected."""
    others = [process for process in processes if process.broker_id != controller]
    last = [process for process in processes if process.broker_id == controller]
    return [group for group in (others, last) if group]


def stop(groups: Sequence[Sequence[BrokerProcess]], say: Callable[[str], None]) -> None:
    """Stop one group after the other."""
    for group in groups:
        for process in group:
            ask_to_stop(process)
        _wait(group, say)


def ask_to_stop(process: BrokerProcess) -> None:
    send_signal(process.identity, signal.SIGTERM)
    send_signal(process.identity, signal.SIGCONT)  # a paused process handles SIGTERM only after it continues


def _wait(group: Sequence[BrokerProcess], say: Callable[[str], None]) -> None:
    deadline = time.monotonic() + MAX_STOP_S
    waiting = list(group)
    while waiting:
        reap()
        for process in [process for process in waiting if not is_running(process.identity)]:
            say(f"broker {process.broker_id} stopped")
            waiting.remove(process)
        if waiting and time.monotonic() > deadline:
            raise CommandError(
                f"broker {waiting[0].broker_id} has not stopped after {MAX_STOP_S:.0f} s;"
                f" kill it with `tidelog kill {waiting[0].broker_id}`"
            )
        time.sleep(POLL_S if waiting else 0)


def kill(processes: Iterable[BrokerProcess]) -> None:
    for process in processes:
        send_signal(process.identity, signal.SIGKILL)
