"""Common parts of the commands that connect to a cluster: options, connecting, errors and exit codes."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import TYPE_CHECKING

from tidelog.cli.command_error import CommandError
from tidelog.numerals import decimal_number, natural_number
from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    from tidelog.client.network.bootstrap import Address
    from tidelog.client.network.in_flight import ConnectionLost
    from tidelog.client.routing.cluster import Cluster
    from tidelog.runtime.network import Network

CLIENT_CONFIG_VARIABLE = "TIDELOG_CLIENT_CONFIG"
MAX_FRAME_BYTES = 256 * 1024 * 1024
MAX_COUNT = 2**31 - 1
MAX_NUMBER = 2**63 - 1
"""What a count and an id may be in Kafka's protocol."""
GUESSES = {
    "frame of": "perhaps what answers there does not speak Kafka's protocol",
    "reset by peer": "perhaps it is a TLS port, which needs security.protocol=SSL in the file of --command-config",
    "[SSL: UNEXPECTED_EOF": "perhaps it is a port without TLS",
    "[SSL: WRONG_VERSION_NUMBER": "perhaps it is a port without TLS",
}
"""What a failure to connect usually means, by a part of its text."""


def no_such_topic(topic: str) -> CommandError:
    return CommandError(f"topic {topic} does not exist; `tidelog topic list` lists the topics")


def no_such_partition(topic: str, partitions: int, missing: int) -> CommandError:
    count = plural(partitions, "partition")
    return CommandError(f"topic {topic} has no partition {missing}; it has {count}, numbered from 0")


def add_client_options(parser: argparse.ArgumentParser) -> None:
    add_cluster_options(parser)
    add_command_config_option(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="log what the client does to standard error")


def add_command_config_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="client.properties with TLS, user and password, and bootstrap.servers unless --bootstrap or --profile is"
        " given (default: that of the profile or of the cluster that `tidelog up` made, else $TIDELOG_CLIENT_CONFIG)",
    )


def add_cluster_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT,...",
        help="brokers to connect to (default: the profile in use, else $TIDELOG_BOOTSTRAP, else the cluster that"
        " `tidelog up` made on this machine)",
    )
    parser.add_argument("--profile", metavar="NAME", help="a cluster that `tidelog profile add` has named")


