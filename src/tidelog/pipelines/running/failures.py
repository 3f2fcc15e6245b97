"""Classification of query failures: one sentence for the user, and whether the cause is transient."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.errors import CorruptMessage, RetriableError
from tidelog.spark.errors import BrokersUnavailable

PASSING_CLASSES: tuple[type[BaseException], ...] = (
    RetriableError,
    ConnectionLost,
    GaveUp,
    BrokersUnavailable,
    ConnectionError,
    TimeoutError,
)
LASTING_CLASSES: tuple[type[BaseException], ...] = (CorruptMessage,)
"""Kafka's clients retry on it, but a corrupt batch on disk stays corrupt."""

MAX_SENTENCE_LENGTH = 1000

QUERY_DESCRIPTION = "=== Streaming Query ==="
JAVA_FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ more)")

BAD_RECORD = "bad record: "
"""Marks our sentence about a bad record, so that it can be found in Spark's error text."""


@dataclass(frozen=True, slots=True)
class Failure:
    sentence: str
    is_transient: bool = False


class PipelineFailed(Exception):
    """The pipeline cannot run; the message is the sentence for the user."""


class StepFailed(PipelineFailed):
    """A source, step or sink could not be set up."""

    def __init__(self, sentence: str, *, is_transient: bool = False) -> None:
        super().__init__(sentence)
        self.is_transient = is_transient


def failure_of(text: str) -> Failure:
    """`text` is the whole error text: exception messages, causes, tracebacks of Python and Java."""
    message = text.partition(QUERY_DESCRIPTION)[0]
    for explain in EXPLANATIONS:
        failure = explain(message)
        if failure is not None:
            return Failure(_shortened(failure.sentence), failure.is_transient)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return Failure(_shortened(_without_class(lines[0]) if lines else "Spark gave no reason"))


def failure_of_exception(error: BaseException) -> Failure:
    """Includes the causes: once the Java process is gone, later calls fail for other reasons."""
    messages = []
    earlier: BaseException | None = error
    while earlier is not None:
        messages.append(f"{_name_of(type(earlier))}: {earlier}")
        earlier = earlier.__context__
    return failure_of("\n".join(messages))


def _name_of(kind: type[BaseException]) -> str:
    """Of our own classes with the module, as in a stack trace."""
    return f"{kind.__module__}.{kind.__name__}" if kind.__module__.startswith("tidelog.") else kind.__name__


def step_failure(step: str, text: str) -> StepFailed:
    failure = failure_of(text)
    return StepFailed(f"{step}: {failure.sentence}", is_transient=failure.is_transient)


def with_causes(message: str, trace: str) -> str:
    """Spark's message of a failed query, with the causes from the Java stack trace.

    The message alone has the text of the cause, which may be just "null", and not its exception class.
    """
    causes = [line for line in trace.splitlines() if not JAVA_FRAME.match(line)]
    return "\n".join([message.partition(QUERY_DESCRIPTION)[0], *causes])


def _bad_record(text: str) -> Failure | None:
    found = re.search(rf"\[USER_RAISED_EXCEPTION\] {BAD_RECORD}(.+?)(?: SQLSTATE:|$)", text, re.MULTILINE)
    return None if found is None else Failure(found[1].strip())


OURS = re.compile(r"(?:^|: )(tidelog(?:\.\w+)+)\.([A-Z]\w*): (.+)$", re.MULTILINE)
"""At the end of a stack trace, or after Spark's own text."""


def _own_error(text: str) -> Failure | None:
    """The last one is the error that was raised; those before are its causes."""
    found = OURS.findall(text)
    if not found:
        return None
    module, name, sentence = found[-1]
    return Failure(sentence.strip(), _passes(_class_named(module, name)))


def _class_named(module: str, name: str) -> type | None:
    try:
        found = getattr(import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) else None


def _passes(kind: type | None) -> bool:
    return kind is not None and issubclass(kind, PASSING_CLASSES) and not issubclass(kind, LASTING_CLASSES)


