"""Makes lines of text of Arrow arrays. Needs pyarrow."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.command_line.arrow_columns import plain
from weir.errors import WeirError

__all__ = ["header", "lines"]


def header(names: Sequence[str], separator: str) -> bytes:
    """Returns the line with the names of the columns."""
    return b"%s\n" % separator.encode().join(
        _quoted(name.encode("utf-8", "surrogateescape"), separator.encode()) for name in names)


def lines(columns: Sequence[pa.Array], names: Sequence[str], separator: str, between: str) -> memoryview:
    """Returns the lines of a batch. A null is an empty field.

    Args:
        columns: of one length, not 0.
        names: of the columns, for messages.
        separator: stands between fields; a field that has it, or a quote, is quoted.
        between: stands between the elements of a list.

    Raises:
        weir.WeirError: a text has an end of line.
        pa.ArrowCapacityError: the batch has more than 2 GiB.
    """
    fields = []
    for name, column in zip(names, columns):
        try:
            fields.append(_fields(column, separator.encode(), between.encode()))
        except ValueError as error:
            if isinstance(error, pa.ArrowInvalid):
                raise
            raise WeirError(f"column '{name}': {error}") from None
    fields[-1] = pc.binary_join_element_wise(fields[-1], pa.scalar(b"\n"), pa.scalar(b""))
    text = fields[0] if len(fields) == 1 else pc.binary_join_element_wise(*fields, pa.scalar(separator.encode()))
    _, offsets, data = text.buffers()
    places = np.frombuffer(offsets, np.int32, len(text) + 1, text.offset * 4)
    return memoryview(data)[int(places[0]):int(places[-1])]


def _fields(column: pa.Array, separator: bytes, between: bytes) -> pa.Array:
    """Returns the fields of a column as binary, without nulls."""
    column = plain(column)
    if hasattr(column, "values") and hasattr(column.type, "value_field"):
        texts = _texts(plain(column.values))
        if between in _bytes_of(texts):
            raise ValueError(f"a text has '{between.decode()}', which stands between the elements of a list; --list "
                             "names another character")
        column = pc.binary_join(_list_of(column, texts), pa.scalar(between))
    texts = _texts(column)
    data = _bytes_of(texts)
    if b"\n" in data:
        raise ValueError("a text has an end of line, which no field of a line can have")
    if any(each in data for each in (separator, b'"', b"\r")):
        texts = pa.array([_quoted(each, separator) for each in texts.to_pylist()], pa.binary())
    return texts


def _texts(column: pa.Array) -> pa.Array:
    """Returns the values as binary; nulls are empty."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(pa.string())
    return pc.fill_null(column.cast(pa.binary()), b"")


def _list_of(lists: Any, elements: pa.Array) -> pa.Array:
    """Returns lists of other elements."""
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        elements = elements.slice(lists.offset * size, len(lists) * size)
        made = pa.ListArray.from_arrays(pa.array(np.arange(len(lists) + 1, dtype=np.int32) * size), elements)
    else:
        made = pa.ListArray.from_arrays(lists.offsets.cast(pa.int32()), elements)
    return pc.if_else(lists.is_valid(), made, pa.scalar(None, made.type)) if lists.null_count else made


def _bytes_of(texts: pa.Array) -> bytes:
    data = texts.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def _quoted(text: bytes, separator: bytes) -> bytes:
    if separator in text or b'"' in text or b"\r" in text:
        return b'"' + text.replace(b'"', b'""') + b'"'
    return text
