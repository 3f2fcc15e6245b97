"""Randomness seam: the only source of random ids and choices, so that simulations are repeatable."""

import os
import random
from collections.abc import Iterator
from typing import Protocol


class Randomness(Protocol):
    def bytes(self, count: int) -> bytes: ...

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""
        ...


class SystemRandomness:
    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def below(self, limit: int) -> int:
        return random.SystemRandom().randrange(limit)


class SeededRandomness:
    """Deterministic: the same seed gives the same sequence."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._bits = self._random.getrandbits

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, limit: int) -> int:
        """`randrange`, number for number, without its checks: a simulated second draws hundreds of numbers."""
        if limit < 1:
            raise ValueError(f"no number is below {limit}")
        bits = limit.bit_length()
        number = self._bits(bits)
        while number >= limit:
            number = self._bits(bits)
        return number

    def numbers_below(self, limit: int) -> Iterator[int]:
        """What calls of `below` return, drawn when they are taken. A generator is faster than calls."""
        bits, draw = limit.bit_length(), self._bits
        while True:
            number = draw(bits)
            if number < limit:
                yield number