JAVA_GONE = re.compile(
    r"Py4JNetworkError|Answer from Java side is empty|Error while sending or receiving", re.IGNORECASE
)


def _java_gone(text: str) -> Failure | None:
    return Failure("Spark's Java process ended unexpectedly") if JAVA_GONE.search(text) else None


EXECUTOR_TROUBLE = (
    (
        re.compile(r"ExecutorLostFailure|ExecutorDeadException|executor .{0,80}(?:lost|exited)", re.IGNORECASE),
        "a Spark executor was lost",
    ),
    (
        # Arrow's reader, when the worker ends in the middle of what it sends.
        re.compile(r"Python worker exited unexpectedly|java\.io\.IOException: Unexpected end of (?:input|stream)"),
        "a Python worker of Spark exited",
    ),
    (re.compile(r"Python worker failed to connect back"), "a Python worker of Spark did not start in time"),
    (re.compile(r"FetchFailed|MetadataFetchFailed"), "shuffle data was lost with an executor"),
)


def _executor_trouble(text: str) -> Failure | None:
    for pattern, sentence in EXECUTOR_TROUBLE:
        if pattern.search(text):
            return Failure(sentence, is_transient=True)
    return None


PYTHON_CONNECTION = re.compile(
    r"^(ConnectionRefusedError|ConnectionResetError|ConnectionAbortedError|BrokenPipeError|TimeoutError"
    r"|socket\.gaierror): ?(.*)$",
    re.MULTILINE,
)
JAVA_CONNECTION = re.compile(
    r"java\.(?:net\.\w*Exception|io\.EOFException|nio\.channels\.\w*Exception"
    r"|io\.IOException(?=: (?:Broken pipe|Connection reset)))(?:: (.*))?"
)


def _connection(text: str) -> Failure | None:
    found = PYTHON_CONNECTION.findall(text)
    if found:
        return Failure(f"a connection was lost: {found[-1][1] or found[-1][0]}", is_transient=True)
    java = JAVA_CONNECTION.search(text)
    return Failure(f"a connection was lost: {java[1] or 'a Spark process exited'}", is_transient=True) if java else None


