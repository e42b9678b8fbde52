"""The columns format as weir.columns writes it, decoded by a decoder of its own."""

from __future__ import annotations

import datetime
import io
import random

import numpy as np
import pytest
from columns_format import DICTIONARY, LIST, NULLS, TEXT, decode

from weir import columns


def written(*batches, names=None):
    file = io.BytesIO()
    rows = columns.write(file, batches, names)
    stream = decode(file.getvalue())
    assert sum(stream.batches) == rows
    return stream


def one(values):
    """The kind and the values of a column."""
    stream = written({"x": values})
    (kind,) = stream.kinds["x"]
    return kind, stream.columns["x"]


@pytest.mark.parametrize("kind,dtype", [
    (1, "i1"), (2, "i2"), (3, "i4"), (4, "i8"), (5, "u1"), (6, "u2"), (7, "u4"), (8, "u8"), (9, "f4"), (10, "f8")])
def test_numbers_keep_type_and_value(kind, dtype):
    info = np.finfo(dtype) if dtype[0] == "f" else np.iinfo(dtype)
    values = [info.min, 0, 1, info.max]
    assert one(np.array(values, dtype)) == (kind, [float(v) if dtype[0] == "f" else int(v) for v in values])


def test_other_arrays_become_what_the_format_has():
    assert one(np.array([True, False])) == (5, [1, 0])
    assert one(np.array([1.5, -2], np.float16)) == (9, [1.5, -2.0])
    assert one(np.array([1, -2], ">i4")) == (3, [1, -2])
    assert one(np.array([1, 2, 3, 4, 5])[::-2]) == (4, [5, 3, 1])
    assert one(np.array(["a", "bé", ""])) == (TEXT, [b"a", "bé".encode(), b""])
    assert one(np.array([b"a", b"\xff"])) == (TEXT, [b"a", b"\xff"])
    assert one(np.arange(6).reshape(3, 2)) == ((LIST, 4), [[0, 1], [2, 3], [4, 5]])


def test_nan_and_what_is_masked_is_missing():
    assert one(np.array([1.5, np.nan])) == (10, [1.5, None])
    assert one(np.ma.masked_array([1, 2, 3], [0, 1, 0])) == (4, [1, None, 3])
    assert one(np.ma.masked_array([1.0, np.nan, 3.0], [0, 0, 1])) == (10, [1.0, None, None])
    assert one([1, None, 3]) == (4, [1, None, 3])
    assert one([1.5, float("nan"), 2]) == (10, [1.5, None, 2.0])
    assert one([None, None]) == (NULLS, [None, None])
    assert one(["a", None]) == (TEXT, [b"a", None])


def test_times_are_texts_in_utc_cut_to_seconds():
    there = b"2024-05-01 12:34:56"
    assert one(np.array(["2024-05-01T12:34:56.789", "NaT"], "M8[ms]")) == (TEXT, [there, None])
    assert one(np.array(["1969-12-31T23:59:59.5"], "M8[ms]")) == (TEXT, [b"1969-12-31 23:59:59"])
    zone = datetime.timezone(datetime.timedelta(hours=2))
    values = [datetime.datetime(2024, 5, 1, 14, 34, 56, 789, zone), datetime.datetime(2024, 5, 1, 12, 34, 56), None,
              datetime.date(2024, 5, 1), np.datetime64("2024-05-01T12:34:56.9"), np.datetime64("NaT")]
    assert one(values) == (TEXT, [there, there, None, b"2024-05-01 00:00:00", there, None])


def test_lists_have_elements_of_one_type():
    assert one([["a", None], None, [], ("b",)]) == ((LIST, TEXT), [[b"a", None], None, [], [b"b"]])
    assert one([[1, 2.5], [np.nan]]) == ((LIST, 10), [[1.0, 2.5], [None]])
    assert one([np.array([1, 2]), np.array([], int)]) == ((LIST, 4), [[1, 2], []])
    assert one([[], []]) == ((LIST, NULLS), [[], []])


def test_integers_that_need_64_bits_without_a_sign_have_them():
    assert one([0, 2**64 - 1]) == (8, [0, 2**64 - 1])


