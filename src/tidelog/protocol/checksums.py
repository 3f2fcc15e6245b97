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
    """The compiled part alone: the package reads the metadata of what is installed, to know its own version, and a
    tenth of the time that a broker takes to start would go into that."""
    package = PathFinder.find_spec(PACKAGE)
    compiled = package and PathFinder.find_spec(COMPILED_PART, package.submodule_search_locations)
    if not compiled or not compiled.loader:
        return importlib.import_module(PACKAGE)
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module


crc32c: Checksum = _load().crc32c
