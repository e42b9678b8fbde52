"""Predictions by weir.prediction: arrays have the scores of the file with the same values, to the bit."""

from __future__ import annotations

import csv
import datetime
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import pytest

from weir import csv_arrays, programs
from weir.errors import JobError, ProgramsMissingError, RunError
from weir.prediction import predict
from weir.protos import job_pb2
from weir.run import train

try:
    programs.find("trainer")
except ProgramsMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

JOB = """
name: "wide"
data {
  train { files: "train.csv" }
  eval { files: "eval.csv" }
  csv {
    column { name: "label" classes { text: "no" } classes { text: "yes" text: "oui" } }
    column { name: "age" }
    column { name: "vector" list: ";" dim: 2 }
    column { name: "user" type: ID }
    column { name: "title" type: TEXT missing: "?" }
    column { name: "tags" type: TEXT list: "|" }
    column { name: "items" type: ID list: "|" weight: ":" }
    column { name: "at" type: TIME time_format: "%Y-%m-%d %H:%M:%E*S" }
  }
  derived { name: "hour" time { of: "at" part: HOUR } }
  batch_size: 32
}
model {
  layer { name: "u" embedding { ids: "user" table: "t" } }
  layer { name: "w" embedding { ids: "title" table: "t" } }
  layer { name: "g" embedding { ids: "tags" table: "t" pooling: SUM } }
  layer { name: "i" embedding { ids: "items" table: "t" pooling: SUM } }
  layer { name: "h" embedding { ids: "hour" table: "t" } }
  layer { name: "in" concat { input: "u" input: "w" input: "g" input: "i" input: "h" input: "age" input: "vector" } }
  layer { name: "logit" fc { input: "in" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table {
  name: "t" width: 4 is_sparse: true is_distributed: true
  initializer { uniform { min: -1 max: 1 } }
}
optimizer { sgd { learning_rate: 0.5 } }
train { epochs: 1 seed: 1 lanes: 2 }
checkpoint { dir: "checkpoints" }
"""

NAMES = ["label", "age", "vector", "user", "title", "tags", "items", "at"]
TITLES = ["plain", "a, b", 'the "best"', '"', "Käse, \u732b", " blanks ", "tab\tbed", "cr\r", "nan", "it's", None]

Row = dict[str, Any]


def draw_rows(count: int, seed: int) -> list[Row]:
    """Rows of Python values; None is missing."""
    draw = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.15 else value

    return [{
        "label": draw.choice(["no", "yes", "oui"]),
        "age": maybe(draw.choice([draw.random(), draw.uniform(-2, 2), 1, 1e-30, 0.1])),
        "vector": maybe([maybe(draw.random()), draw.gauss(0, 1)]),
        "user": maybe(draw.choice([draw.randint(0, 9), -5, 2**62 + 1])),
        "title": draw.choice(TITLES),
        "tags": maybe([draw.choice(["x", "y, z", 'q"q', "é"]) for _ in range(draw.randint(0, 3))]),
        "items": maybe([draw.choice([n, (n, draw.uniform(0, 2))]) for n in range(draw.randint(0, 4))]),
        "at": maybe(datetime.datetime(2024, 5, 17, draw.randint(0, 23), 30, 59, 500000)),
    } for _ in range(count)]


def field(value: Any, separator: str = "") -> str:
    """The text of a value in a file, apart from quotes; floats with all digits of a double."""
    if value is None:
        return ""
    if isinstance(value, list):
        return separator.join(field(each) for each in value)
    if isinstance(value, tuple):
        return f"{value[0]}:{value[1]!r}"
    return value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)


def write_rows(path: Path, rows: list[Row]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(NAMES)
        for row in rows:
            writer.writerow([field(row[name], ";" if name == "vector" else "|") for name in NAMES])


def as_columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in NAMES if name != "label"}


