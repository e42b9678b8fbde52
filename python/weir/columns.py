"""Writes columns of values as the bytes that a job reads from a command (docs/parquet.md, "The columns format").

A job with `data.pipe` reads each data file from the standard output of a command. A command in Python can write arrays
there, without making text of them:

    import numpy, sys
    from weir import columns

    def batches(path):
        with numpy.load(path) as arrays:
            yield {"label": arrays["label"], "price": arrays["price"], "user": arrays["user"]}

    columns.write(sys.stdout.buffer, batches(sys.argv[1]))

The module needs NumPy alone. `weir parquet` writes the same format from Parquet files.
"""

from __future__ import annotations

import datetime
import enum
import struct
from typing import Any, BinaryIO, Iterable, List, Mapping, Optional, Sequence, Union

import numpy as np

__all__ = ["Dictionary", "Kind", "Writer", "write"]

MAGIC = b"WEIRCOL1"
END = struct.pack("<I", 0)
# The format takes batches of up to 2^24 rows; a reader holds a whole batch, and gains nothing from longer ones.
MOST_ROWS = 65536
# Offsets have 32 bits.
MOST_BYTES = 2**32 - 1

# What a column is written as: parts that follow each other.
Parts = List[Union[bytes, memoryview]]


class Kind(enum.IntEnum):
    """Types of a column in a batch."""

    NULLS = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    TEXT = 11
    DICTIONARY = 12
    LIST = 13


# By kind and size of a dtype of NumPy.
_NUMBERS = {("i", 1): Kind.INT8, ("i", 2): Kind.INT16, ("i", 4): Kind.INT32, ("i", 8): Kind.INT64,
            ("u", 1): Kind.UINT8, ("u", 2): Kind.UINT16, ("u", 4): Kind.UINT32, ("u", 8): Kind.UINT64,
            ("f", 4): Kind.FLOAT32, ("f", 8): Kind.FLOAT64}
_INT64 = (-(2**63), 2**63 - 1)


class Dictionary:
    """A column of texts, each of which is given by its number in a list of texts.

    Attributes:
        texts: str or bytes.
        codes: integers [rows]: row i has texts[codes[i]]. A negative code is a missing value.
    """

    def __init__(self, texts: Sequence[Union[str, bytes]], codes: Any):
        """Raises ValueError if a code is no place in `texts`, and TypeError if codes are no integers."""
        self.texts = texts
        self.codes = np.asarray(codes)
        if self.codes.dtype.kind not in "iu" or self.codes.ndim != 1:
            raise TypeError(f"the codes of a Dictionary are integers [rows], got {self.codes.dtype} "
                            f"{list(self.codes.shape)}")
        if len(self.codes) and int(self.codes.max()) >= len(texts):
            raise ValueError(f"code {int(self.codes.max())} of a Dictionary with {len(texts)} texts")

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Dictionary:
        return Dictionary(self.texts, self.codes[rows])


