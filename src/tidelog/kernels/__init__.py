"""Record kernels: the compiled `records.py`, or the same source interpreted if it was not compiled.

The build hook (`hatch_build.py`) compiles `records.py` into `_compiled/`. The library is named after the hash of its
source, and only the library of the current source is loaded: after a change, the source runs interpreted until the next
build. Both give the same results. TIDELOG_KERNELS=interpreted selects the interpreted one, for tests.
"""

import hashlib
import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from os.path import dirname, exists, join
from types import ModuleType
from typing import TYPE_CHECKING, Final

SWITCH: Final = "TIDELOG_KERNELS"
_HERE: Final = dirname(__file__)
_HASH_DIGITS: Final = 16


def load_compiled() -> ModuleType | None:
    """The library compiled from the current source; None if there is none or it cannot be loaded."""
    try:
        with open(join(_HERE, "records.py"), "rb") as source:
            digest = hashlib.sha256(source.read()).hexdigest()[:_HASH_DIGITS]
        path = join(_HERE, "_compiled", f"records-{digest}{EXTENSION_SUFFIXES[0]}")
        spec = spec_from_file_location("tidelog.kernels._compiled.records", path)
        if spec is None or spec.loader is None or not exists(path):
            return None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, OSError):
        return None
    return module


def _choose() -> tuple[ModuleType, bool]:
    compiled = None if os.environ.get(SWITCH) == "interpreted" else load_compiled()
    if compiled is not None:
        return compiled, True
    from tidelog.kernels import records

    return records, False


if TYPE_CHECKING:
    from tidelog.kernels import records as kernels

    is_compiled: bool
else:
    kernels, is_compiled = _choose()

INTERPRETED_WARNING: Final = (
    "record kernels run interpreted, about 100 times slower: install a C compiler and reinstall"
)

__all__ = ["INTERPRETED_WARNING", "SWITCH", "is_compiled", "kernels", "load_compiled"]
