"""Python that belongs to a pipeline: modules with `build(spark)`, and the functions of steps."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tidelog.pipelines.definition.durations import BadQuantity, duration_ms
from tidelog.pipelines.definition.mistakes import Mistake, Mistakes, nearest
from tidelog.pipelines.definition.model import ModulePipeline
from tidelog.pipelines.definition.parse_formats import located
from tidelog.pipelines.running.pipeline_state import PIPELINE_NAME

CONSTANTS = ("NAME", "TRIGGER", "CHECKPOINT", "SPARK")
"""What a module may say about its pipeline, besides build(spark)."""

NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"


class BadFunction(Exception):
    """The message says what is wrong, in one sentence."""


class NeedsSpark(BadFunction):
    """The module cannot be imported here, and perhaps can where Spark runs."""


@contextmanager
def importing_from(directory: Path) -> Generator[None]:
    """Modules beside the pipeline's file come first."""
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(directory))


def load_function(reference: str, directory: Path) -> Callable[..., Any]:
    """The function that `module:name` means; raises BadFunction."""
    module_name, _, name = reference.partition(":")
    module = _import(module_name, directory)
    function = getattr(module, name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadFunction(f"module {module_name} has no function '{name}'{nearest(name, functions)}")
    if not callable(function):
        raise BadFunction(f"'{name}' of module {module_name} is not a function")
    return function  # type: ignore[no-any-return]


def refuse_arguments(function: Callable[..., Any], reference: str, arguments: Mapping[str, object]) -> None:
    """Raises BadFunction if it cannot be called with a DataFrame and these."""
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise BadFunction(f"{reference} is called with a DataFrame and the arguments given, but: {error}") from None
    except ValueError:
        pass  # some functions written in C do not tell their parameters


def _import(name: str, directory: Path) -> ModuleType:
    with importing_from(directory):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                beside = [path.stem for path in directory.glob("*.py")]
                raise BadFunction(
                    f"there is no module '{name}', not beside the pipeline's file nor installed{nearest(name, beside)}"
                ) from None
            raise BadFunction(f"module {name} cannot be imported: {error}") from error
        except (Exception, SystemExit) as error:
            if _asks_for_spark(error):
                place = f" in line {line}" if (line := _line_in_module(name, error)) else ""
                raise NeedsSpark(
                    f"module {name} needs a running Spark{place},"
                    " so that its function is only looked for when the pipeline starts"
                ) from error
            raise BadFunction(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _asks_for_spark(error: BaseException) -> bool:
    """PySpark makes columns, and types from their names, only where a session is."""
    raised_by = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    is_question = isinstance(error, AssertionError) or NO_SESSION in str(error)
    return is_question and raised_by.startswith("pyspark.") and not _runs_spark()


def _runs_spark() -> bool:
    return getattr(sys.modules["pyspark"].SparkContext, "_active_spark_context", None) is not None


def _line_in_module(name: str, error: BaseException) -> int | None:
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == name]
    return lines[-1] if lines else None


# -- pipelines that are modules


def import_pipeline_module(file: Path) -> ModuleType:
    """Raises Mistakes, with the line of the file where its own code failed."""
    if not file.is_file():
        raise Mistakes(file, [Mistake(None, "", "No such file or directory")])
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with importing_from(file.parent):
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise Mistakes(file, [Mistake(error.lineno, "", f"not Python: {error.msg}")]) from None
        except (Exception, SystemExit) as error:
            sentence = f"the module cannot be imported: {type(error).__name__}: {error}"
            if _asks_for_spark(error):
                sentence = "this needs a running Spark; do it within build(spark)"
            raise Mistakes(file, [Mistake(_line_in(file, error), "", sentence)]) from error
    return module


def load_module(path: Path) -> ModulePipeline:
    """What the module says about its pipeline; raises Mistakes."""
    file = path.absolute()
    module = import_pipeline_module(file)
    constants = {name: getattr(module, name) for name in CONSTANTS if hasattr(module, name)}
    mistakes = [Mistake(None, where, sentence) for where, sentence in _mistakes_of(module, constants)]
    name = str(constants.get("NAME", file.stem))
    if not PIPELINE_NAME.fullmatch(name):
        sentence = f"'{name}' cannot be a pipeline's name: letters, digits, '.', '_' and '-' make a name"
        mistakes.append(Mistake(None, "NAME", sentence))
    if mistakes:
        raise Mistakes(path, mistakes)
    checkpoint = constants.get("CHECKPOINT")
    return ModulePipeline(
        name=name,
        file=file,
        checkpoint=located(str(checkpoint), file.parent) if checkpoint else None,
        trigger_ms=duration_ms(constants.get("TRIGGER", "0 ms")),
        spark={key: str(value) for key, value in constants.get("SPARK", {}).items()},
    )


def _mistakes_of(module: ModuleType, constants: Mapping[str, object]) -> Generator[tuple[str, str]]:
    build = getattr(module, "build", None)
    if not callable(build):
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        yield "build", f"a pipeline's module needs a function build(spark){nearest('build', functions)}"
    else:
        try:
            inspect.signature(build).bind(None)
        except TypeError:
            yield "build", "build is called with one argument, the Spark session: def build(spark)"
    if not isinstance(constants.get("SPARK", {}), dict):
        yield "SPARK", "expected a dict of Spark's settings"
    try:
        duration_ms(str(constants.get("TRIGGER", "0 ms")))
    except BadQuantity as error:
        yield "TRIGGER", str(error)


def _line_in(file: Path, error: BaseException) -> int | None:
    """The last line of the file that was at work when the error came."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