def test_dictionaries_are_written_as_they_are():
    texts = columns.Dictionary(["red", b"blue"], [1, -1, 0, 1])
    assert one(texts) == (DICTIONARY, [b"blue", None, b"red", b"blue"])
    assert one(columns.Dictionary([], [-1])) == (NULLS, [None])
    for codes, error in (([2], ValueError), ([0.5], TypeError), ([[0]], TypeError)):
        with pytest.raises(error, match="Dictionary"):
            columns.Dictionary(["a", "b"], codes)


def test_long_batches_are_cut_and_empty_ones_left_out():
    stream = written({"x": np.arange(0)}, {"x": np.arange(columns.MOST_ROWS + 3)}, {"x": [7]})
    assert stream.batches == [columns.MOST_ROWS, 3, 1]
    assert stream.columns["x"] == [*range(columns.MOST_ROWS + 3), 7]


def test_the_order_of_columns_is_that_of_names():
    stream = written({"a": [1], "b": [2]}, {"b": [4], "a": [3]}, names=["b", "a"])
    assert stream.names == ["b", "a"] and stream.columns == {"b": [2, 4], "a": [1, 3]}
    assert written({"b": [1], "a": [2]}).names == ["b", "a"]


def test_a_stream_without_rows_has_its_names():
    assert written(names=["é", "b"]).names == ["é", "b"]
    with pytest.raises(ValueError, match="names of its columns"):
        written()


def test_an_exception_leaves_the_stream_without_its_end():
    def batches():
        yield {"x": [1]}
        raise RuntimeError

    file = io.BytesIO()
    with pytest.raises(RuntimeError):
        columns.write(file, batches())
    with pytest.raises(AssertionError, match="cut"):
        decode(file.getvalue())


@pytest.mark.parametrize("values,message", [
    ([1, "a"], "column 'x': an? integer .row 0. and a text .row 1."),
    (["a", ["b"]], "a text .row 0. and a list .row 1."),
    ([None, {"a": 1}], "column 'x': row 1: {'a': 1} .dict."),
    ([[1], None, [2, [3]]], "column 'x': in a list of row 2: .3. .list."),
    ([2**64], "more than 64 bits"),
    ([-1, 2**63], "more than 64 bits"),
    (np.zeros((2, 2, 2)), "shape .2, 2, 2."),
    (np.array([1j]), "complex128"),
    (np.array([1], "m8[s]"), "timedelta64"),
])
def test_values_that_have_no_place_are_named(values, message):
    with pytest.raises((OverflowError, TypeError), match=message):
        written({"x": values})


def test_batches_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="different lengths"):
        written({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="has the columns a; those of the stream are a, b"):
        written({"a": [1], "b": [2]}, {"a": [1]})
    with pytest.raises(TypeError, match="array or a list, got str"):
        written({"a": "text"})
    with pytest.raises(ValueError, match="two columns of one name: a"):
        written(names=["a", "a"])
    with pytest.raises(ValueError, match="at least one column"):
        written({})


def test_random_batches_come_back():
    draw = random.Random(5)
    makers = [lambda: draw.randint(-2**62, 2**62), draw.random,
              lambda: "".join(draw.choices("aé,\"\n", k=draw.randint(0, 9))),
              lambda: [draw.choice([None, draw.randint(0, 9)]) for _ in range(draw.randint(0, 3))]]
    for _ in range(100):
        rows = draw.randint(1, 40)
        batch = {str(at): [None if draw.random() < 0.2 else draw.choice(makers[at:at + 1])() for _ in range(rows)]
                 for at in range(4)}
        decoded = written(batch).columns
        for name, values in batch.items():
            assert decoded[name] == [each.encode() if isinstance(each, str) else each for each in values]


def test_pandas_columns_are_taken():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"i": pandas.array([1, None], "Int64"), "s": ["a", None], "f": [1.5, None],
                              "t": pandas.to_datetime(["2024-05-01 12:00:00", None])})
    stream = written({name: frame[name] for name in frame})
    assert stream.columns == {"i": [1, None], "s": [b"a", None], "f": [1.5, None], "t": [b"2024-05-01 12:00:00", None]}
