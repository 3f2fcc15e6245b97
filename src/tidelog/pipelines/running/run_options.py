"""Options of a pipeline run that are not in the pipeline file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunOptions:
    state_directory: str
    """State of all pipelines: `PipelineState(state_directory, pipeline.name)`."""
    is_once: bool = False
    """Process the records that exist now, then end."""
    master: str | None = None
    """Spark master; None: all cores of this machine."""
    metrics_port: int | None = None
    """Port for Prometheus metrics; None: no metrics."""
    has_view: bool = True
    """Live display in a terminal; otherwise only lines."""
