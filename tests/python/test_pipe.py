"""Jobs that read files through commands (data.pipe, data.pipe_list): Parquet, objects of S3, and commands that fail."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from test_objects import fixture_s3  # noqa: F401

import weir
from weir import programs
from weir.errors import ProgramsMissingError, RunError

PACKAGE = Path(weir.__file__).resolve().parent.parent
WEIR = f"{sys.executable} -m weir"


def accepts_pipes() -> bool:
    """Whether the programs run commands of a job."""
    return b"allow_pipes" in subprocess.run(
        [programs.find("trainer"), "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


try:
    if not accepts_pipes():
        pytest.skip("the programs do not have --allow_pipes: they were built before data.pipe", allow_module_level=True)
except ProgramsMissingError as missing:
    pytest.skip(str(missing), allow_module_level=True)

CSV = """
name: "piped"
data {
  train { files: "train-*.%(ending)s" }
  eval { files: "eval.%(ending)s" }
  csv {
    column { name: "label" } column { name: "price" } column { name: "user" type: ID }
    column { name: "city" type: TEXT }
    column { name: "tags" type: TEXT list: "|" } column { name: "at" type: TIME }
    column { name: "scores" list: "|" dim: 2 }
  }
  %(pipe)s
  batch_size: 64
}
model {
  layer { name: "v" embedding { ids: "user" table: "t" pooling: SUM } }
  layer { name: "c" embedding { ids: "city" table: "t" pooling: SUM } }
  layer { name: "g" embedding { ids: "tags" table: "t" pooling: SUM } }
  layer { name: "a" embedding { ids: "at" table: "t" pooling: SUM } }
  layer { name: "in" concat { input: "v" input: "c" input: "g" input: "a" input: "price" input: "scores" } }
  layer { name: "logit" fc { input: "in" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
train { epochs: 2 seed: 1 lanes: 2 }
checkpoint { dir: "checkpoints" }
"""

CRITEO = """
name: "criteo"
data { train { files: "train-*.%(ending)s" } criteo {} %(pipe)s batch_size: 64 }
model {
  layer { name: "v" embedding { ids: "cat" table: "t" pooling: SUM } }
  layer { name: "in" concat { input: "v" input: "dense" } }
  layer { name: "logit" fc { input: "in" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.01 } }
train { epochs: 1 seed: 1 lanes: 2 }
checkpoint { dir: "checkpoints" }
"""


@pytest.fixture(autouse=True)
def fixture_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))


def rows_of(seed, rows):
    """Columns of Python values; None is missing."""
    draw = random.Random(seed)
    maybe = lambda value: None if draw.random() < 0.1 else value  # noqa: E731
    return {
        "label": [draw.randint(0, 1) for _ in range(rows)],
        "price": [maybe(draw.randint(0, 9999) / 64) for _ in range(rows)],
        "user": [maybe(draw.randint(-50, 2**40)) for _ in range(rows)],
        "city": [maybe(draw.choice(["Bonn", "Köln", 'the "old" town', "a, b"])) for _ in range(rows)],
        "tags": [maybe([draw.choice("uvwxyz") for _ in range(draw.randint(0, 4))]) for _ in range(rows)],
        "at": [maybe(f"2024-05-{draw.randint(1, 31):02d} {draw.randint(0, 23):02d}:00:07") for _ in range(rows)],
        "scores": [[draw.randint(0, 99) / 8, draw.randint(0, 99) / 8] for _ in range(rows)],
    }


def write_csv(path, columns):
    """Writes text, independently of the package."""

    def field(value):
        if isinstance(value, list):
            return "|".join(map(field, value))
        text = "" if value is None else repr(value) if isinstance(value, float) else str(value)
        return '"' + text.replace('"', '""') + '"' if '"' in text or "," in text else text

    lines = [",".join(columns), *(",".join(map(field, row)) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_parquet(path, columns):
    import datetime

    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    columns = dict(columns)
    columns["at"] = [None if text is None else datetime.datetime.fromisoformat(text) for text in columns["at"]]
    pq.write_table(pa.table(columns, pa.schema({
        "label": pa.int8(), "price": pa.float64(), "user": pa.int64(), "city": pa.string(),
        "tags": pa.list_(pa.string()), "at": pa.timestamp("us"), "scores": pa.list_(pa.float32(), 2)})), path,
        row_group_size=300)


def write_all(directory):
    """Writes the same rows as text and as Parquet."""
    for name, seed, rows in (("train-1", 1, 700), ("train-2", 2, 900), ("eval", 3, 200)):
        columns = rows_of(seed, rows)
        write_csv(directory / f"{name}.csv", columns)
        write_parquet(directory / f"{name}.parquet", columns)


def job_of(directory, name, text, ending, pipe=""):
    """Writes a job into a directory of its own, beside links to the data."""
    at = directory / name
    at.mkdir()
    for path in directory.glob(f"*.{ending}"):
        (at / path.name).symlink_to(path)
    (at / "job.textproto").write_text(text % {"ending": ending, "pipe": pipe})
    return at / "job.textproto"


def digest(job, **options):
    weir.train(job, local=True, progress=False, **options)
    return weir.Checkpoint(job.parent / "checkpoints").digest()


PIPE = f'pipe: "{WEIR} parquet {{}}"'


def test_a_job_on_parquet_comes_to_the_bits_of_one_on_text(tmp_path):
    write_all(tmp_path)
    text = digest(job_of(tmp_path, "text", CSV, "csv"))
    assert digest(job_of(tmp_path, "columns", CSV, "parquet", PIPE), allow_pipes=True) == text
    lines = f'pipe: "{WEIR} parquet --format=csv {{}}"'
    assert digest(job_of(tmp_path, "lines", CSV, "parquet", lines), allow_pipes=True) == text


def test_a_cluster_reads_parquet(tmp_path):
    write_all(tmp_path)
    job = job_of(tmp_path, "local", CSV, "parquet", PIPE)
    local = digest(job, allow_pipes=True)
    weir.train(job, servers=1, trainers=2, progress=False, allow_pipes=True,
               overrides=[f"checkpoint.dir={tmp_path}/of-cluster"])
    assert weir.Checkpoint(tmp_path / "of-cluster").digest() == local


def test_a_criteo_job_on_parquet_comes_to_the_bits_of_one_on_text(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    draw = random.Random(4)
    for number in (1, 2):
        rows = 600
        columns = {"label": [draw.randint(0, 1) for _ in range(rows)]}
        for at in range(1, 14):
            columns[f"I{at}"] = [None if draw.random() < 0.2 else draw.randint(-2, 300) for _ in range(rows)]
        for at in range(1, 27):
            columns[f"C{at}"] = [None if draw.random() < 0.2 else f"{draw.randint(0, 10**at % 2**32):08x}"
                                 for _ in range(rows)]
        pq.write_table(pa.table(columns), tmp_path / f"train-{number}.parquet", row_group_size=250)
        (tmp_path / f"train-{number}.tsv").write_text("".join(
            "\t".join("" if each is None else str(each) for each in row) + "\n" for row in zip(*columns.values())))
    text = digest(job_of(tmp_path, "text", CRITEO, "tsv"))
    assert digest(job_of(tmp_path, "columns", CRITEO, "parquet", PIPE), allow_pipes=True) == text
    lines = f'pipe: "{WEIR} parquet --format=tsv {{}}"'
    assert digest(job_of(tmp_path, "lines", CRITEO, "parquet", lines), allow_pipes=True) == text


def test_columns_of_numpy_come_to_the_bits_of_text(tmp_path):
    columns = rows_of(1, 500)
    write_csv(tmp_path / "train-1.csv", columns)
    write_csv(tmp_path / "eval.csv", columns)
    text = digest(job_of(tmp_path, "text", CSV, "csv"))
    program = tmp_path / "source.py"
    program.write_text("import sys\nfrom test_pipe import rows_of\nfrom weir import columns\n"
                       "columns.write(sys.stdout.buffer, [rows_of(1, 500)])\n")
    for name in ("train-1.npz", "eval.npz"):
        (tmp_path / name).write_bytes(b"x")
    pipe = f'pipe: "PYTHONPATH={PACKAGE}:{Path(__file__).parent} {sys.executable} {program} {{}}"'
    assert digest(job_of(tmp_path, "columns", CSV, "npz", pipe), allow_pipes=True) == text


def test_predictions_of_parquet_are_those_of_text(tmp_path):
    write_all(tmp_path)
    text, columns = job_of(tmp_path, "text", CSV, "csv"), job_of(tmp_path, "columns", CSV, "parquet", PIPE)
    digest(text)
    checkpoint = text.parent / "checkpoints"
    scores = weir.predict(text, checkpoint)
    assert weir.predict(columns, checkpoint, allow_pipes=True).tolist() == scores.tolist()
    # Arrays reach the program by a file, which the commands of the job do not read.
    rows = {name: values for name, values in rows_of(3, 200).items() if name != "label"}
    assert weir.predict(columns, checkpoint, rows).tolist() == scores.tolist()


def test_converted_parquet_comes_to_the_same_bits(tmp_path):
    write_all(tmp_path)
    job = job_of(tmp_path, "columns", CSV, "parquet", PIPE)
    wanted = digest(job, allow_pipes=True)
    for source in ("train", "eval"):
        subprocess.run([programs.find("convert"), f"--job={job}", f"--output={tmp_path}/{source}", f"--source={source}",
                        "--allow_pipes"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
    weir.train(job, local=True, progress=False, overrides=[
        "data.pipe=", f"data.train.files={tmp_path}/train/*.examples", f"data.eval.files={tmp_path}/eval/*.examples",
        f"checkpoint.dir={tmp_path}/of-examples"])
    assert weir.Checkpoint(tmp_path / "of-examples").digest() == wanted


def test_a_job_trains_on_parquet_of_s3(tmp_path, s3, monkeypatch):
    env, client = s3
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    write_all(tmp_path)
    for path in tmp_path.glob("*.parquet"):
        client.upload_file(str(path), "weir", f"job/{path.name}")
    local = digest(job_of(tmp_path, "local", CSV, "parquet", PIPE), allow_pipes=True)
    remote = job_of(tmp_path, "remote", CSV, "none", f'{PIPE} pipe_list: "{WEIR} list {{}}"')
    overrides = ["data.train.files=s3://weir/job/train-*.parquet", "data.eval.files=s3://weir/job/eval.parquet"]
    assert digest(remote, allow_pipes=True, overrides=overrides) == local


def test_text_of_s3_is_read_as_it_is(tmp_path, s3, monkeypatch):
    import gzip

    env, client = s3
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for name, seed in (("train-1", 1), ("eval", 3)):
        write_csv(tmp_path / f"{name}.csv", rows_of(seed, 300))
        client.put_object(Bucket="weir", Key=f"text/{name}.csv.gz",
                          Body=gzip.compress((tmp_path / f"{name}.csv").read_bytes()))
    local = digest(job_of(tmp_path, "local", CSV, "csv"))
    remote = job_of(tmp_path, "remote", CSV, "none", f'pipe: "{WEIR} cat {{}}" pipe_list: "{WEIR} list {{}}"')
    overrides = ["data.train.files=s3://weir/text/train-*.csv.gz", "data.eval.files=s3://weir/text/eval.csv.gz"]
    assert digest(remote, allow_pipes=True, overrides=overrides) == local


def test_a_command_does_not_run_without_leave(tmp_path):
    write_all(tmp_path)
    job = job_of(tmp_path, "job", CSV, "parquet", f'pipe: "touch {tmp_path}/ran; {WEIR} parquet {{}}"')
    with pytest.raises(RunError, match="--allow_pipes"):
        weir.train(job, local=True, progress=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("pipe,exit_code,message", [
    (f"{WEIR} parquet --columns=label,prize {{}}", 2, "has no column 'prize' (did you mean 'price'?)"),
    (f"{WEIR} parquet {{}} | head -c 20000", None, "train-1.parquet"),
    ("exit 3; cat {}", None, "train-1.parquet"),
    ("kill -9 $$; cat {}", None, "train-1.parquet"),
    ("no-such-command {}", 2, "no-such-command"),
], ids=["missing column", "cut", "exit code", "signal", "no command"])
def test_a_command_that_fails_ends_the_job_and_is_named(tmp_path, pipe, exit_code, message):
    write_all(tmp_path)
    job = job_of(tmp_path, "job", CSV, "parquet", f'pipe: "{pipe}"')
    with pytest.raises(RunError) as raised:
        weir.train(job, local=True, progress=False, allow_pipes=True)
    assert message in str(raised.value)
    assert raised.value.exit_code == exit_code or exit_code is None
    assert raised.value.exit_code != 0


def test_a_command_that_hangs_ends_the_job_in_time_and_is_killed(tmp_path):
    write_all(tmp_path)
    pipe = f'pipe: "echo $$ >> {tmp_path}/pids; sleep 1000; cat {{}}" pipe_deadline_s: 1'
    job = job_of(tmp_path, "job", CSV, "parquet", pipe)
    run = weir.train(job, local=True, progress=False, allow_pipes=True, wait=False)
    try:
        with pytest.raises(RunError, match="pipe_deadline_s"):
            run.wait(timeout=60)
    finally:
        while run.running:
            run.stop()
    for pid in (tmp_path / "pids").read_text().split():
        assert not os.path.exists(f"/proc/{pid}")


def test_a_list_that_is_empty_names_the_pattern(tmp_path):
    job = job_of(tmp_path, "job", CSV, "none", f'{PIPE} pipe_list: "{WEIR} list {{}}"')
    with pytest.raises(RunError, match="train-.*none"):
        weir.train(job, local=True, progress=False, allow_pipes=True)
