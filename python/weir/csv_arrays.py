"""Writes arrays as the CSV file that a job reads."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import numpy as np

from weir.protos import job_pb2

__all__ = ["columns_of", "write_csv"]

_Column = job_pb2.Csv.Column
_BLANKS = " \t"
# Whole numbers beyond this are rounded in float64.
_EXACT = 2**53


def columns_of(inputs: Any) -> dict[str, Sequence[Any]]:
    """Returns the columns of a pandas DataFrame, or of a dict of lists or arrays, by name.

    Raises:
        TypeError: `inputs` is neither, or a column has no length.
        ValueError: columns have different lengths, or one name.
    """
    columns: dict[str, Sequence[Any]] = {}
    if isinstance(inputs, Mapping):
        names: list[Any] = list(inputs)
    elif hasattr(inputs, "columns") and hasattr(inputs, "iloc"):
        names = list(inputs.columns)
    else:
        raise TypeError("inputs are the path of files, a pandas DataFrame, or a dict of a list or an array for each "
                        f"column, got {type(inputs).__name__}")
    for at, name in enumerate(names):
        if str(name) in columns:
            raise ValueError(f"inputs have two columns '{name}': rename or drop one")
        values = inputs[name] if isinstance(inputs, Mapping) else inputs.iloc[:, at]
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise TypeError(f"column '{name}' of the inputs is a list or an array, got {type(values).__name__}")
        columns[str(name)] = values
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of the inputs have different lengths: {lengths}")
    return columns


def write_csv(columns: Mapping[str, Sequence[Any]], csv: job_pb2.Csv, path: Path) -> None:
    """Writes the columns that a job reads into a file with a header.

    A missing value (None, NaN, NaT, pandas.NA) is an empty field. Floats have the digits that restore them as float32;
    one beyond float32 keeps all its digits, and the reader refuses it.

    Args:
        columns: by name, all of one length (columns_of). Those that the job does not name are left out.
        csv: reader of the job; the file has its separators and its decimal comma. Its quote is '"', its separator one
            character, and no line is passed over.
        path: of the file.

    Raises:
        ValueError: a value cannot stand in its column; the text names column and row.
    """
    known = {column.name: column for column in csv.column if column.type != _Column.SKIP}
    names = [name for name in known if name in columns]
    fields = [_fields(known[name], columns[name], csv) for name in names]
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(csv.separator.join(_quoted(name, csv) for name in names) + "\n")
        for row in zip(*fields):
            file.write(csv.separator.join(row) + "\n")


def _fields(column: _Column, values: Sequence[Any], csv: job_pb2.Csv) -> list[str]:
    """Returns the fields of a column."""
    fields = []
    element = _element(column, csv)
    number = None
    try:
        for number, value in enumerate(_plain(values, _is_number(column))):
            if value is None or (isinstance(value, float) and value != value) or _is_missing(value):
                fields.append("")
            elif isinstance(value, (list, tuple, dict, np.ndarray)):
                fields.append(_quoted(_list(column, value, element, csv), csv))
            else:
                fields.append(_quoted(element(value), csv))
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"column '{column.name}' of the inputs, row {number}: {error}") from None
    return fields


def _plain(values: Sequence[Any], as_float32: bool) -> Iterable[Any]:
    """Returns the values as Python's own, which are quicker to look at than those of NumPy."""
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" or getattr(values, "ndim", 1) != 1:
        return values
    array = np.asarray(values)
    if as_float32:
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float32)
        # What float32 does not reach keeps its digits (_float).
        if not np.isinf(rounded).any():
            array = rounded
    return list(array.tolist())


def _is_missing(value: Any) -> bool:
    # pandas.NA is not to be compared, and there may be no pandas to ask.
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, (np.floating, np.datetime64))
                                                             and bool(value != value))


def _is_number(column: _Column) -> bool:
    return column.type == _Column.FLOAT and not column.classes and not column.learn_classes


