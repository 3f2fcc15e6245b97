"""Failures as Spark, Java and Python report them, and the one sentence that a user gets."""

import pytest

from tidelog.pipelines.running.failures import (
    Failure,
    Restarts,
    failure_of,
    failure_of_exception,
    step_failure,
    with_causes,
)
from tidelog.spark.errors import BrokersUnavailable
from tidelog.spark.spark_master import WrongMaster

PLAN = """
=== Streaming Query ===
Identifier: table [id = 2bc3d036, runId = 2dbfc8f9]
Logical Plan:
+- ~Filter raise_error(USER_RAISED_EXCEPTION, map(errorMessage, concat(bad record: , _topic#3)))
"""

IN_FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/app/x.py", line 50, in write
    raise OurError("the table at x has no column 'b'")
{error}
"""

IN_A_TASK = """Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 5.0 (TID 5) (127.0.0.1 executor driver): \
org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 1830, in main
    process()
  File "/home/me/steps.py", line 12, in price
    return 1 / amount
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""

ANALYSIS = (
    "AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name"
    " `amuont` cannot be resolved. Did you mean one of the following? [`amount`, `at`]. SQLSTATE: 42703;"
    " line 1 pos 7;\n'Project ['amuont]\n+- SubqueryAlias t\n"
)


def task_failing_with(line: str) -> str:
    return IN_A_TASK.replace("ZeroDivisionError: division by zero", line)