@pytest.fixture(name="trained", scope="module")
def fixture_trained(tmp_path_factory) -> SimpleNamespace:
    """A trained job, with rows to score that also are a file."""
    directory = tmp_path_factory.mktemp("wide")
    write_rows(directory / "train.csv", draw_rows(600, seed=1))
    rows = draw_rows(200, seed=2)
    write_rows(directory / "eval.csv", rows)
    job = directory / "job.textproto"
    job.write_text(JOB, encoding="utf-8")
    train(job, local=True, progress=False)
    return SimpleNamespace(job=job, checkpoint=directory / "checkpoints", rows=rows, columns=as_columns(rows),
                           file=directory / "eval.csv", scores=predict(job, directory / "checkpoints"))


def small(directory: Path, text: str, train_lines: str) -> tuple[Path, Path]:
    """Trains a small job. Returns its file and its checkpoints."""
    (directory / "train.csv").write_text(train_lines, encoding="utf-8")
    job = directory / "job.textproto"
    job.write_text(text, encoding="utf-8")
    train(job, local=True, progress=False)
    return job, directory / "checkpoints"


def job_of(csv_settings: str, outputs: int = 1) -> str:
    """A job with the float "x" and the id "c", for two classes or more."""
    loss = "sigmoid" if outputs == 1 else "softmax"
    return f"""
    name: "small"
    data {{ train {{ files: "train.csv" }} csv {{ {csv_settings} }} batch_size: 8 }}
    model {{
      layer {{ name: "v" embedding {{ ids: "c" table: "t" }} }}
      layer {{ name: "in" concat {{ input: "v" input: "x" }} }}
      layer {{ name: "logit" fc {{ input: "in" size: {outputs} }} }}
      loss {{ {loss}_cross_entropy {{ logits: "logit" label: "label" }} }}
    }}
    table {{
      name: "t" width: 2 is_sparse: true is_distributed: true
      initializer {{ uniform {{ min: -1 max: 1 }} }}
    }}
    optimizer {{ sgd {{ learning_rate: 0.5 }} }}
    train {{ epochs: 1 seed: 1 lanes: 1 }}
    checkpoint {{ dir: "checkpoints" }}
    """


def test_files_give_a_float32_for_each_line(trained):
    assert trained.scores.dtype == np.float32 and trained.scores.shape == (200,)
    assert len(set(trained.scores.tolist())) > 190
    for inputs in (trained.file, str(trained.file.parent / "eva*.csv")):
        assert predict(trained.job, trained.checkpoint, inputs).tobytes() == trained.scores.tobytes()


def test_a_dict_has_the_scores_of_the_file_to_the_bit(trained):
    assert predict(trained.job, trained.checkpoint, trained.columns).tobytes() == trained.scores.tobytes()


def test_a_frame_has_the_scores_of_the_file_to_the_bit(trained):
    pandas = pytest.importorskip("pandas", reason="frames need pandas")
    frame = pandas.DataFrame(trained.columns)
    frame["user"] = pandas.array(trained.columns["user"], dtype="Int64")
    frame["title"] = frame["title"].astype("string")
    assert frame["age"].dtype == np.float64 and frame["at"].dtype.kind == "M"
    scores = predict(trained.job, trained.checkpoint, frame.assign(other="\n"))
    assert scores.tobytes() == trained.scores.tobytes()
    shuffled = frame.sample(frac=1, random_state=1)
    assert predict(trained.job, trained.checkpoint, shuffled).tobytes() == trained.scores[shuffled.index].tobytes()


def test_a_frame_that_pandas_read_from_the_file_has_its_scores(trained):
    pandas = pytest.importorskip("pandas", reason="frames need pandas")
    frame = pandas.read_csv(trained.file, dtype={"user": "Int64"}, keep_default_na=False,
                            na_values={"age": "", "user": ""}, lineterminator="\n")
    assert predict(trained.job, trained.checkpoint, frame).tobytes() == trained.scores.tobytes()


