"""Writes Arrow arrays in the columns format (docs/parquet.md): their buffers, where the layouts are the same.

Needs pyarrow. weir.columns writes arrays of NumPy.
"""

from __future__ import annotations

import struct
from typing import Any, Optional

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.columns import MOST_BYTES, Kind, Parts

__all__ = ["TooLargeError", "batch_parts", "plain", "problem"]

_KINDS = {pa.int8(): Kind.INT8, pa.int16(): Kind.INT16, pa.int32(): Kind.INT32, pa.int64(): Kind.INT64,
          pa.uint8(): Kind.UINT8, pa.uint16(): Kind.UINT16, pa.uint32(): Kind.UINT32, pa.uint64(): Kind.UINT64,
          pa.float32(): Kind.FLOAT32, pa.float64(): Kind.FLOAT64}

# Decimals of so many digits fit into an int64; are exact as a float64; and so is 10 to this power.
_DIGITS_OF_INT64, _DIGITS_OF_FLOAT64, _EXACT_POWER = 18, 15, 22


class TooLargeError(Exception):
    """A column of a batch has more bytes or elements than 32-bit offsets hold; fewer rows may fit."""


def problem(kind: pa.DataType) -> str:
    """Returns why a column of this type cannot be written; "" if it can."""
    kind = _storage(kind)
    if _is_list(kind):
        kind = _storage(kind.value_type)
        if _is_list(kind):
            return "lists of lists"
    if pa.types.is_dictionary(kind):
        kind = _storage(kind.value_type)
    if kind in _KINDS or any(is_one(kind) for is_one in _CONVERTED):
        return ""
    return "a struct" if pa.types.is_struct(kind) else "a map" if pa.types.is_map(kind) else f"of the type {kind}"


def batch_parts(columns: list[pa.Array], rows: int) -> Parts:
    """Returns the bytes of a batch of 1 ... 2^24 rows, in parts that borrow the buffers of the arrays.

    Raises:
        TooLargeError: a column is too large for one batch.
        pa.ArrowInvalid: so, too, for an array of Arrow itself.
    """
    parts: Parts = [struct.pack("<I", rows)]
    for column in columns:
        parts += _column(plain(column))
    return parts


def plain(array: pa.Array) -> pa.Array:
    """Returns the array as numbers, texts (string, large_string, binary, ...), a dictionary of texts, or a list.

    NaN becomes null. Times become texts "2024-05-01 12:00:00", in UTC and cut to seconds, as a column of type TIME
    reads them; times of a day "12:00:00". Elements of a list are as they were.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if kind in (pa.float32(), pa.float64()):
        nan = pc.is_nan(array)
        return pc.if_else(nan, pa.scalar(None, kind), array) if pc.any(nan).as_py() else array
    if kind in _KINDS:
        return array
    if pa.types.is_dictionary(kind):
        if not _is_text(kind.value_type) or array.dictionary.null_count:
            return plain(array.dictionary_decode())
        return array
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8())
    if pa.types.is_float16(kind):
        return plain(array.cast(pa.float32()))
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _seconds(array, pa.timestamp("s")).cast(pa.string())
    if pa.types.is_time(kind):
        return _seconds(array, pa.time32("s")).cast(pa.string())
    if pa.types.is_duration(kind):
        return array.view(pa.int64())
    if pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    if _is_view(kind):
        return array.cast(pa.large_binary())
    return array


_CONVERTED = (pa.types.is_null, pa.types.is_boolean, pa.types.is_float16, pa.types.is_decimal, pa.types.is_timestamp,
              pa.types.is_date, pa.types.is_time, pa.types.is_duration, pa.types.is_fixed_size_binary,
              lambda kind: _is_text(kind) or _is_view(kind))


def _storage(kind: pa.DataType) -> pa.DataType:
    return _storage(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: pa.DataType) -> bool:
    # Lists that are views cannot be in a Parquet file.
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _is_view(kind: pa.DataType) -> bool:
    # string_view and binary_view, which old versions of pyarrow do not have.
    return str(kind) in ("string_view", "binary_view")


def _seconds(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns times in whole seconds, rounded down, without a time zone: a time with one is in UTC already."""
    if pa.types.is_date32(array.type):
        return array.cast(kind)
    unit = "ms" if pa.types.is_date64(array.type) else array.type.unit
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    wide = pa.int32() if pa.types.is_time32(array.type) else pa.int64()
    # Buffers are read up to the length of the array; what is under nulls does not matter.
    values = np.frombuffer(array.buffers()[1], wide.to_pandas_dtype(), len(array) + array.offset)[array.offset:]
    seconds = values if per_second == 1 else values // per_second
    whole = pa.array(seconds.astype(np.int32 if pa.types.is_time(kind) else np.int64))
    return _with_nulls_of(array, whole.view(kind))