TRACEBACK = "Traceback (most recent call last):"
PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|\w+)): (.*)$")
PYTHON_PLACE = re.compile(r'^ +File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
NOT_OF_THE_USER = re.compile(r"pyspark|py4j|/lib/python3|^<|[/\\]tidelog[/\\]")


def _python_error(text: str) -> Failure | None:
    """An error in user code: the exception and its place in the traceback."""
    if TRACEBACK not in text:
        return None
    traceback = text.rpartition(TRACEBACK)[2]
    raised = [found for line in traceback.splitlines() if (found := PYTHON_ERROR.match(line))]
    if not raised or SPARK_CLASS.match(raised[0][2]):
        return None
    places = [place for place in PYTHON_PLACE.findall(traceback) if not NOT_OF_THE_USER.search(place[0])]
    where = f" ({places[-1][0]}, line {places[-1][1]}, in {places[-1][2]})" if places else ""
    name = raised[0][1].rpartition(".")[2]
    return Failure(f"{name}: {raised[0][2].strip()}{where}")


SPARK_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ")
END_OF_MESSAGE = re.compile(r"\.? SQLSTATE|; line \d|\n\n")
PLACE_IN_SQL = re.compile(r"[(;] ?line (\d+),? pos \d+")
WRAPPERS = frozenset({"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF"})
"""Error classes that only wrap another error."""


def _spark_error(text: str) -> Failure | None:
    """The deepest error of Spark, and the error below it that is not Spark's own."""
    causes = CAUSED_BY.split(text)
    for depth in range(len(causes) - 1, -1, -1):
        for found in SPARK_CLASS.finditer(causes[depth]):
            if found[1] not in WRAPPERS:
                rest = causes[depth][found.end() :]
                sentence = " ".join(END_OF_MESSAGE.split(rest, maxsplit=1)[0].split()).rstrip(".;")
                below = _deepest_message(causes[depth + 1 :])
                sentence += f": {below}" if below and below not in sentence else ""
                return Failure(sentence + _line_of_sql(rest))
    return None


def _line_of_sql(text: str) -> str:
    """Only for SQL of several lines."""
    line = line_in_sql(text)
    return f" (line {line} of the SQL)" if line is not None and line != 1 else ""


def line_in_sql(text: str) -> int | None:
    """The line of the SQL that Spark's error text names, counted from 1; Spark puts it at the end of the message."""
    place = PLACE_IN_SQL.search(text.partition("SQLSTATE")[2].partition("\n")[0])
    return int(place[1]) if place else None


def _java_cause(text: str) -> Failure | None:
    """The deepest cause in a Java stack trace that says something."""
    deepest = _deepest_message(CAUSED_BY.split(text)[1:])
    return Failure(deepest) if deepest else None


def _deepest_message(causes: Sequence[str]) -> str:
    """`causes` as after `Caused by:`; empty if none has a message."""
    for cause in reversed(causes):
        found = JAVA_MESSAGE.match(cause)
        if found is not None and found[1].strip() not in ("", "null"):
            return END_OF_MESSAGE.split(found[1], maxsplit=1)[0].strip().rstrip(".;")
    return ""


def _bare_stream_failure(text: str) -> Failure | None:
    """The reason in Spark's own wrapping of it: the failed query, the aborted job, the lost task."""
    found = STREAM_FAILED.match(text)
    if found is None:
        return None
    reason = LOST_TASK.sub("", found[1]).strip()
    return Failure(_without_class(END_OF_MESSAGE.split(reason, maxsplit=1)[0].strip())) if reason else None


CAUSED_BY = re.compile(r"^Caused by: ", re.MULTILINE)
JAVA_MESSAGE = re.compile(r"(?:[\w$]+\.)*[\w$]+: (.*)")
STREAM_FAILED = re.compile(r"\s*(?:\w+: )?\[STREAM_FAILED\] Query \[.*?\] terminated with exception: (.*)")
LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*?Lost task .*?\(.*?executor \S+\): ")
JAVA_ERROR = re.compile(r"^: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)


def _java_error(text: str) -> Failure | None:
    """The Java exception, which py4j prints on the line after its own."""
    found = JAVA_ERROR.search(text)
    return None if found is None else Failure(found[1].strip())


EXPLANATIONS: Sequence[Callable[[str], Failure | None]] = (
    _bad_record,
    _own_error,
    _java_gone,
    _executor_trouble,
    _connection,
    _python_error,
    _spark_error,
    _java_cause,
    _java_error,
    _bare_stream_failure,
)


def _without_class(line: str) -> str:
    return re.sub(r"^(?:[\w$]+\.)*\w+(?:Exception|Error): ", "", line).rstrip(";")


def _shortened(sentence: str) -> str:
    return sentence if len(sentence) <= MAX_SENTENCE_LENGTH else sentence[: MAX_SENTENCE_LENGTH - 3] + "..."


class Restarts:
    """Restart backoff of a query after transient failures; None: give up."""

    FIRST_PAUSE_S = 1.0
    MAX_PAUSE_S = 60.0
    TRIES_BEFORE_THE_FIRST_BATCH = 5
    """A query without a single batch may be waiting for a cluster that does not exist."""

    def __init__(self) -> None:
        self._failures = 0
        self._has_worked = False

    def on_batch(self) -> None:
        self._has_worked = True
        self._failures = 0

    def on_failure(self) -> float | None:
        self._failures += 1
        if not self._has_worked and self._failures >= self.TRIES_BEFORE_THE_FIRST_BATCH:
            return None
        doubled: float = self.FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10)
        return min(doubled, self.MAX_PAUSE_S)