def test_arrays_of_numpy_have_the_scores_of_lists(trained):
    rows = [row for row in trained.rows if row["age"] is not None and row["vector"] is not None]
    columns = as_columns(rows)
    expected = predict(trained.job, trained.checkpoint, columns)
    columns["age"] = np.array(columns["age"], np.float32)
    columns["vector"] = np.array(columns["vector"], np.float64)
    columns["at"] = np.array(columns["at"], "datetime64[ns]")
    columns["items"] = [None if each is None else {one[0] if isinstance(one, tuple) else one:
                                                   one[1] if isinstance(one, tuple) else 1 for one in each}
                        for each in columns["items"]]
    assert predict(trained.job, trained.checkpoint, columns).tobytes() == expected.tobytes()


def dialect(directory: Path) -> tuple[Path, Path]:
    """Trains a job on CSV of another dialect, and writes eval.csv. Returns its file and its checkpoints."""
    settings = """
      separator: "::" quote: "'" decimal_comma: true skip_lines: 1 skip_blank_lines: true comment: "#"
      column { name: "c" type: TEXT } column { name: "x" } column { name: "label" }
      column { name: "d" type: ID whole_floats: true output: "d" }
    """
    lines = "".join(f"{'#not'[i % 2:]}::{i % 7},5::{i % 2}::{i},0\n\n" for i in range(1, 60))
    (directory / "eval.csv").write_text("more\nc::x::d\n'#a'::0,5::3,0\n'it''s'::-1,25::\n::::\n", encoding="utf-8")
    return small(directory, job_of(settings), "about\n# it\nc::x::label::d\n'a'::1,5::1::2,0\n" + lines)


def test_arrays_are_written_for_a_job_of_another_dialect(tmp_path):
    job, checkpoints = dialect(tmp_path)
    scores = predict(job, checkpoints, tmp_path / "eval.csv")
    columns = {"c": ["#a", "it's", None], "x": [0.5, -1.25, None], "d": [3, None, None]}
    assert scores.shape == (3,) and predict(job, checkpoints, columns).tobytes() == scores.tobytes()
    # As a file would have it.
    assert predict(job, checkpoints, {**columns, "x": ["0,5", "-1,25", ""]}).tobytes() == scores.tobytes()


def test_carried_columns_of_another_dialect_are_numbers(tmp_path):
    pytest.importorskip("pandas", reason="carried columns need pandas")
    job, checkpoints = dialect(tmp_path)
    carried = predict(job, checkpoints, tmp_path / "eval.csv", carry=["x", "d"])
    assert carried["x"].tolist()[:2] == [0.5, -1.25] and carried["d"].tolist()[0] == 3


def test_arrays_have_no_names_for_partitions(tmp_path):
    (tmp_path / "dt=20240105").mkdir()
    text = job_of('column { name: "c" type: ID } column { name: "x" } column { name: "label" }')
    text = text.replace('files: "train.csv"', 'files: "dt=*/train.csv"').replace(
        "batch_size: 8", 'partition { name: "dt" type: ID } batch_size: 8').replace('ids: "c"', 'ids: "c" ids: "dt"')
    (tmp_path / "dt=20240105" / "train.csv").write_text("c,x,label\n" + "1,2,0\n2,1,1\n" * 20, encoding="utf-8")
    job, checkpoints = small(tmp_path, text, "")
    with pytest.raises(ValueError, match="takes dt from the names of files"):
        predict(job, checkpoints, {"c": [1], "x": [0.5]})
    assert predict(job, checkpoints, tmp_path / "dt=*" / "train.csv").shape == (40,)


def test_a_job_object_predicts(trained):
    weir = pytest.importorskip("weir", reason="weir.Job is in another module")
    job = weir.Job.from_file(trained.job)
    assert predict(job, trained.checkpoint, trained.columns).tobytes() == trained.scores.tobytes()
    files = sorted(trained.job.parent.iterdir())
    job.train.epochs = 7
    assert predict(job, trained.checkpoint, trained.columns).tobytes() == trained.scores.tobytes()
    assert sorted(trained.job.parent.iterdir()) == files