def add_json_option(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def client_command(name: str, module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """`run` of a command whose work is `function` of `module`, which is imported when the command runs."""

    def run(options: argparse.Namespace) -> int:
        work: Work = getattr(import_module(f"tidelog.cli.{module}"), function)
        return run_command(name, work, options)

    return run


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """A cluster on this machine by its data directory, or any cluster by its address or profile."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--data",
        metavar="DIR",
        help="data directory of a cluster on this machine (default: see --bootstrap; `tidelog up` uses $TIDELOG_DATA)",
    )
    add_cluster_options(place)
    add_command_config_option(parser)


def settings_option(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    return key, value


def count_option(text: str) -> int:
    return _number(text, 1, MAX_COUNT)


def number_option(text: str) -> int:
    return _number(text, 0, MAX_NUMBER)


def _number(text: str, least: int, most: int) -> int:
    number = natural_number(text)
    if number is None and text.isascii() and text.isdecimal():
        number = most + 1
    if number is None or number < least:
        raise argparse.ArgumentTypeError(f"expected a number of at least {least}, found {text!r}")
    if number > most:
        raise argparse.ArgumentTypeError(f"expected a number of at most {most}, found {text!r}")
    return number


def name_option(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name must not be empty")
    return text


def seconds_option(text: str) -> float:
    seconds = decimal_number(text)
    if seconds is None or not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, found {text!r}")
    return seconds


Work = Callable[["Cluster", argparse.Namespace], Awaitable[None]]


def run_command(command: str, work: Work, options: argparse.Namespace) -> int:
    """Runs a command against its cluster. Every failure becomes one sentence on standard error and exit code 1."""
    return run_unconnected(command, lambda: _run_command(command, work, options), options)


def run_unconnected(
    command: str, work: Callable[[], Coroutine[object, object, int]], options: argparse.Namespace
) -> int:
    """Runs a command that does not connect first. `work` returns the exit code."""
    if sys.stdin is None or sys.stdout is None:  # closed by the parent process
        return print_error(
            command, "standard input and output must be open; redirect the one you do not need to /dev/null"
        )
    logging.basicConfig(
        stream=sys.stderr, level="INFO" if options.verbose else "WARNING", format=f"tidelog {command}: %(message)s"
    )
    try:
        exit_code = asyncio.run(work())
        sys.stdout.flush()
        return exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except BrokenPipeError:
        discard_output()
        return 0
    except OSError as error:  # of standard input or output: errors of connections are ConnectionLost
        if error.errno is None:  # a TimeoutError that nobody caught: a bug
            raise
        discard_output()
        return print_error(command, f"cannot read standard input or write standard output: {error.strerror}")


def discard_output() -> None:
    """Redirects standard output to /dev/null, or Python would report the same error again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _run_command(command: str, work: Work, options: argparse.Namespace) -> int:
    from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
    from tidelog.client.network.in_flight import ConnectionLost
    from tidelog.client.network.retries import GaveUp, reason_of
    from tidelog.client.routing.cluster import Cluster
    from tidelog.errors import KafkaError
    from tidelog.runtime.cluster_choice import NoCluster, choose_cluster
    from tidelog.runtime.randomness import SystemRandomness

    try:
        options.command_config = getattr(options, "command_config", None)
        chosen = choose_cluster(options.bootstrap, options.profile, command_config=options.command_config)
    except NoCluster as reason:
        return print_error(command, str(reason))
    try:
        bootstrap = parse_bootstrap(chosen.bootstrap)
        options.command_config = options.command_config or chosen.command_config
        network = command_network(options.command_config)
        async with Cluster(network, bootstrap, SystemRandomness()) as cluster:
            await _find(cluster, bootstrap, chosen.hint)
            await work(cluster, options)
        return 0
    except BadBootstrap as error:
        return print_error(command, f"{chosen.origin}: {error}")
    except (CommandError, GaveUp, ConnectionLost, KafkaError) as error:
        return print_error(command, reason_of(error))


def command_network(path: str | None) -> "Network":
    """With the TLS and login of a client.properties. Raises CommandError."""
    from tidelog.client.network.secured_network import secured_network
    from tidelog.config.client import BadClientSettings, default_client_security, load_client_security

    try:
        security = load_client_security(path) if path else default_client_security()
        return secured_network(security, MAX_FRAME_BYTES)
    except BadClientSettings as error:
        raise CommandError(str(error)) from error


def print_error(command: str, sentence: str) -> int:
    print(f"tidelog {command}: {sentence}", file=sys.stderr)
    return 1


async def _find(cluster: "Cluster", bootstrap: "list[Address]", hint: str) -> None:
    """Fails at once if no broker answers. Retries are for clusters that have answered before."""
    from tidelog.client.network.in_flight import ConnectionLost, LoginFailed

    try:
        await cluster.refresh()
    except LoginFailed as failed:
        raise CommandError(f"{failed}; see --command-config and ${CLIENT_CONFIG_VARIABLE}") from failed
    except ConnectionLost as lost:
        where = ", ".join(map(str, bootstrap))
        raise CommandError(f"no broker answers at {where} ({_reason(lost, bootstrap)}); {hint}") from lost


async def reason_of_silence(command_config: str | None, bootstrap: "list[Address]") -> str:
    """Why no broker answers there, for commands that have asked in another way."""
    from tidelog.client.network.in_flight import ConnectionLost
    from tidelog.client.routing.cluster import Cluster
    from tidelog.errors import KafkaError
    from tidelog.runtime.randomness import SystemRandomness

    try:
        async with Cluster(command_network(command_config), bootstrap, SystemRandomness()) as cluster:
            await cluster.refresh()
    except ConnectionLost as lost:
        return _reason(lost, bootstrap)
    except KafkaError as error:
        return str(error)
    return "it answers now"


def _reason(lost: "ConnectionLost", bootstrap: "list[Address]") -> str:
    reasons = dict.fromkeys(_without_address(each, bootstrap) for each in str(lost).split("; "))
    reason = next(iter(reasons)) if len(reasons) == 1 else str(lost)
    return next((f"{reason}; {guess}" for sign, guess in GUESSES.items() if sign in reason), reason)


def _without_address(reason: str, bootstrap: "list[Address]") -> str:
    for address in bootstrap:
        reason = reason.removeprefix(f"cannot connect to {address}: ")
    return reason


def cancel_on_interrupt() -> None:
    """From now on Ctrl-C cancels the calling task, so that it can clean up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if sys.stderr.isatty():
            note("")  # a new line after the ^C that the terminal shows
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)


def note(text: str) -> None:
    """Prints a message for the person at the terminal, never into output that programs read."""
    print(text, file=sys.stderr, flush=True)
