"""What the commands that talk to a cluster have in common: finding it, and ending well."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    from tidelog.client.bootstrap import Address
    from tidelog.client.cluster import Cluster

DEFAULT_BOOTSTRAP = "localhost:29092"
BOOTSTRAP_VARIABLE = "TIDELOG_BOOTSTRAP"
MAX_FRAME_BYTES = 256 * 1024 * 1024


class Refused(Exception):
    """What the user asked for cannot be done; the message says why and what to do, in one sentence."""


def no_such_topic(topic: str) -> Refused:
    return Refused(f"topic {topic} does not exist; `tidelog topic list` shows those that do")


def no_such_partition(topic: str, partitions: int, missing: int) -> Refused:
    count = plural(partitions, "partition")
    return Refused(f"topic {topic} has {count}, counted from 0; there is no partition {missing}")


def add_client_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT,...",
        default=os.environ.get(BOOTSTRAP_VARIABLE),
        help="one or more brokers of the cluster (without it those in the variable"
        f" {BOOTSTRAP_VARIABLE}, else those that `tidelog up` runs here, else {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="tell on standard error what the client does")


def _bootstrap_here() -> str:
    """All brokers of the cluster in the data directory that are alive: one of them may have been killed."""
    from tidelog.cli.command_error import Refused as NoCluster
    from tidelog.cli.local_cluster.data_directory import DataDirectory, default_data_directory

    data = DataDirectory(default_data_directory())
    with suppress(NoCluster):
        plan = data.stored_plan()
        running = {} if plan is None else data.running_brokers(plan)
        return ",".join(f"{broker.host}:{broker.port}" for broker in running.values()) or DEFAULT_BOOTSTRAP
    return DEFAULT_BOOTSTRAP


def settings_option(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    return key, value


def count_option(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)


def number_option(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, found {text!r}")
    return int(text)


def name_option(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a name, found ''")
    return text


def seconds_option(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"expected seconds, found {text!r}")
    return seconds


Work = Callable[["Cluster", argparse.Namespace], Awaitable[None]]


def carry_out(command: str, work: Work, options: argparse.Namespace) -> int:
    """Runs a command against its cluster; every failure ends in one sentence and exit code 1."""
    if sys.stdin is None or sys.stdout is None:  # closed by whoever started us
        return _complain(command, "standard input and output must be open; name /dev/null where one is not needed")
    logging.basicConfig(
        stream=sys.stderr, level="INFO" if options.verbose else "WARNING", format=f"tidelog {command}: %(message)s"
    )
    try:
        exit_code = asyncio.run(_carry_out(command, work, options))
        sys.stdout.flush()
        return exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except BrokenPipeError:
        _write_no_more()  # nobody reads any more
        return 0
    except OSError as error:  # connections have their own
        if error.errno is None:  # a TimeoutError of asyncio: our mistake
            raise
        _write_no_more()
        return _complain(command, f"standard input or output fails: {error.strerror}")


def _write_no_more() -> None:
    """Or Python would complain once more when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _carry_out(command: str, work: Work, options: argparse.Namespace) -> int:
    from tidelog.client.bootstrap import BadBootstrap, parse_bootstrap
    from tidelog.client.cluster import Cluster
    from tidelog.client.pipeline import ConnectionLost
    from tidelog.client.retries import GaveUp, reason_of
    from tidelog.errors import KafkaError
    from tidelog.runtime.randomness import SystemRandomness
    from tidelog.runtime.socket_network import SocketNetwork

    try:
        bootstrap = parse_bootstrap(options.bootstrap or _bootstrap_here())
        async with Cluster(SocketNetwork(MAX_FRAME_BYTES), bootstrap, SystemRandomness()) as cluster:
            await _find(cluster, bootstrap)
            await work(cluster, options)
        return 0
    except BadBootstrap as error:
        return _complain(command, f"--bootstrap: {error}")
    except (Refused, GaveUp, ConnectionLost, KafkaError) as error:
        return _complain(command, reason_of(error))


def _complain(command: str, sentence: str) -> int:
    print(f"tidelog {command}: {sentence}", file=sys.stderr)
    return 1


async def _find(cluster: "Cluster", bootstrap: "list[Address]") -> None:
    """Somebody must answer at once: retrying is for clusters that are known to be there."""
    from tidelog.client.pipeline import ConnectionLost

    try:
        await cluster.refresh()
    except ConnectionLost as lost:
        hint = "start a cluster with `tidelog up`, or name yours with --bootstrap HOST:PORT"
        where = ", ".join(map(str, bootstrap))
        reason = str(lost).removeprefix(f"cannot connect to {where}: ") if len(bootstrap) == 1 else str(lost)
        raise Refused(f"no broker answers at {where} ({reason}); {hint}") from lost


def cancel_on_interrupt() -> None:
    """From now on Ctrl-C cancels the calling task, which may then end in order."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if sys.stderr.isatty():
            note("")  # behind the ^C that the terminal shows
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)


def note(text: str) -> None:
    """To the person at the terminal; never into what the command prints for programs."""
    print(text, file=sys.stderr, flush=True)