def _list(column: _Column, value: Any, element: Callable[[Any], str], csv: job_pb2.Csv) -> str:
    """Returns the text of a list: its elements between the column's separators, with weights."""
    if not column.list:
        raise ValueError(f"a list of {len(value)} values, but the column has one value; `list` of the column in the "
                         "job names a separator for lists")
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise ValueError(f"an array of shape {value.shape}; a list has one dimension")
    texts = []
    for each in value.items() if isinstance(value, dict) else value:
        weight = None
        if isinstance(each, tuple):
            if not column.weight or len(each) != 2:
                raise ValueError(f"{each!r} is a pair of a value and its weight; "
                                 + ("it has two parts" if column.weight else "the column has no `weight` in the job"))
            each, weight = each
        missing = each is None or _is_missing(each) or (isinstance(each, float) and each != each)
        text = "" if missing else element(each)
        if column.list in text:
            raise ValueError(f"{text!r} contains '{column.list}', which separates the elements of a list")
        # What stands behind the last mark is the weight, also if the text has one of its own.
        if text and column.weight and (weight is not None or column.weight in text):
            text += column.weight + _number(1.0 if weight is None else weight, csv)
        texts.append(text)
    return column.list.join(texts)


def _element(column: _Column, csv: job_pb2.Csv) -> Callable[[Any], str]:
    """Returns the function that makes the text of one value of the column."""
    if column.type == _Column.ID:
        return _id
    if column.type == _Column.TIME:
        return lambda value: _time(value, column.time_format)
    if column.type == _Column.TEXT:
        return _string
    return (lambda value: _number(value, csv)) if _is_number(column) else _class


def _number(value: Any, csv: job_pb2.Csv) -> str:
    # A text is what a file would have.
    text = _float(value)
    return text.replace(".", ",") if csv.decimal_comma and not isinstance(value, (str, bytes)) else text


def _float(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return _string(value)
    if not isinstance(value, float):
        value = float(value)
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    # The reader says of the number itself that float32 does not reach so far.
    return repr(float(value)) if np.isinf(rounded) and not np.isinf(value) else f"{rounded:.9g}"


def _id(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return _string(value)
    if isinstance(value, (float, np.floating)):
        # pandas makes floats of whole numbers where some are missing.
        if not float(value).is_integer():
            raise ValueError(f"{value!r} is not a whole number, and the column is of type ID")
        if abs(float(value)) >= _EXACT:
            raise ValueError(f"{value!r} is a float, which has too few digits for ids beyond 2^53; give whole numbers "
                             "(of dtype 'Int64', where some are missing)")
    return str(int(value))


def _class(value: Any) -> str:
    # Labels of two classes are often floats, and their texts "0" and "1".
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return _string(value)


def _string(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (float, np.floating)):
        raise ValueError(f"{value!r} is a float, and the column is of type TEXT: it is not known which text it was in "
                         "the training data ('12' or '12.0'); give texts")
    return str(value)


def _time(value: Any, form: str) -> str:
    if isinstance(value, (str, bytes)):
        return _string(value)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if not isinstance(value, datetime.datetime):
        raise ValueError(f"{value!r} is no time: give texts of the form '{form}', or datetimes")
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc)
    # Seconds with a fraction, which the reader cuts off, are none of strftime's letters.
    plain = re.sub(r"%E[*#\d]+S", "%S", form)
    if "%E" in plain or "%O" in plain:
        raise ValueError(f"a datetime cannot be written in the form '{form}' of the column; give texts")
    return str(value.strftime(plain))


def _quoted(text: str, csv: job_pb2.Csv) -> str:
    """Returns a field with the text, in quotes where it needs them."""
    if "\n" in text:
        raise ValueError(f"{text[:40]!r} contains an end of line, which no field of a CSV file of Weir can hold")
    if csv.trim:
        # As in a file: blanks around a field are not part of it.
        text = text.strip(_BLANKS)
    if csv.separator in text or '"' in text or "\r" in text:
        return '"' + text.replace('"', '""') + '"'
    return text
