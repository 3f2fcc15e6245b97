"""Probe of a pipeline's brokers while a micro-batch takes long: its tasks may be waiting for them."""

import socket
from collections.abc import Callable, Iterable

from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
from tidelog.pipelines.definition.model import AnyPipeline, ModulePipeline, TopicSink, TopicSource

PROBE_INTERVAL_S = 3.0
CONNECT_TIMEOUT_S = 1.0


class BrokerProbe:
    """Each cluster that stops answering is reported once, until it answers again."""

    def __init__(self, bootstraps: Iterable[str], reason_of_silence: Callable[[str], str | None]) -> None:
        self._bootstraps = tuple(bootstraps)
        self._reason_of_silence = reason_of_silence
        self._silent: set[str] = set()
        self._next_s = float("-inf")

    def newly_silent(self, now_s: float) -> list[str]:
        """One sentence for each; connects at most once in an interval."""
        if now_s < self._next_s:
            return []
        self._next_s = now_s + PROBE_INTERVAL_S
        reasons = {bootstrap: self._reason_of_silence(bootstrap) for bootstrap in self._bootstraps}
        silent = {bootstrap for bootstrap, reason in reasons.items() if reason is not None}
        new, self._silent = silent - self._silent, silent
        return [f"no broker answers at {bootstrap} ({reasons[bootstrap]}), retrying" for bootstrap in sorted(new)]


def bootstraps_of(pipeline: AnyPipeline) -> frozenset[str]:
    """Empty for a Python module, whose sources are not known."""
    if isinstance(pipeline, ModulePipeline):
        return frozenset()
    sources = {source.bootstrap for source in pipeline.sources if isinstance(source, TopicSource)}
    return frozenset(sources | {sink.bootstrap for sink in pipeline.sinks if isinstance(sink, TopicSink)})


def reason_of_silence(bootstrap: str) -> str | None:
    """None as soon as one of the addresses accepts a connection."""
    try:
        addresses = parse_bootstrap(bootstrap)
    except BadBootstrap:
        return None
    reason = None
    for address in addresses:
        try:
            socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reason = str(error.strerror or error)
        else:
            return None
    return reason
