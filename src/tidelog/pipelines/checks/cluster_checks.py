"""Cluster checks of a pipeline: brokers answer, topics exist."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
from tidelog.pipelines.definition.mistakes import nearest
from tidelog.pipelines.definition.model import Pipeline, TableSink, TopicSink, TopicSource
from tidelog.pipelines.definition.parse_formats import is_legal_topic
from tidelog.pipelines.definition.toml_fields import Diagnostics
from tidelog.pipelines.definition.toml_lines import KeyPath

TIMEOUT_S = 4.0
"""Of one request; the whole check of a cluster takes at most twice as long."""
MAX_FRAME_BYTES = 64 * 1024 * 1024
AUTO_CREATE = "auto.create.topics.enable"


class ClusterResponse(NamedTuple):
    topics: frozenset[str]
    creates_topics: bool
    """True if the first record for a topic creates it."""


class NoResponse(Exception):
    """No broker answers; the message has the reason."""


AskCluster: TypeAlias = Callable[[str], ClusterResponse]
"""Queries the brokers at HOST:PORT,...; raises NoResponse."""


class _Use(NamedTuple):
    path: KeyPath
    bootstrap: str
    topic: str
    is_read: bool


def check_topics(pipeline: Pipeline, diagnostics: Diagnostics, ask: AskCluster) -> None:
    responses = _answers(pipeline, diagnostics, ask)
    for use in _topics_used(pipeline, diagnostics):
        response = responses.get(use.bootstrap)
        if response is not None and use.topic not in response.topics and (use.is_read or not response.creates_topics):
            hint = nearest(use.topic, response.topics) or f"; `tidelog topic create {use.topic}` creates it"
            diagnostics.report(use.path, f"topic '{use.topic}' does not exist{hint}")
    for source in pipeline.sources:
        if isinstance(source, TopicSource) and source.pattern is not None:
            _check_pattern(source, responses.get(source.bootstrap), diagnostics)


def _answers(pipeline: Pipeline, diagnostics: Diagnostics, ask: AskCluster) -> dict[str, ClusterResponse]:
    """Each cluster is queried once, and a cluster that does not answer is reported once."""
    responses: dict[str, ClusterResponse] = {}
    for bootstrap, path in _clusters(pipeline, diagnostics).items():
        try:
            responses[bootstrap] = ask(bootstrap)
        except NoResponse as reason:
            hint = "start a cluster with `tidelog up`, or correct 'bootstrap'"
            diagnostics.report(path, f"no broker answers at {bootstrap} ({reason}); {hint}")
    return responses


def _clusters(pipeline: Pipeline, diagnostics: Diagnostics) -> dict[str, KeyPath]:
    """Every bootstrap in use, with the place where it is written."""
    clusters: dict[str, KeyPath] = {}
    parts: list[tuple[str | None, KeyPath]] = [
        (source.bootstrap, ("sources", source.name)) for source in pipeline.sources if isinstance(source, TopicSource)
    ]
    for sink in pipeline.sinks:
        bootstrap = sink.bootstrap if isinstance(sink, TopicSink) else sink.dead_letter_bootstrap
        parts.append((bootstrap, ("sinks", sink.name)))
    for bootstrap, path in parts:
        if bootstrap is not None and _is_address(bootstrap):
            own = (*path, "bootstrap")
            clusters.setdefault(bootstrap, own if diagnostics.lines.has(own) else ("pipeline", "bootstrap"))
    return clusters


def _is_address(bootstrap: str) -> bool:
    """Any other mistake in it is already reported."""
    try:
        return bool(parse_bootstrap(bootstrap))
    except BadBootstrap:
        return False


def _topics_used(pipeline: Pipeline, diagnostics: Diagnostics) -> Iterator[_Use]:
    """Without invalid topic names: those are already reported."""
    return (use for use in _all_topics_used(pipeline, diagnostics) if is_legal_topic(use.topic))


def _all_topics_used(pipeline: Pipeline, diagnostics: Diagnostics) -> Iterator[_Use]:
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            path = ("sources", source.name)
            key = "topics" if diagnostics.lines.has((*path, "topics")) else "topic"
            for topic in source.topics:
                yield _Use((*path, key), source.bootstrap, topic, is_read=True)
            if source.dead_letter_topic:
                yield _Use((*path, "dead_letters"), source.bootstrap, source.dead_letter_topic, is_read=False)
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink):
            yield _Use(("sinks", sink.name, "topic"), sink.bootstrap, sink.topic, is_read=False)
        elif isinstance(sink, TableSink) and sink.dead_letter_topic and sink.dead_letter_bootstrap:
            where = ("sinks", sink.name, "dead_letters")
            yield _Use(where, sink.dead_letter_bootstrap, sink.dead_letter_topic, is_read=False)


def _check_pattern(source: TopicSource, response: ClusterResponse | None, diagnostics: Diagnostics) -> None:
    if response is not None and not any(map(source.reads, response.topics)):
        sentence = f"no topic matches '{source.pattern}' yet; the source waits until one is created"
        diagnostics.report(("sources", source.name, "pattern"), sentence, is_warning=True)


def ask_cluster(bootstrap: str) -> ClusterResponse:
    from tidelog.client.network.in_flight import ConnectionLost
    from tidelog.client.network.retries import GaveUp, reason_of
    from tidelog.config.client import BadClientSettings
    from tidelog.errors import KafkaError

    try:
        return asyncio.run(asyncio.wait_for(_ask(bootstrap), 2 * TIMEOUT_S))
    except TimeoutError:
        raise NoResponse(f"no response within {2 * TIMEOUT_S:.0f} s") from None
    except (BadClientSettings, ConnectionLost, GaveUp, KafkaError) as error:
        raise NoResponse(reason_of(error).removeprefix(f"cannot connect to {bootstrap}: ")) from error


async def _ask(bootstrap: str) -> ClusterResponse:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.network.secured_network import secured_network
    from tidelog.client.routing.cluster import Cluster
    from tidelog.config.client import default_client_security
    from tidelog.runtime.randomness import SystemRandomness

    network = secured_network(default_client_security(), MAX_FRAME_BYTES)
    async with Cluster(network, parse_bootstrap(bootstrap), SystemRandomness()) as cluster:
        metadata = await cluster.ask_topics(None)
        settings = await Admin(cluster, timeout_s=TIMEOUT_S).broker_settings(min(metadata.brokers))
        creates = next((entry.value for entry in settings.configs if entry.name == AUTO_CREATE), "true")
        return ClusterResponse(frozenset(metadata.topics), creates_topics=creates != "false")
