"""`weir parquet`: what it writes of Arrow's types, its text, and its messages. Needs pyarrow."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from columns_format import DICTIONARY, LIST, NULLS, TEXT, decode

import weir
from weir import columns
from weir.command_line import parquet, standard_output
from weir.errors import DamagedFileError, WeirError

pa = pytest.importorskip("pyarrow", reason="the tests of `weir parquet` need the package pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="the tests of `weir parquet` need the package pyarrow")

from weir.command_line import arrow_columns  # noqa: E402

PACKAGE = Path(weir.__file__).resolve().parent.parent


@pytest.fixture(name="run")
def fixture_run(capfdbinary):
    """Runs `weir parquet` in this process and returns what it writes."""

    def run(*arguments):
        capfdbinary.readouterr()
        parquet.main([os.fspath(each) for each in arguments])
        return capfdbinary.readouterr().out

    return run


def command(*arguments, **options):
    """Runs `weir parquet` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "weir", "parquet", *map(os.fspath, arguments)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=60, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, **options)


def encoded(names, *batches):
    """Returns the stream of batches of arrays."""
    return decode(b"".join([columns.header(names),
                            *(bytes(part) for arrays in batches for part in
                              arrow_columns.batch_parts(list(arrays), len(arrays[0]))), columns.END]))


def one(array):
    """The kind and the values of an array."""
    stream = encoded(["x"], [array])
    (kind,) = stream.kinds["x"]
    return kind, stream.columns["x"]


# Values of each type.

WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(3)]
TIMES = [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
         *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "Europe/Berlin"))]
OTHERS = [pa.bool_(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal256(12, 3), pa.null()]
SINGLE = [*WHOLE, *TEXTS, *TIMES, *OTHERS]
IN_LISTS = [pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.null()]
TYPES = [*SINGLE, *(make(kind) for kind in IN_LISTS
                    for make in (pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)))]
EPOCH = datetime.datetime(1970, 1, 1)