class Writer:
    """Writes one stream; for a source that gives no iterator. As a context manager it closes without an exception only.

        with columns.Writer(sys.stdout.buffer) as writer:
            writer.write({"label": labels, "user": users})
    """

    def __init__(self, file: BinaryIO, names: Optional[Sequence[str]] = None):
        """Writes nothing yet.

        Args:
            file: takes the bytes; the caller closes it.
            names: of the columns, in the order in which they are written. None: those of the first batch.
        """
        self._file = file
        self._names: Optional[List[str]] = None
        self.rows = 0
        if names is not None:
            self._begin(names)

    def write(self, batch: Mapping[str, Any]) -> None:
        """Writes rows: for each column of the stream an array or a list, all of one length.

        A column takes:

        * an array of booleans, integers or floats; NaN, and what a masked array masks, is missing;
        * an array of datetime64: a text as "2024-05-01 12:00:00", which a column of type TIME reads, cut to seconds;
          NaT is missing;
        * an array of texts or objects, or a list, of numbers, texts (str, or bytes as they are), datetimes, or of lists
          or arrays of these; None, NaN, NaT and pandas.NA are missing;
        * an array with two dimensions of numbers: each row is a list;
        * a Dictionary.

        Raises:
            TypeError: a value cannot be written; the text names column and row.
            ValueError: the columns are not those of the stream, or differ in length.
        """
        if self._names is None:
            self._begin(list(batch))
        assert self._names is not None
        if set(batch) != set(self._names):
            raise ValueError(f"a batch has the columns {', '.join(map(str, batch))}; those of the stream are "
                             f"{', '.join(self._names)}")
        values = {name: _sliceable(batch[name]) for name in self._names}
        lengths = {name: len(column) for name, column in values.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of a batch have different lengths: {lengths}")
        rows = lengths[self._names[0]]
        for first in range(0, rows, MOST_ROWS):
            here = min(MOST_ROWS, rows - first)
            parts: Parts = [struct.pack("<I", here)]
            for name in self._names:
                try:
                    parts += _column(values[name][first:first + here], first)
                except (OverflowError, TypeError, ValueError) as error:
                    raise type(error)(f"column '{name}': {error}") from None
            for part in parts:
                self._file.write(part)
            self.rows += here

    def close(self) -> None:
        """Writes the end mark, without which a reader takes the stream for cut."""
        if self._names is None:
            raise ValueError("a stream without a batch needs the names of its columns: Writer(file, names)")
        self._file.write(END)
        self._file.flush()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()

    def _begin(self, names: Sequence[str]) -> None:
        self._names = [str(name) for name in names]
        self._file.write(header(self._names))


def write(file: BinaryIO, batches: Iterable[Mapping[str, Any]], names: Optional[Sequence[str]] = None) -> int:
    """Writes a stream of batches to a binary file, and returns its number of rows. Writer explains the values.

    Args:
        file: such as sys.stdout.buffer.
        batches: each has all columns of some rows. They may have any number of rows.
        names: of the columns, in the order in which they are written; data.criteo takes columns in order, data.csv by
            name. None: those of the first batch.
    """
    with Writer(file, names) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.rows


def header(names: Sequence[str]) -> bytes:
    """Returns the bytes in front of the batches.

    Raises:
        ValueError: there is no name, or one twice.
    """
    if not names:
        raise ValueError("a stream needs at least one column")
    if len(set(names)) < len(names):
        raise ValueError(f"two columns of one name: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    encoded = [name.encode("utf-8", "surrogateescape") for name in names]
    return MAGIC + struct.pack("<I", len(names)) + b"".join(struct.pack("<I", len(each)) + each for each in encoded)


def _sliceable(values: Any) -> Any:
    """Returns the column as an array, a list or a Dictionary."""
    if isinstance(values, (np.ndarray, Dictionary, list, tuple)):
        return values
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        raise TypeError(f"a column is an array or a list, got {type(values).__name__}")
    return np.asarray(values)


def _column(values: Any, first: int) -> Parts:
    """Returns a column of a batch; `first` is the number of its first row, for messages."""
    if isinstance(values, Dictionary):
        if not len(values.texts):
            return _head(Kind.NULLS, None)
        return [*_head(Kind.DICTIONARY, values.codes >= 0), struct.pack("<I", len(values.texts)),
                *_text_parts([_bytes(each) for each in values.texts]), _raw(np.maximum(values.codes, 0).astype("<i4"))]
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return _array(values)
    return _objects(values, range(first, first + len(values)))


def _array(values: np.ndarray) -> Parts:
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    plain = np.asarray(values)
    if plain.ndim == 2 and plain.dtype.kind in "biuf" and masked is None:
        offsets = np.arange(len(plain) + 1, dtype=np.int64) * plain.shape[1]
        return [*_head(Kind.LIST, None), _offsets(offsets), *_array(plain.reshape(-1))]
    if plain.ndim != 1:
        raise TypeError(f"an array of shape {list(plain.shape)}; a column has one dimension, or two of numbers "
                        "without a mask")
    present = None if masked is None else ~masked
    if plain.dtype.kind in "US":
        return _texts([_bytes(each) for each in plain.tolist()], present)
    if plain.dtype.kind == "M":
        there = ~np.isnat(plain)
        texts = np.where(there, np.datetime_as_string(plain, unit="s"), "").tolist()
        present = there if present is None else there & present
        return _texts([text.replace("T", " ").encode() for text in texts], present)
    if plain.dtype.kind == "b":
        plain = plain.astype(np.uint8)
    elif plain.dtype.kind == "f":
        plain = plain.astype(np.float32 if plain.dtype.itemsize <= 4 else np.float64, copy=False)
        nan = np.isnan(plain)
        if nan.any():
            present = ~nan if present is None else present & ~nan
    kind = _NUMBERS.get((plain.dtype.kind, plain.dtype.itemsize))
    if kind is None:
        raise TypeError(f"an array of {plain.dtype}; a column has numbers, texts or times")
    return [*_head(kind, present), _raw(plain.astype(plain.dtype.newbyteorder("<"), copy=False))]


def _objects(values: Sequence[Any], rows: Sequence[int], in_list: bool = False) -> Parts:
    """Returns a column of values of Python. `rows` are the numbers of their rows, for messages."""
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)
    here = [not _is_missing(each) for each in items]
    kinds: dict[str, int] = {}
    for row, each, is_here in zip(rows, items, here):
        if is_here:
            kinds.setdefault(_kind(each, row, in_list), row)
    if not kinds:
        return _head(Kind.NULLS, None)
    present = None if all(here) else np.array(here)
    if set(kinds) <= {"integer", "float"}:
        return _numbers(items, here, present, "float" in kinds)
    if len(kinds) > 1:
        raise TypeError(" and ".join(f"a {kind} (row {row})" for kind, row in kinds.items()))
    if "text" in kinds:
        return _texts([_bytes(each) if is_here else b"" for each, is_here in zip(items, here)], present)
    if "time" in kinds:
        return _texts([_time(each) if is_here else b"" for each, is_here in zip(items, here)], present)
    lists = [list(each) if is_here else [] for each, is_here in zip(items, here)]
    lengths = [len(each) for each in lists]
    return [*_head(Kind.LIST, present), _offsets(np.cumsum([0, *lengths])),
            *_objects([each for one in lists for each in one], np.repeat(rows, lengths).tolist(), in_list=True)]


def _numbers(items: Sequence[Any], here: Sequence[bool], present: Optional[np.ndarray], are_floats: bool) -> Parts:
    if are_floats:
        return _array_of([float(each) if is_here else 0.0 for each, is_here in zip(items, here)], np.float64, present)
    whole = [int(each) if is_here else 0 for each, is_here in zip(items, here)]
    if min(whole) >= _INT64[0] and max(whole) <= _INT64[1]:
        return _array_of(whole, np.int64, present)
    if min(whole) < 0 or max(whole) >= 2**64:
        raise OverflowError(f"integers from {min(whole)} to {max(whole)}: more than 64 bits hold")
    return _array_of(whole, np.uint64, present)


def _array_of(values: Sequence[Any], dtype: Any, present: Optional[np.ndarray]) -> Parts:
    array = np.array(values, dtype)
    return _array(array if present is None else np.ma.masked_array(array, ~present))


def _kind(value: Any, row: int, in_list: bool) -> str:
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return "integer"
    if isinstance(value, (float, np.floating)):
        return "float"
    if isinstance(value, (datetime.date, np.datetime64)):
        return "time"
    if isinstance(value, (list, tuple, np.ndarray)) and not in_list and getattr(value, "ndim", 1) == 1:
        return "list"
    where = "in a list of " if in_list else ""
    raise TypeError(f"{where}row {row}: {value!r:.60} ({type(value).__name__}); a column has numbers, texts, times or "
                    "lists of these")


def _is_missing(value: Any) -> bool:
    # pandas.NA is not to be compared, and there may be no pandas to ask.
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    return isinstance(value, (float, np.floating, np.datetime64)) and bool(value != value)


def _bytes(text: Union[str, bytes]) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _time(value: Any) -> bytes:
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="s")).replace("T", " ").encode()
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc)
    # strftime does not fill years below 1000 with zeros everywhere.
    return str(value.replace(microsecond=0, tzinfo=None).isoformat(" ")).encode()


def _texts(texts: Sequence[bytes], present: Optional[np.ndarray]) -> Parts:
    return [*_head(Kind.TEXT, present), *_text_parts(texts)]


def _text_parts(texts: Sequence[bytes]) -> Parts:
    """Returns offsets and bytes."""
    return [_offsets(np.cumsum([0, *map(len, texts)], dtype=np.int64)), b"".join(texts)]


def _offsets(offsets: np.ndarray) -> memoryview:
    if int(offsets[-1]) > MOST_BYTES:
        raise ValueError(f"{MOST_ROWS} rows have {int(offsets[-1])} bytes or elements; the format takes {MOST_BYTES}")
    return _raw(offsets.astype("<u4"))


def _head(kind: Kind, present: Optional[np.ndarray]) -> Parts:
    """Returns the bytes in front of a payload. `present`: which values are there; None: all of them."""
    if present is None or bool(present.all()):
        return [bytes((kind, 0))]
    return [bytes((kind, 1)), np.packbits(present, bitorder="little").tobytes()]


def _raw(values: np.ndarray) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B") if len(values) else memoryview(b"")
