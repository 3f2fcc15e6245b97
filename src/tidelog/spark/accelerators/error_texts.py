"""Error texts for users: our one sentence, without the stack trace of the Python process.

PySpark reads an environment variable to decide whether to drop the stack, after an error has ended its process. The
variable is set only when an error for users leaves our code, so that bugs keep their stack.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.spark.accelerators.switches import Accelerator, is_on
from tidelog.spark.errors import SourceError
from tidelog.spark.options.values import OptionError

HIDE_STACK = "SPARK_HIDE_TRACEBACK"
FOR_USERS = (OptionError, SourceError)


@contextmanager
def only_the_sentence() -> Iterator[None]:
    """Context manager or decorator of what Spark calls. Not for generators, which have not run when they return."""
    try:
        yield
    except FOR_USERS:
        if is_on(Accelerator.ERROR_TEXTS) and is_process_of_spark():
            os.environ[HIDE_STACK] = "1"
        raise


def is_process_of_spark() -> bool:
    """True in a process that Spark started and that ends with the error; False in a user's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