def drawn(draw, kind):
    """A value for a type, or None."""
    if draw.random() < 0.15 or pa.types.is_null(kind):
        return None
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        return draw.randint(int(info.min), int(info.max))
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_floating(kind):
        value = draw.choice([0.5, -1024.25, float("nan"), float("inf"), 3.0])
        return np.float16(value) if pa.types.is_float16(kind) else value  # as pyarrow wanted it before version 21
    if pa.types.is_decimal(kind):
        return decimal.Decimal(draw.randint(-10**8, 10**8)).scaleb(-2)
    if pa.types.is_date(kind):
        return datetime.date(1900, 1, 1) + datetime.timedelta(draw.randint(0, 80000))
    if pa.types.is_time(kind):
        return (EPOCH + datetime.timedelta(seconds=draw.randint(0, 86399))).time()
    if pa.types.is_timestamp(kind):
        value = EPOCH + datetime.timedelta(draw.randint(-20000, 40000), draw.randint(0, 86399),
                                           0 if kind.unit == "s" else draw.choice([0, 1000, 999000]))
        return value if kind.tz is None else value.replace(tzinfo=datetime.timezone.utc)
    if pa.types.is_fixed_size_binary(kind):
        return bytes(draw.randbytes(3))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "".join(draw.choice("ab,\"\té") for _ in range(draw.randint(0, 12)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes(draw.randbytes(draw.randint(0, 9)))
    if pa.types.is_fixed_size_list(kind):
        return [drawn(draw, kind.value_type) for _ in range(3)]
    return [drawn(draw, kind.value_type) for _ in range(draw.randint(0, 4))]


def drawn_for_file(draw, kind):
    """A value that pyarrow writes to files before version 22, too: not null for a list of fixed size."""
    value = drawn(draw, kind)
    return [None] * 3 if value is None and pa.types.is_fixed_size_list(kind) else value


def meant(value):
    """What a value of Arrow is in the format."""
    if isinstance(value, (float, np.floating)) and value != value:
        return None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc)
        return value.strftime("%Y-%m-%d %H:%M:%S").encode()
    if isinstance(value, datetime.date):
        return value.strftime("%Y-%m-%d 00:00:00").encode()
    if isinstance(value, datetime.time):
        return value.strftime("%H:%M:%S").encode()
    if isinstance(value, list):
        return [meant(each) for each in value]
    return value


def plain_values(array):
    """The values of an array, as meant. Nanoseconds, which Python's times do not have, are 0 in these tests."""
    kind = array.type
    if str(kind).startswith("timestamp[ns"):
        array = array.cast(pa.timestamp("us", kind.tz), safe=False)
    return [meant(value) for value in array.to_pylist()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_arrays_of_each_type_come_back_whole_and_in_slices(kind):
    draw = random.Random(str(kind))
    for _ in range(20):
        rows = draw.randint(1, 70)
        whole = pa.array([drawn(draw, kind) for _ in range(rows)], kind)
        first = draw.randint(0, rows - 1)
        part = whole.slice(first, draw.randint(1, rows - first))
        for array in (whole, part):
            assert one(array)[1] == plain_values(array)


@pytest.mark.parametrize("index", WHOLE[:7], ids=str)
@pytest.mark.parametrize("of", [pa.string(), pa.large_string(), pa.binary(), pa.int64(), pa.timestamp("us")], ids=str)
def test_dictionaries_come_back_whole_and_in_slices(index, of):
    draw = random.Random(f"{index} {of}")
    for _ in range(20):
        entries = pa.array([drawn(draw, of) for _ in range(draw.randint(1, 9))], of)
        rows = draw.randint(1, 70)
        codes = pa.array([None if draw.random() < 0.1 else draw.randrange(len(entries)) for _ in range(rows)], index)
        whole = pa.DictionaryArray.from_arrays(codes, entries)
        first = draw.randint(0, rows - 1)
        for array in (whole, whole.slice(first, draw.randint(1, rows - first))):
            assert one(array)[1] == plain_values(array)


def test_the_kinds_are_those_of_the_types():
    for number, kind in enumerate([*WHOLE, pa.float32(), pa.float64()], 1):
        assert one(pa.array([1, 2], kind))[0] == number
    assert one(pa.array([True]))[0] == columns.Kind.UINT8
    assert one(pa.array([np.float16(1.5)], pa.float16()))[0] == columns.Kind.FLOAT32
    assert one(pa.array([decimal.Decimal("0.1")]))[0] == columns.Kind.FLOAT64
    assert one(pa.array([decimal.Decimal(12)], pa.decimal128(18, 0))) == (columns.Kind.INT64, [12])
    assert one(pa.array(["a"]))[0] == TEXT
    assert one(pa.array([["a"]]))[0] == (LIST, TEXT)
    assert one(pa.array([None, None], pa.string()))[0] == NULLS
    assert one(pa.array([5], pa.duration("ms"))) == (columns.Kind.INT64, [5])


def test_a_dictionary_is_written_where_it_is_shorter_than_its_texts():
    few = pa.array(["red", "blue"] * 50).dictionary_encode()
    assert one(few)[0] == DICTIONARY
    many = pa.DictionaryArray.from_arrays(pa.array([0, 999]), pa.array([f"text {i}" for i in range(1000)]))
    assert one(many) == (TEXT, [b"text 0", b"text 999"])


def test_a_dictionary_within_a_list_or_with_a_null_comes_back():
    colours = pa.array(["red", "blue", "red", None]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 3, 3, 4]), colours)
    assert one(lists)[1] == [[b"red", b"blue", b"red"], [], [None]]
    holed = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["red", None]))
    assert one(holed)[1] == [b"red", None, None]


def test_what_lies_under_a_null_does_not_matter():
    bits = pa.py_buffer(bytes([0b101]))
    texts = pa.array(["ab", "under", "c"]).buffers()
    assert one(pa.Array.from_buffers(pa.string(), 3, [bits, *texts[1:]]))[1] == [b"ab", None, b"c"]
    lists = pa.array([[1, 2], [3], []])
    holed = pa.Array.from_buffers(lists.type, 3, [bits, lists.buffers()[1]], children=[lists.values])
    assert one(holed)[1] == [[1, 2], None, []]
    fixed = pa.Array.from_buffers(pa.list_(pa.int8(), 2), 3, [bits], children=[pa.array([1, 2, 3, 4, 5, 6], pa.int8())])
    assert one(fixed)[1] == [[1, 2], None, [5, 6]]


def test_views_of_texts_come_back():
    try:
        views = pa.array(["a", None, "a text of more than twelve bytes"]).cast(pa.string_view())
    except pa.ArrowNotImplementedError:
        pytest.skip(f"pyarrow {pa.__version__} makes no string_view")
    assert one(views)[1] == [b"a", None, b"a text of more than twelve bytes"]


def test_decimals_are_the_nearest_floats_or_near_them():
    values = [decimal.Decimal(n).scaleb(-5) for n in range(-10**15 + 1, 10**15, 1999999999997)] + [None]
    assert one(pa.array(values, pa.decimal128(15, 5)))[1] == [None if each is None else float(each) for each in values]
    long = pa.array([decimal.Decimal("123456789012345678.5")], pa.decimal128(19, 1))
    assert one(long)[1] == [pytest.approx(123456789012345678.5)]


