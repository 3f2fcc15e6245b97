"""Schema registries while a pipeline is checked: nothing is registered, and schemas are saved for checks offline."""

from dataclasses import replace
from pathlib import Path

from tidelog.pipelines.definition.model import Format, Pipeline, RegistryUse, Sink, Source, TopicSink, TopicSource

COPIES = "schemas"


def for_check(pipeline: Pipeline, state_directory: str, is_offline: bool) -> Pipeline:
    """The pipeline as it is checked. A registry saves schemas in its `copy`, by default in the state directory."""
    use = RegistryUse.OFFLINE if is_offline else RegistryUse.CHECK
    default = str(Path(state_directory, pipeline.name, COPIES))

    def changed(how: Format) -> Format:
        if how.registry is None:
            return how
        return replace(how, registry=replace(how.registry, use=use, copy=how.registry.copy or default))

    def source(each: Source) -> Source:
        return replace(each, format=changed(each.format)) if isinstance(each, TopicSource) else each

    def sink(each: Sink) -> Sink:
        return replace(each, format=changed(each.format)) if isinstance(each, TopicSink) else each

    return replace(pipeline, sources=tuple(map(source, pipeline.sources)), sinks=tuple(map(sink, pipeline.sinks)))
