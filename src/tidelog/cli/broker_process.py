"""Process of one broker: settings, logging, signals, garbage collection and the start message."""

import asyncio
import gc
import logging
import os
import resource
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog import __version__
from tidelog.cli.log_formatter import JsonFormatter, SingleLineFormatter
from tidelog.cli.rotating_log import KEPT_FILES, MAX_BYTES, RotatingLog
from tidelog.cli.settings_mistakes import shown_mistakes
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import host_and_port
from tidelog.config.loading import SettingsError, load_broker_settings
from tidelog.runtime.broker_loop import BrokerLoop

if TYPE_CHECKING:
    from tidelog.server.broker import Broker

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"

GARBAGE_COLLECTION_THRESHOLDS = (20_000, 5, 200)
"""Higher than Python's defaults: requests make no reference cycles, so frequent collections find nothing. One of the
young objects looks at as many as the first two numbers multiplied: 400,000 took 50 ms."""

SWITCH_INTERVAL_S = 0.001
"""A thread that waits for the interpreter gets it after this time; Python's default is 5 ms. The event loop releases it
in every system call: while a worker decoded a large request, ten calls took 50 ms."""

TRIM_S = 5.0
OWNER_ONLY = 0o077
"""Mask of new files: records, metadata and logs are for the user of the broker only."""


def run_broker(
    config: str | None,
    overrides: Sequence[str],
    log_level: str,
    log_file: str | None = None,
    log_format: str = "text",
    audit_file: str | None = None,
) -> int:
    gc.disable()
    os.umask(OWNER_ONLY)
    formatter = JsonFormatter() if log_format == "json" else SingleLineFormatter(LOG_FORMAT)
    try:
        handler = logging.StreamHandler(sys.stderr) if log_file is None else RotatingLog(log_file)
        if audit_file is not None:
            send_audit_log_to(audit_file, formatter)
    except OSError as error:
        print(f"tidelog broker: cannot write to {error.filename or log_file}: {error.strerror}", file=sys.stderr)
        return 1
    handler.setFormatter(formatter)
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    try:
        settings = load_broker_settings(config, overrides)
    except SettingsError as error:
        for mistake in shown_mistakes(error.mistakes, config):
            print(f"tidelog broker: {mistake}", file=sys.stderr)
        return 1
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        return runner.run(_serve(settings))


def send_audit_log_to(file: str, formatter: logging.Formatter) -> None:
    """Lines of the audit log go to this file only, as those of Kafka's authorizer. Raises OSError."""
    from logging.handlers import RotatingFileHandler

    from tidelog.server.audit_log import audit_logger

    handler = RotatingFileHandler(
        file, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(formatter)
    audit_logger.addHandler(handler)
    audit_logger.setLevel(logging.INFO)
    audit_logger.propagate = False


async def _serve(settings: BrokerSettings) -> int:
    from tidelog.kernels import INTERPRETED_WARNING, is_compiled
    from tidelog.server.broker import Broker, CannotStart

    if not is_compiled:
        logger.warning(INTERPRETED_WARNING)
    _enable_garbage_collection()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_open_file_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        broker = await Broker.start(settings)
    except CannotStart as error:
        print(f"tidelog broker: {error}", file=sys.stderr)
        return 1
    _freeze_startup_objects()
    print(_greeting(broker), flush=True)
    trimming = asyncio.create_task(_trim_memory_periodically())
    failure = await broker.run_until(stop)
    trimming.cancel()
    await broker.stop()
    if failure is not None:
        print(f"tidelog broker: {failure}", file=sys.stderr)
        return 1
    return 0


def _raise_open_file_limit() -> None:
    """Raises the limit of open files to the hard limit: every segment in use and every connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _enable_garbage_collection() -> None:
    """Excludes imported modules from garbage collection: they live as long as the process."""
    gc.freeze()
    gc.set_threshold(*GARBAGE_COLLECTION_THRESHOLDS)
    gc.enable()


def _freeze_startup_objects() -> None:
    """Excludes objects made at start-up from garbage collection: they live as long as the broker."""
    gc.collect()
    gc.freeze()


def _listener_hint(broker: "Broker") -> str:
    text = ""
    if names := broker.settings.listeners_without_host:
        port = broker.listeners[0].port
        text += f"\nreachable from this machine only; for other machines: --set listeners={names[0]}://0.0.0.0:{port}"
    if broker.metrics_server is not None and broker.settings.has_metrics_without_host:
        port = broker.metrics_server.port
        text += f"\nmetrics are shown to this machine only; for other machines: --set metrics.listener=0.0.0.0:{port}"
    return text


async def _trim_memory_periodically() -> None:
    """Returns free memory to the system after a burst of large requests.

    Young objects are searched for reference cycles first. Requests should make none; but one that does may hold
    megabytes, and the collector, which counts objects and not bytes, would leave it for minutes.
    """
    from tidelog.runtime.memory_trim import TrimSchedule
    from tidelog.runtime.process_usage import give_back_free_memory, process_usage

    trimming = TrimSchedule(process_usage().resident_bytes)
    while True:
        await asyncio.sleep(TRIM_S)
        before_bytes = process_usage().resident_bytes
        if trimming.is_due(before_bytes):
            gc.collect(1)
            await asyncio.to_thread(give_back_free_memory)
            trimming.on_trimmed(before_bytes, process_usage().resident_bytes)


def _greeting(broker: "Broker") -> str:
    addresses = ", ".join(host_and_port(listener.host, listener.port) for listener in broker.listeners)
    address = broker.advertised_address
    python = shlex.quote(sys.executable)
    return f"""
Tidelog {__version__}: broker {broker.broker_id} of cluster {broker.cluster_id}
listening on {addresses}{_listener_hint(broker)}
data in {", ".join(broker.settings.log_directories)}

Try it from another terminal, with kcat (apt install kcat):
  echo "hello, tide" | kcat -P -b {address} -t greetings
  kcat -C -b {address} -t greetings -o beginning -e
or with a client in Python:
  {python} -m pip install -q kafka-python
  echo "hello, Python" | {python} -m kafka.producer -b {address} -t greetings

Stop it with Ctrl-C. The data stays for the next start.
"""
