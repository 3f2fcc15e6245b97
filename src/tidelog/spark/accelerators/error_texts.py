"""What Spark tells users of an error of ours: the sentence alone, without the stack of the Python process before it.

PySpark reads from the environment whether to leave the stack out, when an error has ended its process. So the variable
is set in the very moment in which such an error leaves us, and an error that is a bug keeps its stack.
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
    """Around, or as the decorator of, what Spark calls; not of a generator, which has not run when it returns."""
    try:
        yield
    except FOR_USERS:
        if is_on(Accelerator.ERROR_TEXTS) and is_process_of_spark():
            os.environ[HIDE_STACK] = "1"
        raise


def is_process_of_spark() -> bool:
    """One that Spark started for us, and that ends with the error; not a user's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