def test_no_rows_have_no_scores(trained):
    assert predict(trained.job, trained.checkpoint, {name: [] for name in trained.columns}).shape == (0,)


def test_a_bad_row_is_named_with_its_line(trained):
    columns = dict(trained.columns, age=["1"] * 7 + ["old"] + ["1"] * 192)
    with pytest.raises(RunError, match=r"\Ainputs:9: field \d \(age\): 'old' is not a finite number") as caught:
        predict(trained.job, trained.checkpoint, columns)
    assert "Line 9 is row 7 of the inputs, counted from 0" in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.log[-1].startswith("trainer: inputs:9: ")


def test_a_skipped_row_is_nan(trained):
    columns = dict(trained.columns, age=[*trained.columns["age"][:-1], "old"])
    scores = predict(trained.job, trained.checkpoint, columns, overrides=["data.bad_line=SKIP"])
    assert np.isnan(scores[-1])
    assert scores[:-1].tobytes() == trained.scores[:-1].tobytes()


def test_a_column_that_is_not_there_is_named(trained):
    columns = {name: values for name, values in trained.columns.items() if name != "title"}
    with pytest.raises(RunError, match=r"\Ainputs:1: the header has no column 'title'"):
        predict(trained.job, trained.checkpoint, columns)


def test_a_wrong_job_is_refused_with_its_position(trained):
    with pytest.raises(RunError, match=r"\Ajob.textproto:33:\d+: unknown field 'optimiser'"):
        predict(SimpleNamespace(to_text=lambda: JOB.replace("optimizer", "optimiser"), directory=trained.job.parent),
                trained.checkpoint, trained.columns)


def test_a_checkpoint_that_is_not_there_is_named(trained):
    with pytest.raises(RunError, match=r"\Ano complete checkpoint in .*absent"):
        predict(trained.job, trained.job.parent / "absent", trained.columns)


def test_files_carry_columns_with_the_types_of_the_job(trained):
    pandas = pytest.importorskip("pandas", reason="carry needs pandas")
    frame = predict(trained.job, trained.checkpoint, trained.file, carry=["title", "user", "age", "items"])
    assert list(frame.columns) == ["title", "user", "age", "items", "prediction"]
    assert frame["prediction"].to_numpy().tobytes() == trained.scores.tobytes()
    assert frame["user"].dtype == "Int64" and frame["age"].dtype == np.float64
    assert [None if each is pandas.NA else each for each in frame["user"].tolist()] == trained.columns["user"]
    assert frame["title"].where(frame["title"].notna(), None).tolist() == trained.columns["title"]
    assert frame["age"].dropna().tolist() == [each for each in trained.columns["age"] if each is not None]


def test_frames_keep_what_they_carry_and_their_index(trained):
    pandas = pytest.importorskip("pandas", reason="carry needs pandas")
    users = pandas.array(trained.columns["user"], dtype="Int64")
    frame = pandas.DataFrame(dict(trained.columns, user=users, note=range(200)), index=range(1000, 1200))
    result = predict(trained.job, trained.checkpoint, frame, carry=["note", "at", "hour"])
    assert list(result.columns) == ["note", "at", "hour", "prediction"]
    assert result.index.equals(frame.index)
    assert result["note"].equals(frame["note"]) and result["at"].equals(frame["at"])
    assert result["hour"].dropna().astype(int).tolist() == frame["at"].dropna().dt.hour.tolist()
    assert result["prediction"].to_numpy().tobytes() == trained.scores.tobytes()


