"""CRC-32C, the checksum of record batches and of snapshots."""

import importlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TypeAlias

from tidelog.types import Buffer

Checksum: TypeAlias = Callable[[Buffer], int]

PACKAGE = "crc32c"
COMPILED_PART = "crc32c._crc32c"


def _load() -> ModuleType:
    """Import only the compiled part: the package itself reads the metadata of installed packages for its version,
    which would take a tenth of a broker's startup time."""
    package = PathFinder.find_spec(PACKAGE)
    compiled = package and PathFinder.find_spec(COMPILED_PART, package.submodule_search_locations)
    if not compiled or not compiled.loader:
        return importlib.import_module(PACKAGE)
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module


crc32c: Checksum = _load().crc32c
