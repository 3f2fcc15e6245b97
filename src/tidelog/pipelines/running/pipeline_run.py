"""`tidelog pipeline run`: Spark session, queries, output, signals and shutdown of one run."""

import logging
import os
import re
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tidelog.pipelines.definition.model import AnyPipeline, JdbcSource, Pipeline
from tidelog.pipelines.running.failures import JAVA_FRAME, PipelineFailed, failure_of_exception
from tidelog.pipelines.running.live_view import Screen, make_screen
from tidelog.pipelines.running.metrics import MetricsEndpoint
from tidelog.pipelines.running.pipeline_state import UI, PipelineState, RunState
from tidelog.pipelines.running.progress import PipelineProgress
from tidelog.pipelines.running.query_runner import Runner
from tidelog.pipelines.running.run_options import RunOptions
from tidelog.spark.spark_session import silence_query_loggers
from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

FOOTER = "Ctrl-C stops after the current micro-batch; press it twice to stop at once"
REPORT_EVERY_S = 1.0
LOG_BYTES_MAX = 16 * 1024 * 1024
"""A longer log is renamed when the next run starts, and replaces the previous old log."""
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)
NO_REASON = re.compile(rf"^{JAVA_FRAME.pattern}|spark-class: line \d+: CMD: bad array subscript")
"""The second is what Spark's script prints after a Java that did not start."""
ERROR_WORDS = re.compile(r"error|exception|unrecognized|invalid|no such file|not found|cannot", re.IGNORECASE)
STOP_SETTINGS = {"spark.sql.streaming.stopTimeout": "30s", "spark.ui.showConsoleProgress": "false"}


def run_pipeline(pipeline: AnyPipeline, options: RunOptions) -> int:
    """Returns the exit code. Raises StateRejected if the pipeline is already running."""
    state = PipelineState(options.state_directory, pipeline.name)
    with state.running(pipeline.file):
        return Run(pipeline, options, state).run()


class Run:
    def __init__(self, pipeline: AnyPipeline, options: RunOptions, state: PipelineState) -> None:
        self._pipeline = pipeline
        self._options = options
        self._state = state
        self._screen: Screen = make_screen(FOOTER, is_wanted=options.has_view)
        self._reported_s = 0.0
        self._runner: Runner | None = None
        self._ui: str | None = None
        """Address of Spark's own page of this run; None if `spark.ui.enabled` is false."""
        self._is_asked_to_stop = False

    def run(self) -> int:
        with logging_to(self._state.log_file):
            return self._exit_code()

    def _exit_code(self) -> int:
        try:
            with ExitStack() as stack:
                try:
                    self._run(stack)
                except KeyboardInterrupt:
                    self._interrupted()
        except PipelineFailed as failed:
            logger.exception("pipeline failed")
            return self._fail(str(failed))
        except KeyboardInterrupt:
            self._interrupted()
        except Exception as error:
            logger.exception("pipeline failed")
            return self._fail(failure_of_exception(error).sentence)
        self._state.report(RunState.STOPPED)
        return 0

    def _run(self, stack: ExitStack) -> None:
        stack.enter_context(self._signals())
        self._screen.say(f"{self._pipeline.name}: starting Spark")
        spark = start_session(self._pipeline, self._options, self._state)
        stack.callback(spark.stop)
        self._ui = spark.sparkContext.uiWebUrl
        self._listen()
        runner = Runner(spark, self._pipeline, state=self._state, once=self._options.is_once, say=self._say_and_log)
        if self._options.metrics_port is not None:
            endpoint = _endpoint(self._options.metrics_port, runner)
            stack.callback(endpoint.close)
            self._screen.say(f"metrics: {endpoint.address}")
        runner.start()
        self._runner = runner
        self._state.report(RunState.RUNNING)
        self._screen.say(f"{self._pipeline.name}: running")
        try:
            runner.run(self._on_progress, self._on_stopping)
        finally:
            self._report(runner.progress())
        self._screen.say(self._end(runner))

    def _end(self, runner: Runner) -> str:
        queries = runner.progress().queries
        counts = ", ".join(f"{plural(query.rows_out, 'row')} to {query.name}" for query in queries)
        return f"{self._pipeline.name}: {'stopped' if self._is_asked_to_stop else 'done'}, {counts}"

    def _on_progress(self, progress: PipelineProgress) -> None:
        self._screen.show(progress)
        if progress.uptime_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = progress.uptime_s
            self._report(progress)

    def _report(self, progress: PipelineProgress) -> None:
        self._state.report(progress=progress.as_json() | {UI: self._ui})

    def _say_and_log(self, line: str) -> None:
        logger.warning("%s", line)
        self._screen.say(line)

    def _on_stopping(self) -> None:
        self._state.report(RunState.STOPPING)
        self._say_and_log(f"{self._pipeline.name}: stopping after the current micro-batches")

    @contextmanager
    def _signals(self) -> Generator[None]:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self._listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _listen(self) -> None:
        """Called again after Spark's start, which installs its own SIGINT handler."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """The first signal stops after the current micro-batches, if queries run; the second stops at once."""
        if self._runner is None or self._is_asked_to_stop:
            raise KeyboardInterrupt
        self._is_asked_to_stop = True
        self._runner.request_stop()

    def _fail(self, sentence: str) -> int:
        self._state.report(RunState.FAILED, error=sentence)
        sys.stderr.write(f"{self._pipeline.name}: {sentence}\n(see {self._state.log_file})\n")
        return 1

    def _interrupted(self) -> NoReturn:
        """Does not wait for Spark: the Java process ends with this one."""
        self._state.report(RunState.STOPPED)
        os._exit(INTERRUPTED)


def _endpoint(port: int, runner: Runner) -> MetricsEndpoint:
    try:
        return MetricsEndpoint(port, runner.progress)
    except OSError as error:
        raise PipelineFailed(f"cannot serve metrics on port {port}: {error.strerror}") from error


@contextmanager
def logging_to(file: Path) -> Generator[None]:
    """Sends all log output to the file, none to the terminal."""
    if file.exists() and file.stat().st_size > LOG_BYTES_MAX:
        file.replace(file.with_name(f"{file.stem}.old{file.suffix}"))
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    silence_query_loggers()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(level_before)
        root.removeHandler(handler)
        handler.close()


def start_session(pipeline: AnyPipeline, options: RunOptions, state: PipelineState) -> "SparkSession":
    """Java and the Python workers log to the file, and do not receive the terminal's Ctrl-C: we handle it."""
    from tidelog.spark.spark_session import register_source

    spark = start_bare_session(pipeline, options, state)
    register_source(spark)
    return spark


