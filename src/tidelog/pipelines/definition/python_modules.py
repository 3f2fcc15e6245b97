"""Python code of a pipeline: modules with `build(spark)`, and functions of steps."""

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
from tidelog.pipelines.definition.parse_formats import resolve_location
from tidelog.pipelines.running.pipeline_state import PIPELINE_NAME

CONSTANTS = ("NAME", "TRIGGER", "CHECKPOINT", "SPARK")
"""Constants of a module that configure its pipeline."""

NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"


class BadFunction(Exception):
    """The function cannot be used; the message says why."""


class NeedsSpark(BadFunction):
    """The module can only be imported while a Spark session runs."""


@contextmanager
def importing_from(directory: Path) -> Generator[None]:
    """Modules beside the pipeline file take precedence."""
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(directory))


def load_function(reference: str, directory: Path) -> Callable[..., Any]:
    """The function of `module:name`; raises BadFunction."""
    module_name, _, name = reference.partition(":")
    module = _import(module_name, directory)
    function = getattr(module, name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadFunction(f"module {module_name} has no function '{name}'{nearest(name, functions)}")
    if not callable(function):
        raise BadFunction(f"'{name}' of module {module_name} is not a function")
    return function  # type: ignore[no-any-return]


def check_arguments(function: Callable[..., Any], reference: str, arguments: Mapping[str, object]) -> None:
    """Raises BadFunction if the function cannot be called with a DataFrame and these arguments."""
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise BadFunction(f"{reference} cannot be called with a DataFrame and the given arguments: {error}") from None
    except ValueError:
        pass  # functions written in C may have no signature


def _import(name: str, directory: Path) -> ModuleType:
    with importing_from(directory):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                beside = [path.stem for path in directory.glob("*.py")]
                raise BadFunction(
                    f"there is no module '{name}', neither beside the pipeline file nor"
                    f" installed{nearest(name, beside)}"
                ) from None
            raise BadFunction(f"module {name} cannot be imported: {error}") from error
        except (Exception, SystemExit) as error:
            if _needs_session(error):
                place = f" in line {line}" if (line := _line_in_module(name, error)) else ""
                raise NeedsSpark(
                    f"module {name} needs a running Spark session{place};"
                    " its function is checked when the pipeline starts"
                ) from error
            raise BadFunction(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _needs_session(error: BaseException) -> bool:
    """True for PySpark's errors without a session: columns and types need one."""
    raised_by = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    is_question = isinstance(error, AssertionError) or NO_SESSION in str(error)
    return is_question and raised_by.startswith("pyspark.") and not _has_session()


def _has_session() -> bool:
    return getattr(sys.modules["pyspark"].SparkContext, "_active_spark_context", None) is not None


def _line_in_module(name: str, error: BaseException) -> int | None:
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == name]
    return lines[-1] if lines else None


def import_pipeline_module(file: Path) -> ModuleType:
    """Raises Mistakes, with the failing line of the file."""
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
            raise Mistakes(file, [Mistake(error.lineno, "", f"syntax error: {error.msg}")]) from None
        except (Exception, SystemExit) as error:
            sentence = f"the module cannot be imported: {type(error).__name__}: {error}"
            if _needs_session(error):
                sentence = "this needs a running Spark session; move it into build(spark)"
            raise Mistakes(file, [Mistake(_line_in(file, error), "", sentence)]) from error
    return module


def load_module(path: Path) -> ModulePipeline:
    """The pipeline that the module defines; raises Mistakes."""
    file = path.absolute()
    module = import_pipeline_module(file)
    constants = {name: getattr(module, name) for name in CONSTANTS if hasattr(module, name)}
    mistakes = [Mistake(None, where, sentence) for where, sentence in _mistakes_of(module, constants)]
    name = str(constants.get("NAME", file.stem))
    if not PIPELINE_NAME.fullmatch(name):
        sentence = f"'{name}' is not a valid pipeline name: use letters, digits, '.', '_' and '-'"
        mistakes.append(Mistake(None, "NAME", sentence))
    if mistakes:
        raise Mistakes(path, mistakes)
    checkpoint = constants.get("CHECKPOINT")
    return ModulePipeline(
        name=name,
        file=file,
        checkpoint=resolve_location(str(checkpoint), file.parent) if checkpoint else None,
        trigger_ms=duration_ms(constants.get("TRIGGER", "0 ms")),
        spark={key: str(value) for key, value in constants.get("SPARK", {}).items()},
    )


def _mistakes_of(module: ModuleType, constants: Mapping[str, object]) -> Generator[tuple[str, str]]:
    build = getattr(module, "build", None)
    if not callable(build):
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        yield "build", f"a pipeline module needs a function build(spark){nearest('build', functions)}"
    else:
        try:
            inspect.signature(build).bind(None)
        except TypeError:
            yield "build", "build must take one argument, the Spark session: def build(spark)"
    if not isinstance(constants.get("SPARK", {}), dict):
        yield "SPARK", "expected a dict of Spark settings"
    try:
        duration_ms(str(constants.get("TRIGGER", "0 ms")))
    except BadQuantity as error:
        yield "TRIGGER", str(error)


def _line_in(file: Path, error: BaseException) -> int | None:
    """The last line of the file in the traceback."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