CASES: list[tuple[str, Failure]] = [
    (
        "[USER_RAISED_EXCEPTION] bad record: orders-0 at offset 5: the value is not JSON SQLSTATE: P0001" + PLAN,
        Failure("orders-0 at offset 5: the value is not JSON"),
    ),
    (
        IN_FOREACH_BATCH.format(error="tidelog.pipelines.running.failures.PipelineFailed: the table has no column 'b'")
        + PLAN,
        Failure("the table has no column 'b'"),
    ),
    (
        task_failing_with("tidelog.spark.errors.BrokersUnavailable: no broker answers at localhost:9"),
        Failure("no broker answers at localhost:9", is_transient=True),
    ),
    (
        task_failing_with("tidelog.spark.errors.UnknownTopic: topic 'ordres' does not exist"),
        Failure("topic 'ordres' does not exist"),
    ),
    (
        task_failing_with("tidelog.errors.CorruptMessage: orders-0: the batch at 100 has a wrong checksum"),
        Failure("orders-0: the batch at 100 has a wrong checksum"),
    ),
    (
        task_failing_with("tidelog.errors.NotLeaderOrFollower: orders-0 has moved"),
        Failure("orders-0 has moved", is_transient=True),
    ),
    (
        task_failing_with("tidelog.client.network.retries.GaveUp: the last error was x"),
        Failure("the last error was x", is_transient=True),
    ),
    (task_failing_with("tidelog.no.such.module.Error: something"), Failure("something")),
    (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception:"
        " [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source performs latestOffset:"
        " tidelog.spark.errors.BrokersUnavailable: no broker answers at localhost:9\n SQLSTATE: 38000 SQLSTATE: XXKST"
        + PLAN,
        Failure("no broker answers at localhost:9", is_transient=True),
    ),
    (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source reader:"
        " tidelog.spark.options.values.OptionError: Option 'x' is not known\n SQLSTATE: 38000",
        Failure("Option 'x' is not known"),
    ),
    (
        task_failing_with("ConnectionRefusedError: [Errno 111] Connect call failed"),
        Failure("a connection was lost: [Errno 111] Connect call failed", is_transient=True),
    ),
    (IN_A_TASK, Failure("ZeroDivisionError: division by zero (/home/me/steps.py, line 12, in price)")),
    (
        "Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times: ExecutorLostFailure (executor 1 exited)",
        Failure("a Spark executor was lost", is_transient=True),
    ),
    (
        "Python worker exited unexpectedly (crashed): EOFException",
        Failure("a Python worker of Spark exited", is_transient=True),
    ),
    (
        ANALYSIS,
        Failure(
            "A column, variable, or function parameter with name `amuont` cannot be resolved."
            " Did you mean one of the following? [`amount`, `at`]"
        ),
    ),
    (
        ANALYSIS.replace("line 1 pos 7", "line 12 pos 7"),
        Failure(
            "A column, variable, or function parameter with name `amuont` cannot be resolved."
            " Did you mean one of the following? [`amount`, `at`] (line 12 of the SQL)"
        ),
    ),
    (
        "ParseException: \n[PARSE_SYNTAX_ERROR] Syntax error at or near 'BY'. SQLSTATE: 42601 (line 4, pos 5)\n\n"
        "== SQL ==\nSELECT customer,\n  count(*)\nFROM orders\nGRUP BY customer\n-----^^^\n",
        Failure("Syntax error at or near 'BY' (line 4 of the SQL)"),
    ),
    (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function: "
        + IN_FOREACH_BATCH.format(error=f"pyspark.errors.exceptions.captured.{ANALYSIS}"),
        Failure(
            "A column, variable, or function parameter with name `amuont` cannot be resolved."
            " Did you mean one of the following? [`amount`, `at`]"
        ),
    ),
    (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [DIVIDE_BY_ZERO] Division by zero."
        " Use `try_divide`. SQLSTATE: 22012" + PLAN,
        Failure("Division by zero. Use `try_divide`"),
    ),
    ("org.apache.spark.SparkException: something else\n\tat org.apache.X", Failure("something else")),
    (
        "Py4JJavaError: An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: Could not parse Master URL: 'nonsense'\n\tat org.apache.spark.SparkContext",
        Failure("Could not parse Master URL: 'nonsense'"),
    ),
    (
        "py4j.protocol.Py4JNetworkError: Answer from Java side is empty",
        Failure("Spark's Java process ended unexpectedly"),
    ),
    (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Job aborted due to stage failure: Task 0"
        " in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (a executor driver):"
        " java.io.IOException: No space left on device SQLSTATE: XXKST" + PLAN,
        Failure("No space left on device"),
    ),
    (
        "org.apache.spark.SparkException: Job aborted\nCaused by: java.lang.RuntimeException: in a task\n"
        "Caused by: java.io.FileNotFoundException: File /data/x.csv does not exist\n"
        "Caused by: java.lang.NullPointerException: null",
        Failure("File /data/x.csv does not exist"),
    ),
    (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.json. SQLSTATE: KD001\n"
        "Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING] Malformed records are detected in"
        ' record parsing: [x]. SQLSTATE: 22023\nCaused by: java.lang.NumberFormatException: For input string: "x"',
        Failure('Malformed records are detected in record parsing: [x]: For input string: "x"'),
    ),
    (
        "AnalysisException: Sorting is not supported on streaming DataFrames/Datasets;\n~Sort [key ASC]",
        Failure("Sorting is not supported on streaming DataFrames/Datasets"),
    ),
    ("", Failure("Spark gave no reason")),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_failure_becomes_one_sentence(text: str, expected: Failure) -> None:
    assert failure_of(text) == expected


NO_REASON = "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: {} SQLSTATE: XXKST" + PLAN
FRAMES = "\n\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(X.scala:1)\n"


@pytest.mark.parametrize(
    ("message", "trace", "sentence"),
    [
        ("null", "java.io.EOFException", "a connection was lost: a Spark process exited"),
        ("Broken pipe", "java.io.IOException: Broken pipe", "a connection was lost: Broken pipe"),
        ("null", "java.nio.channels.ClosedChannelException", "a connection was lost: a Spark process exited"),
        (
            "Unexpected end of input trying to read batch.",
            "java.io.IOException: Unexpected end of input trying to read batch.",
            "a Python worker of Spark exited",
        ),
        (
            "Unexpected end of stream trying to read message.",
            "java.io.IOException: Unexpected end of stream trying to read message.",
            "a Python worker of Spark exited",
        ),
        (
            "Job aborted",
            "org.apache.spark.SparkException: Job aborted\nCaused by: java.net.SocketException: Connection reset",
            "a connection was lost: Connection reset",
        ),
    ],
)
def test_causes_say_what_the_message_does_not(message: str, trace: str, sentence: str) -> None:
    explained = with_causes(NO_REASON.format(message), trace + FRAMES)
    assert "scala" not in explained
    assert failure_of(explained) == Failure(sentence, is_transient=True)


def test_what_fails_after_java_is_gone_is_not_the_reason() -> None:
    rejected = ConnectionRefusedError(111, "Connection refused")
    rejected.__context__ = RuntimeError("Answer from Java side is empty")
    assert failure_of_exception(rejected) == Failure("Spark's Java process ended unexpectedly")


def test_an_error_of_ours_is_its_sentence() -> None:
    assert failure_of_exception(WrongMaster("'loca' is not a Spark master")) == Failure("'loca' is not a Spark master")
    assert failure_of_exception(BrokersUnavailable("no broker answers")) == Failure(
        "no broker answers", is_transient=True
    )


def test_a_full_disk_does_not_pass() -> None:
    full = "java.io.IOException: No space left on device"
    assert not failure_of(with_causes(NO_REASON.format("No space left on device"), full)).is_transient


def test_a_step_that_could_not_be_set_up_may_be_tried_again_if_the_reason_passes() -> None:
    assert step_failure("source orders", "Python worker exited unexpectedly (crashed)").is_transient
    assert not step_failure("step priced", ANALYSIS).is_transient


def test_a_sentence_has_an_end() -> None:
    assert len(failure_of("x" * 100_000).sentence) == 1000


def test_pauses_grow_to_a_minute_and_begin_again_after_a_batch() -> None:
    restarts = Restarts()
    restarts.on_batch()
    assert [restarts.on_failure() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    restarts.on_batch()
    assert restarts.on_failure() == 1


def test_without_any_batch_there_are_five_tries() -> None:
    restarts = Restarts()
    assert [restarts.on_failure() for _ in range(5)] == [1, 2, 4, 8, None]
