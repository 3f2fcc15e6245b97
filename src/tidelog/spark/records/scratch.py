"""Reused buffer for decompressed batches: allocating new memory each time takes three times as long."""

from typing import Final

import numpy as np

from tidelog.config.topic import DECOMPRESSED_LIMIT_BYTES
from tidelog.errors import CorruptMessage
from tidelog.protocol.compression import Codec, decompress_into
from tidelog.spark.records.kernels import Bytes

FIRST_BYTES: Final = 8 * 1024 * 1024
GROWTH: Final = 2


class Scratch:
    def __init__(self, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._memory: Bytes = np.empty(0, np.uint8)
        self._used = 0

    @property
    def written(self) -> Bytes:
        return self._memory[: self._used]

    def clear(self) -> None:
        self._used = 0

    def append(self, codec: Codec, data: memoryview) -> tuple[int, int]:
        """Decompresses to the end of the buffer; returns start and end."""
        start = self._used
        while (count := self._try(codec, data)) is None:
            if len(self._memory) - start >= self._limit_bytes:
                raise CorruptMessage(f"its records exceed the limit of {self._limit_bytes} bytes when decompressed")
            self._grow()
        self._used = start + count
        return start, self._used

    def _try(self, codec: Codec, data: memoryview) -> int | None:
        room = self._memory.data[self._used : self._used + self._limit_bytes]
        return decompress_into(codec, data, room, self._limit_bytes)

    def _grow(self) -> None:
        size_bytes = max(FIRST_BYTES, len(self._memory) * GROWTH)
        memory = np.empty(min(size_bytes, self._used + self._limit_bytes), np.uint8)
        memory[: self._used] = self._memory[: self._used]
        self._memory = memory