def test_times_before_1970_are_cut_downwards():
    assert one(pa.array([-1, -1000], pa.timestamp("ms")))[1] == [b"1969-12-31 23:59:59"] * 2


@pytest.mark.parametrize("kind,what", [
    (pa.struct({"a": pa.int8()}), "a struct"), (pa.map_(pa.string(), pa.int8()), "a map"),
    (pa.list_(pa.list_(pa.int8())), "lists of lists"), (pa.list_(pa.struct({"a": pa.int8()})), "a struct"),
    (pa.month_day_nano_interval(), "of the type month_day_nano_interval"), (pa.int8(), ""), (pa.list_(pa.string()), ""),
], ids=str)
def test_types_that_have_no_place_are_named(kind, what):
    assert arrow_columns.problem(kind) == what


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_that_is_written_has_no_problem(kind):
    assert arrow_columns.problem(kind) == ""
    assert arrow_columns.problem(pa.dictionary(pa.int32(), kind)) == "" or kind not in SINGLE


# Files.


def random_table(draw, rows):
    kinds = draw.sample([kind for kind in TYPES if kind != pa.float16()], 12)
    arrays = [pa.array([drawn_for_file(draw, kind) for _ in range(rows)], kind) for kind in kinds]
    arrays.append(pa.array([draw.choice(["red", "blue", None]) for _ in range(rows)], pa.string()))
    return pa.table(arrays, names=[f"c{at}" for at in range(len(arrays))])


@pytest.mark.parametrize("seed", range(25))
def test_random_files_come_back(run, tmp_path, seed):
    draw = random.Random(seed)
    table = random_table(draw, draw.choice([0, 1, 9, 300, 3000]))
    # pyarrow 26 loses lists of booleans in small pages of version 2.0.
    version, page_size = draw.choice([("1.0", 64), ("1.0", 10000), ("2.0", 10000)])
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=draw.choice([7, 100, 10000]),
                   compression=draw.choice(["zstd", "snappy", "gzip", "none"]), data_page_size=page_size,
                   use_dictionary=draw.random() < 0.7, dictionary_pagesize_limit=draw.choice([100, 100000]),
                   data_page_version=version, write_page_checksum=draw.random() < 0.5)
    names = draw.sample(table.column_names, draw.randint(1, len(table.column_names)))
    stream = decode(run(tmp_path / "t.parquet", f"--columns={','.join(names)}",
                        f"--batch_rows={draw.choice([1, 8, 999])}", f"--threads={draw.choice([1, 2])}"))
    assert stream.names == names
    read = pq.read_table(tmp_path / "t.parquet")  # of types as Parquet keeps them
    for name in names:
        assert stream.columns[name] == plain_values(read[name].combine_chunks())


def test_columns_of_few_texts_are_dictionaries_and_of_many_texts(run, tmp_path):
    rows = 5000
    table = pa.table({"few": [f"{i % 7:08d}" for i in range(rows)], "many": [f"{i:08d}" for i in range(rows)],
                      "list": [[f"{i % 7}"] for i in range(rows)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2000)
    stream = decode(run(tmp_path / "t.parquet"))
    assert stream.kinds == {"few": {DICTIONARY}, "many": {TEXT}, "list": {(LIST, TEXT)}}
    assert stream.columns["few"] == [text.encode() for text in table["few"].to_pylist()]


def test_files_follow_each_other_with_the_columns_of_the_first(run, tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["z"], "c": [0.5], "a": [3]}), tmp_path / "2.parquet")
    stream = decode(run(tmp_path / "1.parquet", tmp_path / "2.parquet"))
    assert stream.columns == {"a": [1, 2, 3], "b": [b"x", b"y", b"z"]}


def test_names_with_dots_are_names(run, tmp_path):
    pq.write_table(pa.table({"a": [1], "a.b": [2], "é": [3]}), tmp_path / "t.parquet")
    assert decode(run(tmp_path / "t.parquet", "--columns=é,a")).columns == {"é": [3], "a": [1]}
    assert decode(run(tmp_path / "t.parquet", "--columns=a.b")).columns == {"a.b": [2]}


def test_a_column_beside_a_struct_is_read(run, tmp_path):
    pq.write_table(pa.table({"user": [{"id": 1}], "a": [2]}), tmp_path / "t.parquet")
    assert decode(run(tmp_path / "t.parquet", "--columns=a")).columns == {"a": [2]}


