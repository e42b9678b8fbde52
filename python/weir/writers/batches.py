"""Rows that are to be written, from arrays, batches, checkpoints or row files, as checked runs of float32."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from weir.feature_id import as_ids
from weir.rows import Floats, Ids, Rows, is_words
from weir.stable_hash import logical_shards
from weir.writers.limits import check_name

__all__ = ["Batch", "Layout", "Run", "Source", "TableRows", "as_layout", "as_floats", "ids_twice", "runs_of"]

# (ids, values) or (ids, values, state by name).
Batch = Union[Tuple[npt.ArrayLike, npt.ArrayLike],
              Tuple[npt.ArrayLike, npt.ArrayLike, Optional[Mapping[str, npt.ArrayLike]]]]
# Rows of one table: arrays, a weir.RowFile, a table of a weir.Checkpoint, or an iterable of batches.
TableRows = Union[Batch, Rows, Iterable[Batch]]

# Bytes of ids and rows that are in memory at a time, and in one chunk of a file, as in the programs.
_RUN_BYTES = 8 << 20
_MOST_FLOATS = (1 << 31) - 1
_WORD = (1 << 32) - 1


class Layout(NamedTuple):
    """What a row is made of: `width` values, and then states of these names and widths, in order."""

    width: int
    states: Tuple[Tuple[str, int], ...]

    @property
    def floats(self) -> int:
        """Floats of a row."""
        return self.width + sum(width for _, width in self.states)

    @property
    def run(self) -> int:
        """Rows of a chunk."""
        return max(1, _RUN_BYTES // (4 * self.floats + 8))

    def __str__(self) -> str:
        states = " ".join(f"{name}[{width}]" for name, width in self.states)
        return f"width {self.width} and state {states or 'none'}"


class Run(NamedTuple):
    """Some rows: ids [n], and rows [n, floats of the layout], values before state. Valid until the next is asked for.
    """

    ids: Ids
    rows: Floats


class Source(NamedTuple):
    """Rows of a table, their number if it is known, and whether it is known that no id is there twice."""

    layout: Layout
    runs: Iterator[Run]
    distinct: bool


def as_layout(table: str, width: int, states: Iterable[Tuple[str, int]]) -> Layout:
    """Returns a layout. ValueError for a width that no table has."""
    layout = Layout(width, tuple(states))
    for name, _ in layout.states:
        check_name("state", name)
    if width < 1 or layout.floats > _MOST_FLOATS:
        raise ValueError(f"table '{table}': values have width {width}; a row has 1 to {_MOST_FLOATS} floats")
    return layout


def runs_of(table: str, given: TableRows, shards: int, finite: bool) -> Source:
    """Returns the rows of a table in runs of at most 8 MiB.

    Arrays are brought into the order of logical shards, and of ids in each, so that equal rows give equal files and a
    server reads the chunks alone that it needs. Batches, checkpoints and row files keep their order; of batches one is
    in memory at a time. Values become float32: 16-bit floats exactly, float64 and integers by rounding to the nearest,
    ties to even. Integers of a lifecycle ("lifecycle.count", values of "t@candidates") keep their bits.

    Args:
        shards: logical shards of the table.
        finite: refuse NaN, infinities, and values beyond float32.

    Raises:
        TypeError: ids are no integers, or values no numbers. From here or from the runs.
        ValueError: shapes that do not fit together, an id that is in `given` twice, a value that is not finite. From
            here or from the runs.
    """
    if isinstance(given, Rows):
        return _of_rows(table, given, finite)
    if isinstance(given, tuple):
        arrays = _Arrays(table, given)
        return Source(arrays.layout, arrays.sorted_runs(shards, finite), distinct=True)
    if isinstance(given, (str, bytes, Mapping, np.ndarray)) or not hasattr(given, "__iter__"):
        raise TypeError(f"rows of table '{table}' are (ids, values), (ids, values, state), an iterable of these, or a "
                        f"table of a checkpoint; got {type(given).__name__}")
    return _of_batches(table, iter(given), finite)


def as_floats(what: str, given: npt.ArrayLike, finite: bool = True) -> Floats:
    """Returns an array as float32 of its shape, contiguous, by the rules of runs_of.

    Raises:
        TypeError: it has no numbers.
        ValueError: `finite`, and an element is not finite.
    """
    array = _numbers(what, given)
    with np.errstate(over="ignore", invalid="ignore"):
        floats: Floats = np.array(array, np.float32, order="C")
    if finite:
        _check_finite(floats.reshape(-1), lambda i: (
            f"{what}{list(map(int, np.unravel_index(i, array.shape))) if array.ndim else ''}", array.reshape(-1)[i]))
    return floats


def _numbers(what: str, given: npt.ArrayLike) -> npt.NDArray[Any]:
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{what} has masked elements, which no file can hold; fill them first")
    try:
        array: npt.NDArray[Any] = np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{what}: {error}") from None
    # bfloat16 is no type of NumPy's own.
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        such = f" such as {array.reshape(-1)[:1].tolist()[0]!r}" if array.size > 0 else ""
        raise TypeError(f"{what}: numbers were expected, got {array.dtype}{such}")
    return array


def _check_finite(floats: npt.NDArray[np.float32], place: Callable[[int], Tuple[str, Any]]) -> None:
    bad = np.flatnonzero(~np.isfinite(floats))
    if len(bad) == 0:
        return
    where, value = place(int(bad[0]))
    text = "is beyond the greatest float32" if np.isfinite(value) else "is not finite"
    raise ValueError(f"{where} = {value} {text}; correct it, or pass finite=False to write it as it is")


def _mismatch(table: str, text: str) -> NoReturn:
    raise ValueError(f"table '{table}': {text}")


class _Arrays:
    """Ids, values and state of some rows, checked for kinds and shapes."""

    def __init__(self, table: str, given: Tuple[Any, ...], first_row: int = 0):
        if len(given) not in (2, 3):
            raise TypeError(f"rows of table '{table}' are (ids, values) or (ids, values, state), got {len(given)} "
                            "things in a tuple")
        state = given[2] if len(given) == 3 else None
        if state is not None and not isinstance(state, Mapping):
            raise TypeError(f"state of table '{table}' is a dict from names to arrays, got {type(state).__name__}")
        self._table = table
        self._first_row = first_row
        self.ids = as_ids(given[0])
        if self.ids.ndim != 1:
            _mismatch(table, f"ids have the shape {list(self.ids.shape)}; [n] was expected")
        self.columns: List[Tuple[str, bool, npt.NDArray[Any]]] = [
            self._column("values", given[1], words="@" in table)]
        for name, array in (state or {}).items():
            check_name("state", name)
            self.columns.append(self._column(name, array, words=is_words(name)))
        widths = [array.shape[1] for _, _, array in self.columns]
        self.layout = as_layout(table, widths[0], zip([name for name, _, _ in self.columns[1:]], widths[1:]))

    def _column(self, name: str, given: Any, words: bool) -> Tuple[str, bool, npt.NDArray[Any]]:
        what = self._what(name)
        array = _numbers(what, given)
        if array.ndim != 2 or len(array) != len(self.ids):
            _mismatch(self._table, f"{self._short(name)} have the shape {list(array.shape)}; "
                                   f"[{len(self.ids)}, width] was expected for {len(self.ids)} ids")
        if not words:
            return name, False, array
        if name == "values" and array.dtype == np.float32:
            return name, True, np.ascontiguousarray(array).view(np.uint32)  # as a checkpoint gives them
        if array.dtype.kind not in "iu":
            raise TypeError(f"{what}: integers were expected, got {array.dtype}")
        if array.size > 0 and not (0 <= int(array.min()) and int(array.max()) <= _WORD):
            _mismatch(self._table, f"{self._short(name)} run from {array.min()} to {array.max()}; integers from 0 to "
                                   f"{_WORD} were expected")
        return name, True, array

    def _short(self, name: str) -> str:
        return "values" if name == "values" else f"state '{name}'"

    def _what(self, name: str) -> str:
        return f"{self._short(name)} of table '{self._table}'"

    def runs(self, finite: bool, order: Optional[npt.NDArray[np.intp]] = None) -> Iterator[Run]:
        """Yields the rows, in `order` if it is given."""
        layout, total = self.layout, len(self.ids)
        rows = np.empty((min(layout.run, total), layout.floats), np.float32)
        for at in range(0, total, layout.run):
            end = min(at + layout.run, total)
            pick: Any = slice(at, end) if order is None else order[at:end]
            part, begin = rows[:end - at], 0
            for name, words, array in self.columns:
                into = part[:, begin:begin + array.shape[1]]
                begin += array.shape[1]
                if words:
                    into.view(np.uint32)[...] = array[pick]
                    continue
                with np.errstate(over="ignore", invalid="ignore"):
                    into[...] = array[pick]
                if finite and not np.isfinite(into).all():
                    self._not_finite(name, array)
            yield Run(self.ids[pick], part)

    def sorted_runs(self, shards: int, finite: bool) -> Iterator[Run]:
        """Returns the rows in the order of logical shards and ids. ValueError if an id is there twice."""
        of = logical_shards(self.ids, shards)
        order = np.lexsort((self.ids, of))
        in_order = self.ids[order]
        twice = np.flatnonzero(in_order[1:] == in_order[:-1])
        if len(twice) > 0:
            # Equal ids are in the order in which they came.
            first = twice[np.argmin(order[twice + 1])]
            raise ids_twice(self._table, int(in_order[first]), int(order[first]), int(order[first + 1]))
        return self.runs(finite, None if bool((order[1:] > order[:-1]).all()) else order)

    def _not_finite(self, name: str, array: npt.NDArray[Any]) -> NoReturn:
        """Raises the error of the first element, in the order in which the rows came, that is not finite."""
        for begin in range(0, len(array), self.layout.run):
            with np.errstate(over="ignore", invalid="ignore"):
                part = np.array(array[begin:begin + self.layout.run], np.float32)

            def place(i: int) -> Tuple[str, Any]:
                at, column = begin + i // part.shape[1], i % part.shape[1]
                return (f"{self._what(name)}: row {self._first_row + at} (id {self.ids[at]}), column {column}",
                        array[at, column])

            _check_finite(part.reshape(-1), place)
        raise AssertionError("all elements are finite")


def ids_twice(table: str, id: int, first: int, second: int) -> ValueError:
    """Returns the error of an id that two rows have."""
    return ValueError(f"table '{table}': id {id} is there twice, in rows {first} and {second}; merge these rows, or "
                      "drop one")


def _of_batches(table: str, batches: Iterator[Any], finite: bool) -> Source:
    def checked(batch: Any, first_row: int) -> _Arrays:
        if not isinstance(batch, tuple):
            raise TypeError(f"batches of table '{table}' are tuples (ids, values) or (ids, values, state), got "
                            f"{type(batch).__name__}")
        return _Arrays(table, batch, first_row)

    try:
        first = checked(next(batches), 0)
    except StopIteration:
        raise ValueError(f"table '{table}': there is no batch, so that its width is unknown; for an empty table give "
                         "arrays, ids [0] and values [0, width]") from None

    def runs() -> Iterator[Run]:
        arrays: Optional[_Arrays] = first
        rows = 0
        while arrays is not None:
            if arrays.layout != first.layout:
                _mismatch(table, f"the batch from row {rows} on has {arrays.layout}, and the first has {first.layout}")
            yield from arrays.runs(finite)
            rows += len(arrays.ids)
            batch = next(batches, None)
            arrays = None if batch is None else checked(batch, rows)

    return Source(first.layout, _full(first.layout, runs()), distinct=False)


def _of_rows(table: str, rows: Rows, finite: bool) -> Source:
    layout = as_layout(table, rows.width, rows.state_widths.items())
    at = 0
    # Columns that are floats: the others may have any bits.
    floats: List[Tuple[str, int, int]] = []
    for name, width in (("values", layout.width), *layout.states):
        if not (is_words(name) or name == "values" and "@" in table):
            floats.append((name, at, at + width))
        at += width

    def runs() -> Iterator[Run]:
        row = 0
        for chunk in rows._chunks:
            for begin in range(0, chunk.count, layout.run):
                part = Run(chunk.ids[begin:begin + layout.run], chunk.rows[begin:begin + layout.run])
                if finite:
                    _check_columns(table, part, floats, row)
                row += len(part.ids)
                yield part

    return Source(layout, _full(layout, runs()), distinct=False)


def _full(layout: Layout, runs: Iterator[Run]) -> Iterator[Run]:
    """Yields the rows in runs that are as long as a chunk, except for the last."""
    ids = np.empty(layout.run, np.int64)
    rows = np.empty((layout.run, layout.floats), np.float32)
    held = 0
    for run in runs:
        at = 0
        while at < len(run.ids):
            taken = min(len(run.ids) - at, layout.run - held)
            ids[held:held + taken] = run.ids[at:at + taken]
            rows[held:held + taken] = run.rows[at:at + taken]
            at += taken
            held += taken
            if held == layout.run:
                yield Run(ids, rows)
                held = 0
    if held > 0:
        yield Run(ids[:held], rows[:held])


def _check_columns(table: str, part: Run, columns: Iterable[Tuple[str, int, int]], row: int) -> None:
    for name, begin, end in columns:
        into = part.rows[:, begin:end]
        if not np.isfinite(into).all():
            at, column = (int(x[0]) for x in np.nonzero(~np.isfinite(into)))
            what = "values" if name == "values" else f"state '{name}'"
            _check_finite(into[at, column:column + 1], lambda _: (
                f"{what} of table '{table}': row {row + at} (id {part.ids[at]}), column {column}", into[at, column]))
