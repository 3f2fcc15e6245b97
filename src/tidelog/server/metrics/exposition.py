"""Prometheus text format, generated in pieces: thousands of partitions must not block the event loop.

The format needs a few lines of code. The client library of Prometheus would cost a broker 7 MB and 50 ms.
"""

from collections.abc import Iterable, Iterator

from tidelog.server.metrics.metric import Kind, Metric
from tidelog.server.metrics.reading import Reading

LINES_AT_A_TIME = 100

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def pieces(metrics: Iterable[Metric], reading: Reading) -> Iterator[bytes]:
    """Pieces of a hundred lines. An empty piece follows each metric, which may have visited thousands of partitions."""
    lines: list[str] = []
    for metric in metrics:
        for line in metric_lines(metric, reading):
            lines.append(line)
            if len(lines) >= LINES_AT_A_TIME:
                yield _joined(lines)
                lines = []
        yield b""
    yield _joined(lines)


def metric_lines(metric: Metric, reading: Reading) -> Iterator[str]:
    name = metric.name
    yield f"# HELP {name} {_help(metric)}"
    yield f"# TYPE {name} {metric.kind.value}"
    samples = list(metric.read(reading))  # in one step: what it iterates over may change between two pieces
    for position, (values, value) in enumerate(samples):
        yield f"{name}{_suffix(metric.kind, position, values)}{_labels(metric.labels, values)} {_number(value)}"


def _suffix(kind: Kind, position: int, values: tuple[object, ...]) -> str:
    if kind is Kind.SUMMARY:
        return ("_count", "_sum")[position % 2]
    if kind is Kind.HISTOGRAM:
        return "_bucket" if values[-1] != "" else "_count"
    return ""


def _help(metric: Metric) -> str:
    origin = f" ({metric.origin})" if metric.is_kafkas else ""
    return f"{metric.documentation}{origin}".translate(_HELP_ESCAPES)


def _labels(names: tuple[str, ...], values: tuple[object, ...]) -> str:
    pairs = [
        f'{name}="{str(value).translate(_LABEL_ESCAPES)}"'
        for name, value in zip(names, values, strict=True)
        if value != ""
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return repr(int(value)) if isinstance(value, int) else repr(value)


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
