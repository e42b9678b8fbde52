"""Rows of embedding tables in mapped files, found by id: what Table and RowFile have in common."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from weir.errors import DamagedFileError, WeirError
from weir.feature_id import as_ids
from weir.stable_hash import logical_shards

__all__ = ["NotFoundError", "RowBatch", "Rows"]

_ALIGN = 64

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
# float32, or uint32 for the counts and steps of a lifecycle.
Words = npt.NDArray[Any]
Path = Union[str, "os.PathLike[str]"]


# State that holds the bits of 32-bit integers (docs/tables.md).
_INTEGERS = ("lifecycle.count", "lifecycle.step", "lifecycle.second")


class NotFoundError(WeirError, KeyError):
    """A name or a row is not in a checkpoint or row file."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote it


class RowBatch(NamedTuple):
    """Some rows: ids [n], values [n, width], and state by name [n, width of the state], as in Rows."""

    ids: Ids
    values: Floats
    state: Dict[str, Words]


def align(offset: int) -> int:
    """Returns the next multiple of 64, at which the parts of a file begin."""
    return (offset + _ALIGN - 1) // _ALIGN * _ALIGN


def map_file(path: str) -> Bytes:
    """Maps a file into memory. Its bytes stay readable when the file is removed. DamagedFileError if it is missing."""
    try:
        if os.path.getsize(path) == 0:
            return np.empty(0, np.uint8)
        # A plain array over the map: subclasses of arrays would reach the user otherwise.
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except FileNotFoundError:
        raise DamagedFileError(f"{path} is missing") from None
    except OSError as error:
        raise WeirError(f"cannot read {path}: {error.strerror or error}") from None


def check_header(path: str, data: Bytes, magic: bytes, kind: str, newest: int) -> None:
    """Checks the 64 bytes at the beginning of a file. DamagedFileError for another kind of file or a newer format."""
    head = data[:_ALIGN].tobytes()
    if len(head) < _ALIGN or head[:8] != magic:
        raise DamagedFileError(f"{path} is no {kind}")
    version = int.from_bytes(head[8:12], "little")
    if version > newest:
        raise DamagedFileError(f"{path} has format {version}; this package reads up to {newest}")


def states_make_sense(names: Sequence[str], widths: Sequence[int]) -> bool:
    """Returns whether every state of a row has a name of its own and a width."""
    return len(names) == len(widths) == len(set(names)) and min(widths, default=0) >= 0


def _typed(name: str, state: Floats) -> Words:
    return state.view(np.uint32) if name in _INTEGERS else state