def start_bare_session(pipeline: AnyPipeline, options: RunOptions, state: PipelineState) -> "SparkSession":
    """Without `format("tidelog")`, which Spark looks up in a Python process."""
    from tidelog.spark import session

    settings = session_settings(pipeline, state)
    start_java(options.master, settings, state.log_file)
    spark = session(f"tidelog pipeline {pipeline.name}", options.master, settings)
    spark.sparkContext.setLogLevel("WARN")
    silence_accumulator_server(spark.sparkContext)
    return spark


def session_settings(pipeline: AnyPipeline, state: PipelineState) -> dict[str, str]:
    """Without a warehouse directory Spark would create one in the current directory."""
    warehouse = {"spark.sql.warehouse.dir": (state.directory / "warehouse").absolute().as_uri()}
    return {**STOP_SETTINGS, **warehouse, **without_pandas(), **pipeline.spark, **settings_of_jars(pipeline)}


def settings_of_jars(pipeline: AnyPipeline) -> dict[str, str]:
    """Drivers of databases: the driver process needs them on its class path, executors get them from it."""
    sources = pipeline.sources if isinstance(pipeline, Pipeline) else ()
    jars = [jar for source in sources if isinstance(source, JdbcSource) for jar in source.jars]
    if not jars:
        return {}

    def joined(name: str, separator: str) -> str:
        given = pipeline.spark.get(name)
        return separator.join(dict.fromkeys([*([given] if given else []), *jars]))

    return {name: joined(name, sep) for name, sep in (("spark.jars", ","), ("spark.driver.extraClassPath", ":"))}


def silence_accumulator_server(context: "SparkContext") -> None:
    """The accumulator server prints a traceback when Java goes away; log it instead."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: logger.info("accumulator server lost its connection to Java", exc_info=True)


def without_pandas() -> dict[str, str]:
    """Plain UDFs use Arrow by default, which warns if pandas is not installed."""
    return {} if find_spec("pandas") else {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}


def start_java(master: str | None, settings: dict[str, str], log_file: Path) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    from tidelog.spark.spark_session import prepare_environment

    if SparkContext._gateway is not None:
        return
    prepare_environment(master, settings)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log_file.open("ab") as output:
        start = output.tell()
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output, "start_new_session": True})  # type: ignore[no-untyped-call]
        except Exception as error:
            raise PipelineFailed(f"Java did not start: {_reason_in(log_file, start) or _silent_java()}") from error
    SparkContext._ensure_initialized(gateway=gateway)


def _silent_java() -> str:
    return f"{Path(os.environ.get('JAVA_HOME', ''), 'bin', 'java')} ended without a message"


def _reason_in(log_file: Path, start: int) -> str:
    """What Java or Spark's launcher printed last about a start that failed; empty if nothing."""
    with log_file.open("rb") as log:
        log.seek(start)
        lines = log.read().decode("utf-8", "replace").splitlines()
    lines = [line.strip() for line in lines if line.strip() and not NO_REASON.search(line)]
    with_error_words = [line for line in lines if ERROR_WORDS.search(line)]
    return (with_error_words or lines[-1:] or [""])[0]
