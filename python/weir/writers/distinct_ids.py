"""Finds an id that is there twice among any number of them, in bounded memory."""

from __future__ import annotations

import tempfile
from typing import IO, Iterator, List, NamedTuple, Optional

import numpy as np

from weir.rows import Ids
from weir.stable_hash import logical_shards

__all__ = ["DistinctIds", "Twice"]

# Ids that are held in memory, 8 bytes each; more are on disk, and sorted in parts of about so many.
_MOST = 1 << 23


class Twice(NamedTuple):
    """An id, and the positions at which it is there for the first and for the second time."""

    id: int
    first: int
    second: int


class DistinctIds:
    """Collects ids, and says whether one of them is there twice. At most 64 bytes * _MOST of memory are in use."""

    def __init__(self, directory: Optional[str] = None, most: int = _MOST):
        """Keeps nothing yet. `directory`: where a temporary file without a name goes if ids are more than `most`."""
        self._directory = directory
        self._most = most
        self._parts: List[Ids] = []
        self._held = self._count = 0
        self._file: Optional[IO[bytes]] = None

    def add(self, ids: Ids) -> None:
        """Adds ids behind those before, in a copy."""
        self._parts.append(np.array(ids, "<i8"))
        self._held += len(ids)
        self._count += len(ids)
        if self._held > self._most:
            self._spill()

    def first_double(self) -> Optional[Twice]:
        """Returns the id whose second occurrence comes before that of all others; None if all are distinct."""
        parts = -(-self._count // self._most) if self._file is not None else 1
        found = [self._double_in(part, parts) for part in range(parts)]
        return min((each for each in found if each is not None), key=lambda each: each.second, default=None)

    def close(self) -> None:
        """Removes the temporary file."""
        if self._file is not None:
            self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)
        self._file.seek(0, 2)
        for part in self._parts:
            self._file.write(part.tobytes())
        self._parts, self._held = [], 0

    def _pieces(self) -> Iterator[Ids]:
        """Yields all ids in their order."""
        if self._file is not None:
            self._file.seek(0)
            while data := self._file.read(1 << 23):
                yield np.frombuffer(data, "<i8")
        yield from self._parts

    def _double_in(self, part: int, parts: int) -> Optional[Twice]:
        chosen = [np.empty(0, np.int64)]
        for ids in self._pieces():
            chosen.append(ids if parts == 1 else ids[logical_shards(ids, parts) == part])
        ids = np.concatenate(chosen)
        del chosen
        in_order = np.sort(ids)
        if not bool((in_order[1:] == in_order[:-1]).any()):
            return None
        # Equal ids are beside each other, in the order in which they came.
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        twice = np.flatnonzero(in_order[1:] == in_order[:-1])
        first = twice[np.argmin(order[twice + 1])]
        return self._place(int(in_order[first]))

    def _place(self, id: int) -> Twice:
        places: List[int] = []
        at = 0
        for ids in self._pieces():
            places += (np.flatnonzero(ids == id)[:2] + at).tolist()
            at += len(ids)
            if len(places) >= 2:
                break
        return Twice(id, places[0], places[1])