class Chunk:
    """Consecutive rows of one file: n ids, and from the next multiple of 64 bytes on n rows of `floats` floats.

    The caller has checked that all of it lies in the file. `check` is called before the first access to the bytes.
    `shards` bounds the logical shards of the rows, if that is known: [begin, end).
    """

    def __init__(self, data: Bytes, offset: int, count: int, floats: int, shards: Optional[Tuple[int, int]] = None,
                 check: Optional[Callable[[], None]] = None):
        self.count = count
        self._data = data
        self._offset = offset
        self._floats = floats
        self._shards = shards
        self._check = check

    @functools.cached_property
    def ids(self) -> Ids:
        """Ids in the order of the file, a view of the file."""
        self._check_once()
        return np.frombuffer(self._data, "<i8", self.count, self._offset)

    @functools.cached_property
    def rows(self) -> Floats:
        """Rows [n, floats], values before state, a view of the file."""
        self._check_once()
        # frombuffer refuses an offset at the very end of the file, where the rows of an empty chunk may be.
        if self.count == 0:
            return np.empty((0, self._floats), np.float32)
        begin = align(self._offset + 8 * self.count)
        return np.frombuffer(self._data, "<f4", self.count * self._floats, begin).reshape(self.count, self._floats)

    def shards(self, of: int) -> Tuple[int, int]:
        """Returns bounds of the logical shards of the rows, of `of` logical shards."""
        if self._shards is None:
            each = logical_shards(self.ids, of)
            self._shards = (int(each.min()), int(each.max()) + 1) if self.count > 0 else (0, 0)
        return self._shards

    def find(self, wanted: Ids) -> Tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Returns the positions in `wanted` of the ids that are in this chunk, and their positions in the chunk."""
        in_order, order = self._sorted
        at = np.searchsorted(in_order, wanted)
        at[at == self.count] = 0
        hits = np.flatnonzero(in_order[at] == wanted) if self.count > 0 else np.empty(0, np.intp)
        places = at[hits]
        return hits, places if order is None else order[places]

    @functools.cached_property
    def _sorted(self) -> Tuple[Ids, Optional[npt.NDArray[np.intp]]]:
        if bool(np.all(self.ids[1:] > self.ids[:-1])):
            return self.ids, None
        order = np.argsort(self.ids, kind="stable")
        return self.ids[order], order

    def _check_once(self) -> None:
        if self._check is not None:
            self._check()
            self._check = None


class Rows:
    """Rows by id. `len()` is their number.

    `ids`, `values` and `state` read everything at first use and keep it as long as this object lives. `rows` and
    `chunks` read only what they need.

    Attributes:
        name: of the table.
        width: floats of a row's values.
        state_widths: floats of each optimizer state of a row, by name; empty without state.
        logical_shards: number of logical shards of the table.
        zero_columns: first and end of the columns that are 0 in a row that the table does not have, in place of initial
            values (start_from.new_values).
    """

    def __init__(self, where: str, name: str, width: int, state_widths: Sequence[Tuple[str, int]], shards: int,
                 chunks: List[Chunk], zero_columns: Tuple[int, int] = (0, 0)):
        self.name = name
        self.width = width
        self.state_widths: Dict[str, int] = dict(state_widths)
        self.logical_shards = shards
        self.zero_columns = zero_columns
        self._where = where
        self._chunks = chunks

    def __len__(self) -> int:
        return sum(chunk.count for chunk in self._chunks)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._where}: {len(self)} rows of width {self.width}>"

    @property
    def ids(self) -> Ids:
        """All ids, ascending. int64 [n], read-only."""
        return self._order[0]

    @functools.cached_property
    def values(self) -> Floats:
        """Values of all rows in the order of ids. float32 [n, width]; a table that holds 16 bits is exact here."""
        return self._columns(0, self.width)

    @functools.cached_property
    def state(self) -> Dict[str, Words]:
        """Optimizer state of all rows in the order of ids, by name. float32 [n, width of the state].

        A table with a lifecycle has state of that, too: "lifecycle.count", "lifecycle.step" and "lifecycle.second" are
        uint32, "lifecycle.shows" and "lifecycle.clicks" float32.
        """
        return {name: _typed(name, self._columns(begin, end)) for name, begin, end in self._state_columns()}

    def rows(self, ids: npt.ArrayLike, missing: str = "error") -> Floats:
        """Returns the values of rows in the order of `ids`, float32 with the shape of `ids` and one more axis, width.

        Reads only the chunks whose logical shards have one of the ids; an index of these, 16 bytes a row, stays in
        memory for further calls. An id may be there several times. feature_ids makes ids of the raw ids of data.

        Args:
            missing: what becomes of an id without a row: "error", or a row of "nan" or of "zero".

        Raises:
            NotFoundError: missing is "error", and an id has no row.
            TypeError: ids are no integers.
        """
        if missing not in ("error", "nan", "zero"):
            raise ValueError(f"missing is 'error', 'nan' or 'zero', got {missing!r}")
        asked = as_ids(ids)
        wanted, inverse = np.unique(asked.reshape(-1), return_inverse=True)
        values = np.full((len(wanted), self.width), np.nan if missing == "nan" else 0, np.float32)
        found = self._copy_rows(wanted, values)
        if missing == "error" and not found.all():
            without = wanted[~found]
            some = ", ".join(map(str, without[:3]))
            raise NotFoundError(f"{self._where}: table '{self.name}' has no row of {len(without)} of {len(wanted)} "
                                f'ids, such as {some}; missing="nan" or missing="zero" fills them in')
        return values[inverse.reshape(asked.shape)]

    def chunks(self) -> Iterator[RowBatch]:
        """Yields all rows in the order of the file, each once, in batches of about 8 MiB: for tables beyond memory."""
        for chunk in self._chunks:
            if chunk.count > 0:
                yield RowBatch(chunk.ids.astype(np.int64), chunk.rows[:, :self.width].astype(np.float32),
                               {name: _typed(name, chunk.rows[:, begin:end].astype(np.float32))
                                for name, begin, end in self._state_columns()})

    def ids_in_order_of_file(self) -> Ids:
        """Returns all ids in the order of chunks(), int64 [n]. Nothing is kept.

        Raises:
            DamagedFileError: an id is there twice.
        """
        ids = self._ids_of_chunks()
        in_order = np.sort(ids)
        twice = np.flatnonzero(in_order[1:] == in_order[:-1])
        if len(twice) > 0:
            raise self._is_there_twice(in_order[twice[0]])
        return ids

    def _copy_rows(self, wanted: Ids, values: Floats) -> npt.NDArray[np.bool_]:
        """Copies the rows of distinct ids [k] to values [k, width]. Returns which ids have a row."""
        found = np.zeros(len(wanted), bool)
        shards = logical_shards(wanted, self.logical_shards)
        by_shard = np.argsort(shards, kind="stable")
        shards = shards[by_shard]
        for chunk in self._chunks:
            begin, end = np.searchsorted(shards, chunk.shards(self.logical_shards))
            if begin == end:
                continue
            hits, places = chunk.find(wanted[by_shard[begin:end]])
            at = by_shard[begin:end][hits]
            values[at] = chunk.rows[places, :self.width]
            found[at] = True
        return found

    def _state_columns(self) -> Iterator[Tuple[str, int, int]]:
        begin = self.width
        for name, width in self.state_widths.items():
            yield name, begin, begin + width
            begin += width

    @functools.cached_property
    def _order(self) -> Tuple[Ids, npt.NDArray[np.intp]]:
        """Ids in ascending order, and for each row in the order of the file its place in that."""
        ids = self._ids_of_chunks()
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        twice = np.flatnonzero(ids[1:] == ids[:-1])
        if len(twice) > 0:
            raise self._is_there_twice(ids[twice[0]])
        places = np.empty(len(ids), np.intp)
        places[order] = np.arange(len(ids))
        ids.setflags(write=False)
        return ids, places

    def _ids_of_chunks(self) -> Ids:
        parts = [np.empty(0, np.int64), *(chunk.ids for chunk in self._chunks)]
        return np.concatenate(parts).astype(np.int64, copy=False)

    def _is_there_twice(self, row: np.int64) -> DamagedFileError:
        return DamagedFileError(f"{self._where}: table '{self.name}': row {row} is there twice")

    def _columns(self, begin: int, end: int) -> Floats:
        places = self._order[1]
        columns = np.empty((len(places), end - begin), np.float32)
        at = 0
        for chunk in self._chunks:
            columns[places[at:at + chunk.count]] = chunk.rows[:, begin:end]
            at += chunk.count
        return columns