def test_a_file_url_is_a_local_file(run, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    assert decode(run(f"file://{tmp_path}/t.parquet")).columns == {"a": [1]}


# Text.


@pytest.mark.parametrize("seed", range(10))
def test_csv_has_what_was_in_the_file(run, tmp_path, seed):
    draw = random.Random(seed)
    rows = draw.randint(1, 200)
    kinds = {"i": pa.int64(), "s": pa.string(), "f": pa.float64(), "l": pa.list_(pa.int32()), "d": pa.string(),
             "g": pa.large_list(pa.string()), "x": pa.list_(pa.int8(), 3), "t": pa.timestamp("ms"), "n": pa.null()}
    table = pa.table({name: pa.array([drawn_for_file(draw, kind) for _ in range(rows)], kind)
                      for name, kind in kinds.items()})
    table = table.set_column(4, 'd,"', pa.array([draw.choice(["a", 'b"', None]) for _ in range(rows)]))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=64)

    def field(value):
        value = meant(value)
        if isinstance(value, list):
            return "|".join(field(each) for each in value)
        if isinstance(value, bytes):
            return value.decode()
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    wanted = [[field(value) for value in row] for row in zip(*table.to_pydict().values())]
    text = run(tmp_path / "t.parquet", "--format=csv", "--batch_rows=50").decode()
    got = list(csv.reader(io.StringIO(text, newline="")))
    assert got[0] == table.column_names and got[1:] == wanted
    text = run(tmp_path / "t.parquet", "--format=tsv", "--list=|").decode()
    assert list(csv.reader(io.StringIO(text, newline=""), delimiter="\t")) == wanted


def test_texts_that_a_line_cannot_have_are_refused(run, tmp_path):
    pq.write_table(pa.table({"a": ["x", "y\nz"], "b": [["p|q"], []]}), tmp_path / "t.parquet")
    with pytest.raises(WeirError, match="column 'a': a text has an end of line"):
        run(tmp_path / "t.parquet", "--format=csv", "--columns=a")
    with pytest.raises(WeirError, match="column 'b': a text has '|'"):
        run(tmp_path / "t.parquet", "--format=csv", "--columns=b")
    assert run(tmp_path / "t.parquet", "--format=csv", "--columns=b", "--list=;") == b"b\np|q\n\n"


def test_a_batch_that_is_too_large_is_written_in_halves(monkeypatch, run, tmp_path):
    pq.write_table(pa.table({"a": [f"{i:05d}" for i in range(100)]}), tmp_path / "t.parquet")
    monkeypatch.setattr(arrow_columns, "MOST_BYTES", 99)
    stream = decode(run(tmp_path / "t.parquet"))
    assert max(stream.batches) <= 19
    assert stream.columns["a"] == [b"%05d" % i for i in range(100)]
    monkeypatch.setattr(arrow_columns, "MOST_BYTES", 4)
    with pytest.raises(WeirError, match="a row cannot be written"):
        run(tmp_path / "t.parquet")


# What goes wrong.


@pytest.fixture(name="file")
def fixture_file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"label": [0, 1] * 500, "user": [f"user {i}" for i in range(1000)],
                             "point": [{"x": 1}] * 1000, "tags": [[("a", 1)]] * 1000},
                            pa.schema({"label": pa.int8(), "user": pa.string(), "point": pa.struct({"x": pa.int8()}),
                                       "tags": pa.map_(pa.string(), pa.int8())})),
                   path, row_group_size=300, write_page_checksum=True, compression="none")
    return path


def fails(code, *arguments):
    """Runs the command, which must end with this code and one line."""
    done = command(*arguments)
    assert done.returncode == code, done.stderr
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("weir parquet: "), lines
    return lines[0][len("weir parquet: "):]


def test_a_column_that_is_not_there_is_named_with_those_that_are(file):
    assert fails(2, file, "--columns=label,usr") == (
        f"{file} has no column 'usr' (did you mean 'user'?); it has label, user, point, tags")


def test_a_column_of_a_wrong_type_is_named_with_a_way_out(file):
    message = fails(2, file)
    assert message.startswith(f"{file}: column 'point' is a struct")
    assert message.endswith("--columns=label,user leaves such columns out")
    assert fails(2, file, "--columns=label,tags").startswith(f"{file}: column 'tags' is a map")