def _decimals(array: pa.Array) -> pa.Array:
    """Returns decimals as integers if they have no fraction and 64 bits hold them, else as floats."""
    kind = array.type
    if kind.scale == 0 and kind.precision <= _DIGITS_OF_INT64:
        return array.cast(pa.int64())
    if kind.precision > _DIGITS_OF_FLOAT64 or not 0 <= kind.scale <= _EXACT_POWER:
        return array.cast(pa.float64())
    if not pa.types.is_decimal128(kind):
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    # One division of exact numbers gives the float that a reader makes of the digits; Arrow's cast may give another.
    low = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset:2 * (array.offset + len(array)):2]
    floats = pa.array(low / 10.0**kind.scale)
    return _with_nulls_of(array, floats)


def _with_nulls_of(array: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), values, pa.scalar(None, values.type)) if array.null_count else values


def _column(array: pa.Array) -> Parts:
    """Returns a column of a batch, or of the elements of a list, of a type that plain() returns."""
    kind = array.type
    if array.null_count == len(array):
        return [bytes((Kind.NULLS, 0))]
    if kind in _KINDS:
        return [*_head(_KINDS[kind], array), _values(array.buffers()[1], array, kind.bit_width // 8)]
    if _is_text(kind):
        return [*_head(Kind.TEXT, array), *_texts(array)]
    if pa.types.is_dictionary(kind):
        return _dictionary(array)
    assert _is_list(kind), kind
    offsets, elements = _elements(array)
    return [*_head(Kind.LIST, array), _offsets(offsets), *_column(plain(elements))]


def _head(kind: Kind, array: pa.Array) -> Parts:
    """Returns kind, and the bits of the values that are there."""
    if array.null_count == 0:
        return [bytes((kind, 0))]
    rows, first = len(array), array.offset
    bits = memoryview(array.buffers()[0])
    if first % 8 or rows % 8:
        # Bits that begin within a byte are moved, and those behind the last value are made 0.
        there = np.frombuffer(bits, np.uint8)[first // 8:(first + rows + 7) // 8]
        there = np.unpackbits(there, bitorder="little")[first % 8:first % 8 + rows]
        return [bytes((kind, 1)), np.packbits(there, bitorder="little").tobytes()]
    return [bytes((kind, 1)), bits[first // 8:(first + rows) // 8]]


def _values(buffer: pa.Buffer, array: pa.Array, width: int) -> memoryview:
    return memoryview(buffer)[array.offset * width:(array.offset + len(array)) * width]


def _texts(array: pa.Array) -> Parts:
    """Returns the offsets and the bytes of texts."""
    wide = array.type in (pa.large_string(), pa.large_binary())
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64 if wide else np.int32, len(array) + 1, array.offset * (8 if wide else 4))
    first, end = int(places[0]), int(places[-1])
    return [_offsets(places - first if first else places), memoryview(data)[first:end] if end > first else b""]


def _offsets(offsets: np.ndarray) -> memoryview:
    if int(offsets[-1]) > MOST_BYTES:
        raise TooLargeError
    # Those of Arrow with 32 bits have the same bits without a sign.
    return (offsets if offsets.dtype == np.int32 else offsets.astype(np.uint32)).data.cast("B")


def _dictionary(array: pa.DictionaryArray) -> Parts:
    texts, rows = array.dictionary, len(array)
    size = len(texts) and 4 + _size(texts) / len(texts)
    # A dictionary of many texts that the batch does not have would be longer than the texts.
    if len(texts) * size + 4 * rows > rows * size:
        return _column(array.dictionary_decode())
    codes = array.indices if array.indices.type == pa.int32() else array.indices.cast(pa.int32())
    return [*_head(Kind.DICTIONARY, codes), struct.pack("<I", len(texts)), *_texts(texts),
            _values(codes.buffers()[1], codes, 4)]


def _size(texts: pa.Array) -> int:
    """Returns the number of bytes of texts."""
    return len(memoryview(_texts(texts)[1]))


def _elements(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Returns the offsets of lists, from 0, and their elements. Elements of a list that is null may be among them."""
    rows, first = len(array), array.offset
    if pa.types.is_fixed_size_list(array.type):
        size: int = array.type.list_size
        # flatten() would leave out what null lists have, `values` has also what is outside a slice.
        return np.arange(rows + 1, dtype=np.int64) * size, array.values.slice(first * size, rows * size)
    offsets = array.offsets
    wide: Any = np.int64 if offsets.type == pa.int64() else np.int32
    places = np.frombuffer(offsets.buffers()[1], wide, len(offsets) + offsets.offset)[offsets.offset:]
    begin: Optional[int] = int(places[0])
    return places - begin, array.values.slice(begin, int(places[-1]) - int(places[0]))
