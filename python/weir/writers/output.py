"""A file that is written from its beginning to its end, in parts that begin at multiples of 64 bytes."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from weir.rows import align
from weir.stable_hash import RunningHash

__all__ = ["Output"]


class Output:
    """An open file, with its size and checksum so far. Its owner closes it."""

    def __init__(self, file: BinaryIO, magic: bytes, version: int):
        """Writes the 64 bytes that a file begins with: `magic` of 8, and the version of the format."""
        self._file = file
        self._hash = RunningHash()
        self.size = 0
        self.write(np.frombuffer((magic + version.to_bytes(4, "little")).ljust(64, b"\0"), np.uint8))

    def write(self, array: npt.NDArray[Any]) -> None:
        """Appends the bytes of an array, row by row."""
        if array.size == 0:
            return
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._file.write(data.data)
        self._hash.update(data)
        self.size += len(data)

    def align(self) -> int:
        """Appends zeros up to a multiple of 64 bytes. Returns the size then."""
        self.write(np.zeros(align(self.size) - self.size, np.uint8))
        return self.size

    @property
    def checksum(self) -> int:
        """XXH3-64 of the file so far."""
        return self._hash.digest()
