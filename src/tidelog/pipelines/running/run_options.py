"""How a pipeline is to be run, apart from what its file says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunOptions:
    state_directory: str
    """Where the state of all pipelines is: `PipelineState(state_directory, pipeline.name)`."""
    is_once: bool = False
    """Work off what is there now, then end."""
    master: str | None = None
    """Spark's master; None: all cores of this machine."""
    metrics_port: int | None = None
    """Where to show metrics for Prometheus; None: nowhere."""
    has_view: bool = True
    """Show how it goes, redrawn on a terminal; else only what happens, line by line."""