def test_a_file_that_is_not_there_or_no_parquet_file_is_named(file, tmp_path):
    assert fails(2, tmp_path / "none.parquet") == f"{tmp_path}/none.parquet cannot be read: No such file or directory"
    assert fails(2, tmp_path) == f"{tmp_path} is not a regular file"
    (tmp_path / "t.csv").write_text("label,user\n1,2\n")
    assert fails(2, tmp_path / "t.csv") == f"{tmp_path}/t.csv is not a Parquet file: it does not begin with PAR1"
    (tmp_path / "empty").touch()
    assert fails(2, tmp_path / "empty") == f"{tmp_path}/empty is not a Parquet file: it is empty"
    (tmp_path / "secret").write_bytes(b"PARE" + bytes(100) + b"PARE")
    assert "encrypted" in fails(2, tmp_path / "secret")


def test_a_file_that_is_cut_is_named(file):
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    assert fails(4, file) == f"{file} is cut: a Parquet file of {len(data) - 1} bytes does not end with PAR1"
    for size in (4, 8):
        file.write_bytes(b"PAR1" * (size // 4))
        assert fails(4, file).startswith(f"{file} is cut")


def test_a_file_that_is_damaged_is_named_and_its_stream_has_no_end(file):
    data = file.read_bytes()
    at = data.index(b"user 700") + 2
    file.write_bytes(data[:at] + b"?" + data[at + 1:])
    done = command(file, "--columns=user")
    assert done.returncode == 4 and done.stderr.decode().startswith(f"weir parquet: {file} is damaged: ")
    with pytest.raises(AssertionError, match="cut"):
        decode(done.stdout)


def test_damage_anywhere_is_an_error_or_comes_back_as_a_stream(file):
    data = file.read_bytes()
    draw = random.Random(1)
    ended = {0: 0, 4: 0}
    for _ in range(300):
        at = draw.randrange(len(data))
        file.write_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1:])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # damage must not end this process
            os.close(read)
            os.dup2(write, 1)
            sys.stderr = open(os.devnull, "w")
            os._exit(standard_output.run("parquet", parquet.main, [str(file), "--columns=label,user"]))
        os.close(write)
        with open(read, "rb") as pipe:
            out = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            decode(out)
        # A name in the metadata that is damaged is a column that is not there. pyarrow ends the process at some damage.
        assert code in (0, 2, 4, -signal.SIGABRT), code
        ended[code] = ended.get(code, 0) + 1
    assert ended[4] > 100, ended


def test_rows_that_pyarrow_loses_are_damage(run, tmp_path):
    pq.write_table(pa.table({"a": [[True, False, True]], "b": [1]}), tmp_path / "t.parquet", data_page_version="2.0",
                   data_page_size=64)
    try:
        assert decode(run(tmp_path / "t.parquet")).columns == {"a": [[1, 0, 1]], "b": [1]}
    except DamagedFileError as error:  # pyarrow 26
        assert "it says that it has 1 rows, and 0 can be read" in str(error)


def test_a_reader_that_closes_early_ends_the_command_without_a_message(tmp_path):
    pq.write_table(pa.table({"a": np.arange(2_000_000)}), tmp_path / "t.parquet")
    for arguments in ([], ["--format=csv"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "weir", "parquet", str(tmp_path / "t.parquet"), *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        process.stdout.read(1)
        process.stdout.close()
        with process.stderr:
            assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_an_output_that_takes_nothing_is_an_error(file):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "weir", "parquet", str(file), "--columns=label"], stdout=full,
                              stderr=subprocess.PIPE, timeout=60, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    assert done.returncode == 1
    assert done.stderr == b"weir parquet: the output cannot be written: No space left on device\n"


def test_command_lines_that_are_wrong_are_refused(file):
    assert "'a' is named twice" in fails(2, file, "--columns=a,b,a")
    assert "a name is empty" in fails(2, file, "--columns=a,")
    for wrong in ([], [file, "--batch_rows=0"], [file, "--threads=x"], [file, "--format=json"], [file, "--column=a"]):
        done = command(*wrong)
        assert done.returncode == 2 and b"usage: weir parquet" in done.stderr


def test_two_columns_of_one_name_are_refused(run, tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "t.parquet")
    with pytest.raises(WeirError, match="two columns 'a'"):
        run(tmp_path / "t.parquet", "--columns=a")


def test_a_second_file_without_a_column_is_named(run, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [1]}), tmp_path / "2.parquet")
    with pytest.raises(WeirError, match="2.parquet has no column 'a'"):
        run(tmp_path / "1.parquet", tmp_path / "2.parquet")


def test_damage_in_the_metadata_is_damage(file):
    data = file.read_bytes()
    file.write_bytes(data[:-8] + b"\xff\xff\xff\x7f" + b"PAR1")
    with pytest.raises(DamagedFileError, match="t.parquet is damaged"):
        parquet.main([str(file)])
