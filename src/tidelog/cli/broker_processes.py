"""`tidelog broker --processes N`: several brokers of one machine, one per core, from one configuration.

All of them have the machine as their rack, so that replicas of a partition are placed on different machines.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.cli.local_cluster.supervisor import RestartPause
from tidelog.cli.settings_mistakes import shown_mistakes
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint, host_and_port, parse_address, parse_listener, parse_protocol_map
from tidelog.config.loading import SettingsError, load_broker_settings

MAX_PROCESSES = 100
READY = "listening on "
META_PROPERTIES = "meta.properties"


class LogOptions(NamedTuple):
    level: str = "info"
    file: str | None = None
    format: str = "text"
    audit_file: str | None = None

    def arguments(self, broker_id: int) -> list[str]:
        found = ["--log-level", self.level, "--log-format", self.format]
        for option, file in (("--log-file", self.file), ("--audit-log", self.audit_file)):
            if file is not None:
                name, suffix = os.path.splitext(file)
                found += [option, f"{name}-{broker_id}{suffix}"]
        return found


def run_processes(count: int, config: str | None, overrides: Sequence[str], log: LogOptions) -> int:
    try:
        settings = load_broker_settings(config, overrides)
        machine = settings.broker_rack or socket.gethostname()
        brokers = {each.broker_id: each for each in (process_of(settings, number, machine) for number in range(count))}
        check(settings, brokers.values(), count)
    except SettingsError as error:
        for mistake in shown_mistakes(error.mistakes, config):
            print(f"tidelog broker: {mistake}", file=sys.stderr)
        return 1
    given = [*(["--config", config] if config else []), *(part for each in overrides for part in ("--set", each))]
    commands = {
        broker_id: ["-m", "tidelog", "broker", *given, *each.arguments(), *log.arguments(broker_id)]
        for broker_id, each in brokers.items()
    }
    print(f"starting brokers {min(brokers)} to {max(brokers)} of rack {machine}", flush=True)
    return asyncio.run(_Supervisor(commands).run())


class ProcessSettings(NamedTuple):
    """What one of the brokers does not share with the others."""

    broker_id: int
    values: Mapping[str, str]
    ports: Sequence[int]

    def arguments(self) -> list[str]:
        return [part for name, value in self.values.items() for part in ("--set", f"{name}={value}")]


def process_of(settings: BrokerSettings, number: int, machine: str) -> ProcessSettings:
    """Broker `number` of this machine: ids and ports count up, log directories get a subdirectory for each broker."""
    first_id = settings.configured_broker_id
    if first_id is None:
        raise SettingsError(["--processes: set broker.id, the id of the first of these brokers"])
    broker_id = first_id + number
    listeners = _shifted(settings, settings.listeners, number)
    values = {
        "broker.id": str(broker_id),
        "broker.rack": machine,
        "listeners": ",".join(map(str, listeners)),
        "log.dirs": ",".join(os.path.join(each, f"broker-{broker_id}") for each in settings.log_directories),
    }
    ports = [each.port for each in listeners]
    if "node.id" in settings.originals:
        values["node.id"] = str(broker_id)
    if settings.advertised_listeners:
        values["advertised.listeners"] = ",".join(map(str, _shifted(settings, settings.advertised_listeners, number)))
    if settings.metrics_listener:
        host, port = parse_address(settings.metrics_listener)
        values["metrics.listener"] = host_and_port(host, port + number)
        ports.append(port + number)
    if not settings.zookeeper_connect:
        values["coordination.store"] = settings.coordination_store_path
    return ProcessSettings(broker_id, values, ports)


def _shifted(settings: BrokerSettings, listeners: Iterable[str], number: int) -> list[Endpoint]:
    protocols = parse_protocol_map(settings.listener_security_protocol_map)
    found = [parse_listener(text, protocols) for text in listeners]
    return [each._replace(port=each.port + number) for each in found]


def check(settings: BrokerSettings, brokers: Iterable[ProcessSettings], count: int) -> None:
    """Raises SettingsError for ports that meet, and for log directories of a single broker."""
    mistakes = []
    ports = [port for each in brokers for port in each.ports]
    if min(ports) < count:  # port 0, and what follows it
        mistakes.append("--processes: listeners must have fixed ports; those of the next broker are higher by one")
    elif len(set(ports)) < len(ports):
        mistakes.append(f"--processes {count}: ports of listeners and metrics must be at least {count} apart")
    mistakes += [
        f"--processes: {each} holds the data of a single broker, which would not be read;"
        " run that broker without --processes, or choose another log.dirs"
        for each in settings.log_directories
        if os.path.exists(os.path.join(each, META_PROPERTIES))
    ]
    if mistakes:
        raise SettingsError(mistakes)


class _Supervisor:
    """Runs the brokers until a signal.

    A broker that is killed is started again. One that ends by itself has logged why: then all are stopped, and this
    process ends with an error for its own supervisor.
    """

    def __init__(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._commands = commands
        self._stopping = asyncio.Event()
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        codes = await asyncio.gather(*(self._keep_running(broker_id) for broker_id in self._commands))
        return max(codes)

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)

    async def _keep_running(self, broker_id: int) -> int:
        """The exit code of the broker when it has ended for good."""
        pause = RestartPause()
        while True:
            pause.on_started(time.monotonic())
            code = await self._run_once(broker_id)
            if self._stopping.is_set() or code >= 0:
                if code > 0:
                    self._stop()
                return _exit_code(code)
            print(f"broker {broker_id} was killed by {signal.Signals(-code).name}, starting it again", flush=True)
            if not await self._wait_until_due(pause):
                return 0

    async def _run_once(self, broker_id: int) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *self._commands[broker_id], stdout=asyncio.subprocess.PIPE
        )
        self._running[broker_id] = process
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode()
            if text.startswith(READY):
                print(f"broker {broker_id} (pid {process.pid}): {text.rstrip()}", flush=True)
        code = await process.wait()
        del self._running[broker_id]
        return code

    async def _wait_until_due(self, pause: RestartPause) -> bool:
        """False if all are stopping."""
        while not pause.is_due(time.monotonic()):
            try:
                async with asyncio.timeout(0.1):
                    await self._stopping.wait()
            except TimeoutError:
                continue
            return False
        return not self._stopping.is_set()


def _exit_code(returncode: int) -> int:
    """A broker may be so young that the signal to stop ends it before it handles signals: that is no failure."""
    if returncode >= 0:
        return returncode
    return 0 if returncode == -signal.SIGTERM else 1