def test_carry_without_pandas_says_what_to_do(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas.*without carry"):
        predict(trained.job, trained.checkpoint, carry=["user"])


@pytest.mark.parametrize("carry, error", [("user", TypeError), (["a,b"], ValueError), (["user", "user"], ValueError),
                                          (["prediction_1"], ValueError)])
def test_wrong_names_to_carry_are_refused(trained, carry, error):
    with pytest.raises(error, match="carry"):
        predict(trained.job, trained.checkpoint, carry=carry)


def test_classes_have_a_column_each(tmp_path):
    settings = 'column { name: "label" } column { name: "x" } column { name: "c" type: ID }'
    lines = "".join(f"{i % 3},{i / 7},{i % 5}\n" for i in range(40))
    job, checkpoint = small(tmp_path, job_of(settings, outputs=3), "label,x,c\n" + lines)
    scores = predict(job, checkpoint, {"x": [1.5, None, "z"], "c": [1, 2, 3]}, overrides=["data.bad_line=SKIP"])
    assert scores.shape == (3, 3) and scores.dtype == np.float32
    assert np.allclose(scores[:2].sum(axis=1), 1)
    assert np.isnan(scores[2]).all()
    file = tmp_path / "x.csv"
    file.write_text("c,x\n1,1.5\n2,\n")
    assert predict(job, checkpoint, file).tobytes() == scores[:2].tobytes()


def test_jobs_without_headers_with_blanks_and_other_separators_predict(tmp_path):
    settings = r"""header: false separator: "\t" trim: true column { name: "x" } column { type: SKIP }
                   column { name: "c" type: TEXT list: "," } column { name: "label" }"""
    texts = ["a b", " a b ", 'say "x"', "a\tb", ""]
    quoted = ["a b", " a b ", '"say ""x"""', '"a\tb"', ""]
    lines = [f"{i}.25\tskipped\t{text}\t{i % 2}\n" for i, text in enumerate(quoted)]
    job, checkpoint = small(tmp_path, job_of(settings), "".join(lines * 4))
    file = tmp_path / "new.csv"
    file.write_text("".join(lines))
    scores = predict(job, checkpoint, {"x": np.arange(5) + 0.25, "c": texts})
    assert scores.tobytes() == predict(job, checkpoint, file).tobytes()
    assert predict(job, checkpoint, {"x": [0.25], "c": ["a b"]})[0] == scores[0]


def test_arrays_for_another_reader_are_refused(trained):
    text = 'name: "x" data { train { files: "f" } criteo {} }'
    with pytest.raises(ValueError, match="reader of the job is criteo, and arrays need a job with a csv reader: write"):
        predict(text, trained.checkpoint, trained.columns)


def test_an_override_of_the_columns_is_refused_with_arrays(trained):
    with pytest.raises(ValueError, match="changes data.csv"):
        predict(trained.job, trained.checkpoint, trained.columns, overrides=["data.csv.trim=true"])


@pytest.mark.parametrize("inputs, error, message", [
    ({"age": [1], "user": [1, 2]}, ValueError, "different lengths"),
    ({"age": 1}, TypeError, "column 'age' of the inputs is a list or an array, got int"),
    ([1, 2], TypeError, "dict of a list or an array for each column, got list"),
    ({"ages": [1]}, ValueError, "no column of the job, which reads label, age, .*; they have ages"),
    ({"title": ["a\nb"]}, ValueError, "column 'title' of the inputs, row 0: 'a.nb' contains an end of line"),
    ({"title": ["a", 1.0]}, ValueError, "row 1: 1.0 is a float, and the column is of type TEXT"),
    ({"user": [1.5]}, ValueError, "1.5 is not a whole number"),
    ({"user": [2.0**60]}, ValueError, "too few digits for ids beyond 2.53"),
    ({"age": [[1, 2]]}, ValueError, "a list of 2 values, but the column has one value"),
    ({"age": [object()]}, ValueError, "column 'age' of the inputs, row 0: "),
    ({"tags": [["a|b"]]}, ValueError, "contains '|', which separates"),
    ({"tags": [[("a", 0.5)]]}, ValueError, "the column has no `weight`"),
    ({"items": [[(1, 2, 3)]]}, ValueError, "it has two parts"),
    ({"at": [5]}, ValueError, "5 is no time: give texts of the form"),
])
def test_what_does_not_fit_a_column_is_refused(trained, inputs, error, message):
    with pytest.raises(error, match=message):
        predict(trained.job, trained.checkpoint, inputs)


def written(tmp_path: Path, column: str, values: Any, settings: str = "") -> list[str]:
    """The fields that values become."""
    from google.protobuf import text_format

    reader = text_format.Parse(f'{settings} column {{ name: "a" {column} }}', job_pb2.Csv())
    csv_arrays.write_csv({"a": values}, reader, tmp_path / "a.csv")
    lines = (tmp_path / "a.csv").read_bytes().decode("utf-8", "surrogateescape").split("\n")
    assert lines[0] == "a" and lines[-1] == ""
    return lines[1:-1]


def test_floats_come_back_to_the_bit(tmp_path):
    draw = np.random.default_rng(1)
    values = draw.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    for given in (values, values.tolist(), values.astype(np.float64)):
        fields = written(tmp_path, "", given)
        assert np.array(fields, np.float64).astype(np.float32).tobytes() == values.tobytes()


@pytest.mark.parametrize("column, values, fields", [
    ("type: ID", [1, True, 3.0, "7", np.int8(-1), np.float32(2), float("nan"), None, 2**63],
     ["1", "1", "3", "7", "-1", "2", "", "", str(2**63)]),
    ("type: ID", np.array([1.0, np.nan]), ["1", ""]),
    ("", [True, "1e5", np.float64("nan"), float("inf"), 1e300], ["1", "1e5", "", "inf", "1e+300"]),
    ("", np.array([1e-50, -1e-50, 0.5]), ["0", "-0", "0.5"]),
    ("", [np.float64(-1e39)], ["-1e+39"]),
    ("", np.array([0.1, 1e39, np.nan, -np.inf]), ["0.100000001", "1e+39", "", "-inf"]),
    ("type: TEXT", ["a", b"\xff", 12, None], ["a", "\udcff", "12", ""]),
    ('classes { text: "0" } classes { text: "1" }', [0.0, 1, "1", None], ["0", "1", "1", ""]),
    ("type: TIME", [datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
                    np.datetime64("2024-01-02T03:04:05"), "x", np.datetime64("NaT", "us")],
     ["2024-01-02 02:04:05", "2024-01-02 03:04:05", "x", ""]),
    ('type: TEXT list: "|" weight: ":"', [["a:b", ("c", 0.5)], [], ["", None, "d"], "e|f:2"],
     ["a:b:1|c:0.5", "", "||d", "e|f:2"]),
    ('list: ";" dim: 2', [[1, None], np.array([0.5, np.nan]), None], ["1;", "0.5;", ""]),
])
def test_values_become_fields(tmp_path, column, values, fields):
    assert written(tmp_path, column, values) == fields


def test_numbers_have_the_decimal_comma_of_the_job(tmp_path):
    comma = 'decimal_comma: true separator: ";"'
    assert written(tmp_path, "", [0.5, np.float32(-2), "1,5", None], comma) == ["0,5", "-2", "1,5", ""]
    assert written(tmp_path, "", np.array([0.25, 3]), comma) == ["0,25", "3"]
    assert written(tmp_path, 'type: ID list: "|" weight: ":"', [[(7, 0.5), 8]], comma) == ["7:0,5|8"]
    assert written(tmp_path, "", [0.5], "decimal_comma: true") == ['"0,5"']


def test_a_job_that_python_cannot_read_is_left_to_the_program(trained, monkeypatch):
    monkeypatch.setattr("weir.prediction._config", lambda job, file: (None, "4:1 : no such type"))
    with pytest.raises(JobError, match="4:1 : no such type; write them to a file"):
        predict(trained.job, trained.checkpoint, trained.columns)
