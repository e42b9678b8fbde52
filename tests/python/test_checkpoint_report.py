"""Tests of `checkpoint report`: its figures are those that NumPy computes from the rows that weir.checkpoint reads.

    python3 tests/python/test_checkpoint_report.py DIR    # compares a checkpoint of any size
"""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import subprocess
import sys
from typing import Any, Dict, Optional

import numpy as np
import pytest
from google.protobuf import text_format

from weir import programs, stable_hash
from weir.checkpoint import Checkpoint, Table
from weir.digest import rows_digest
from weir.errors import ProgramsMissingError
from weir.feature_id import feature_ids
from weir.protos import checkpoint_pb2, job_pb2
from weir.rows import align
from weir.text_message import parse_text

# Column figures of more numbers are from a histogram (tools/reporting/column.h).
EXACT = 16 << 20
USERS = 400

JOB = """
name: "reported"
data {
  train { files: "train.csv" }
  csv {
    column { name: "label" type: FLOAT }
    column { name: "user" type: ID }
    column { name: "city" type: TEXT output: "place" }
    column { name: "street" type: ID output: "place" }
    column { name: "item" type: ID }
  }
  batch_size: 32
}
model {
  layer { name: "users" embedding { ids: "user" ids: "place" table: "adam" pooling: SUM } }
  layer { name: "places" embedding { ids: "place" table: "evicting" pooling: SUM } }
  layer { name: "half_users" embedding { ids: "user" table: "half" pooling: SUM } }
  layer { name: "items" embedding { ids: "item" table: "admitted" pooling: SUM } }
  layer { name: "input" concat { input: "users" input: "places" input: "half_users" input: "items" } }
  layer { name: "logit" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "adam" width: 9 is_sparse: true is_distributed: true logical_shards: 64 }
table {
  name: "evicting" width: 4 is_sparse: true is_distributed: true logical_shards: 2 dict_size: 4096
  optimizer { adagrad { initial_accumulator: 0.1 } }
  lifecycle { when_full: EVICT_LEAST_FREQUENT }
}
table {
  name: "half" width: 5 is_sparse: true is_distributed: true storage: FLOAT16
  optimizer { ftrl {} }
}
table {
  name: "admitted" width: 1 is_sparse: true is_distributed: true
  optimizer { sgd {} }
  lifecycle { admit_after: 25 ttl_steps: 1000 tombstones: true }
}
optimizer { adam { learning_rate: 0.01 } }
distribute { sync: true servers: 2 trainers: 1 }
train { epochs: 2 seed: 1 lanes: 2 }
checkpoint { dir: "checkpoints" }
"""


def run(program: str, *arguments: Any, code: int = 0, cwd: Optional[pathlib.Path] = None) -> str:
    done = subprocess.run([str(programs.find(program)), *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module", autouse=True)
def needs_programs():
    try:
        programs.find("checkpoint")
        programs.find("trainer")
    except ProgramsMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with the checkpoints of JOB, whose ids are skewed: a few are in most lines."""
    directory = tmp_path_factory.mktemp("reported")
    draw = random.Random(3)
    with open(directory / "train.csv", "w", encoding="utf-8") as file:
        file.write("label,user,city,street,item\n")
        for _ in range(700):
            user = int(USERS * draw.random()**4)
            item = int(40 * draw.random()**3)
            file.write(f"{draw.randrange(2)},{user},{draw.choice(('Oslo', 'Rome', ''))},{draw.randrange(90)},{item}\n")
    (directory / "job.textproto").write_text(JOB)
    run("trainer", "--role=local", "--job=job.textproto", cwd=directory)
    return directory


def report_of(*arguments: Any) -> Dict[str, Any]:
    return json.loads(run("checkpoint", "report", *arguments, "--json"))


# ------------------------------------------------------------------------------------------------ the same, in NumPy


def figures(numbers: np.ndarray) -> Dict[str, Any]:
    """Returns a ColumnFigures of tools/reporting/table_report.proto."""
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    found: Dict[str, Any] = {"count": len(finite), "not_finite": numbers.size - len(finite)}
    if len(finite) > 0:
        p1, p50, p99 = np.quantile(finite, [.01, .5, .99], method="inverted_cdf")
        found.update(mean=finite.mean(), deviation=finite.std(), min=finite.min(), p1=p1, p50=p50, p99=p99,
                     max=finite.max(), quantile_error=0 if numbers.size <= EXACT else 2**-9)
    return found


def bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def rounding(values: np.ndarray, storage: str) -> Dict[str, Any]:
    exact = np.abs(values[np.isfinite(values) & (values != 0)])
    most = np.float32(65504) if storage == "FLOAT16" else np.float32((2 - 2**-7) * 2.0**127)
    kept = np.minimum(exact, most)
    rounded = kept.astype(np.float16).astype(np.float32) if storage == "FLOAT16" else bfloat16(kept)
    errors = np.abs(rounded - exact) / exact
    return {"mean_error": errors.mean(dtype=np.float64) if len(errors) > 0 else 0.0,
            "max_error": errors.max() if len(errors) > 0 else 0.0, "beyond": int((exact > most).sum())}


def expected(table: Table, step: int, storage: str, counts: Optional[str],
             epochs: Optional[int] = None) -> Dict[str, Any]:
    """Returns the figures of a table with the words of a lifecycle beside its rows. `counts`: the state that counts
    updates. `epochs`: those of the job, if there is one."""
    values, state = table.values, table.state
    rows, width = values.shape
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(values.astype(np.float64))
        norms = np.sqrt(squares.sum(axis=1)).astype(np.float32)
    finite = np.isfinite(norms)
    rule = {name: s for name, s in state.items() if not name.startswith("lifecycle.")}
    bad = ~np.isfinite(values).all(axis=1)
    for floats in rule.values():
        bad |= ~np.isfinite(floats).all(axis=1)

    def size(of: str, to: int) -> int:
        one = 4 * to if of == "FLOAT32" else (2 * to + 3) // 4 * 4
        return one + 4 * sum(to if s.shape[1] == width else s.shape[1] for s in state.values())

    words = 4 * (len(state) - len(rule))
    found: Dict[str, Any] = {
        "name": table.name, "rows": rows, "width": width, "norm": figures(norms),
        "zero_rows": int((values == 0).all(axis=1).sum()), "not_finite_rows": int(bad.sum()),
        "bytes": {"values": rows * (size(storage, width) - 4 * sum(s.shape[1] for s in state.values())),
                  "state": rows * 4 * sum(s.shape[1] for s in rule.values()), "lifecycle": rows * words,
                  "in_files": rows * (8 + 4 * (width + sum(s.shape[1] for s in state.values())))},
        "state": [{"name": name, "width": s.shape[1], "figures": figures(s.ravel())} for name, s in state.items()
                  if name not in ("lifecycle.step", "lifecycle.second")]}
    lifecycle, saving = [], []
    each = size(storage, width)
    if "lifecycle.step" in state:
        ages = step - 1 - state["lifecycle.step"].ravel().astype(np.int64)
        found["age_steps"] = figures(ages)
        for ttl in (step // 16, step // 8, step // 4, step // 2):
            going = int((ages >= ttl).sum())
            lifecycle.append({"setting": f"lifecycle.ttl_steps={ttl}", "rows": going, "bytes": going * each})
    if counts is not None:
        count = state[counts].ravel().astype(np.float64)
        hot = np.sort(count)[::-1]
        found["hottest"] = {"by": counts, "counts": count.sum(), "top_1": hot[:1].sum() / count.sum(),
                            "top_100": hot[:100].sum() / count.sum(),
                            "top_percent": hot[:-(-rows // 100)].sum() / count.sum(), "error": 0}
        found["training"] = {"by": counts, "never": int((count == 0).sum()), "at_most_once": int((count <= 1).sum())}
        for n in (2, 3, 5, 10):
            going = int((count < n).sum())
            lifecycle.append({"setting": f"lifecycle.admit_after={n}", "rows": going, "bytes": going * each,
                              "lost": np.minimum(count, n - 1).sum() / count.sum()})
        for n in (2, 3, 5, 10) if epochs is not None else ():
            going = int((count <= epochs * (n - 1)).sum())
            lifecycle.append({"setting": f"data.ids.min_count={n}", "rows": going, "bytes": going * each})
    shards = table.logical_shards
    of_shard = np.bincount(stable_hash.logical_shards(table.ids, shards).astype(np.int64), minlength=shards)
    for capacity in (rows // 2, rows // 4, rows // 8):
        if capacity < shards:
            break
        most = capacity // shards
        going = int(np.where(of_shard > most, of_shard - (most - most // 16), 0).sum())
        lifecycle.append({"setting": f"dict_size={capacity}", "rows": going, "bytes": going * each})
    for narrow in (width // 2, width // 4):
        if narrow > 0:
            sums = squares[finite].sum(axis=0)
            saving.append({"setting": f"width={narrow}", "bytes": rows * (each - size(storage, narrow)),
                           "squares_cut": sums[narrow:].sum() / sums.sum() if sums.sum() > 0 else 0})
    for other in ("FLOAT16", "BFLOAT16"):
        if other != storage:
            saving.append({"setting": f"storage={other}", "bytes": rows * (each - size(other, width)),
                           **rounding(values, other)})
    found.update(lifecycle=lifecycle, saving=saving)
    return found


def compare(found: Any, wanted: Any, where: str, error: float = 0) -> None:
    """Fails where `found` lacks something of `wanted`, or has another number. A sum may be rounded otherwise."""
    if isinstance(wanted, dict):
        if "quantile_error" in wanted:
            assert found["quantile_error"] == wanted["quantile_error"], where
        for key, value in wanted.items():
            bound = wanted.get("quantile_error", 0) if key in ("p1", "p50", "p99") else 0
            assert key in found or value == [], f"{where}.{key}"
            compare(found.get(key, []), value, f"{where}.{key}", bound)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), f"{where}: {found} and {wanted}"
        for i, value in enumerate(wanted):
            compare(found[i], value, f"{where}[{i}]")
    elif isinstance(wanted, str):
        assert found == wanted, where
    elif isinstance(wanted, (int, np.integer)):
        # JSON of protobuf has 64-bit integers as texts.
        assert int(found) == wanted, where
    else:
        assert found == pytest.approx(float(wanted), rel=max(1e-6, error), abs=1e-12), where


# --------------------------------------------------------------------------------------------------------- trained


def test_figures_are_those_of_numpy(trained):
    checkpoint = Checkpoint(trained / "checkpoints")
    tables = {table["name"]: table for table in report_of(trained / "checkpoints")["table"]}
    assert sorted(tables) == ["adam", "admitted", "evicting", "half"]
    for name, storage, counts in (("adam", "FLOAT32", "step"), ("evicting", "FLOAT32", "lifecycle.count"),
                                  ("half", "FLOAT16", None), ("admitted", "FLOAT32", None)):
        table = checkpoint.table(name)
        assert len(table.ids) > 0 and tables[name]["storage"] == storage
        compare(tables[name], expected(table, checkpoint.step, storage, counts, epochs=2), name)


def test_what_the_job_says_is_part_of_the_report(trained):
    checkpoint = Checkpoint(trained / "checkpoints")
    tables = {table["name"]: table for table in report_of(trained / "checkpoints")["table"]}
    assert tables["adam"]["reader"] == [{"layer": "users", "ids": "user", "slot": ["user"]},
                                        {"layer": "users", "ids": "place", "slot": ["city", "street"]}]
    assert tables["evicting"]["reader"] == [{"layer": "places", "ids": "place", "slot": ["city", "street"]}]
    # Ftrl: only the initial value of its accumulator tells, and each row has had a gradient.
    assert tables["half"]["training"] == {"by": "squared_accumulator, linear_accumulator", "never": "0"}
    # Without state, and with words that count nothing.
    assert "training" not in tables["admitted"] and "hottest" not in tables["admitted"]
    assert int(tables["admitted"]["candidates"]) == len(checkpoint.table("admitted@candidates").ids) > 0
    assert tables["admitted"]["tombstones"] == "0"
    assert any("rows never trained: they have no state" in text for text in tables["admitted"]["unknown"])


def test_every_row_of_a_user_is_counted(trained):
    """The counts of a skewed column, from the file itself."""
    users = [line.split(",")[1] for line in (trained / "train.csv").read_text().splitlines()[1:]]
    table = Checkpoint(trained / "checkpoints").table("half")
    assert set(feature_ids([int(user) for user in set(users)], "user").tolist()) == set(table.ids.tolist())
    assert int(report_of(trained / "checkpoints", "--table=half")["table"][0]["rows"]) == len(set(users))


def test_one_table_and_one_step_are_those_asked_for(trained):
    step = Checkpoint(trained / "checkpoints").step
    whole = report_of(trained / "checkpoints")
    alone = report_of(trained / "checkpoints", "--table=evicting", f"--step={step}")
    assert alone["table"] == [table for table in whole["table"] if table["name"] == "evicting"]
    assert (alone["step"], alone["job"]) == (str(step), "reported")
    error = run("checkpoint", "report", trained / "checkpoints", "--table=evict", code=2)
    assert "has no table 'evict'; it has adam, admitted, admitted@candidates" in error


def test_the_text_has_the_figures(trained):
    text = run("checkpoint", "report", trained / "checkpoints")
    tables = {table["name"]: table for table in report_of(trained / "checkpoints")["table"]}
    part = text[text.index("table evicting:"):text.index("table half:")]
    assert f"table evicting: {tables['evicting']['rows']} rows of width 4, FLOAT32" in part
    assert "read by places           place (city, street)" in part
    assert f"{tables['evicting']['norm']['mean']:.6g}" in part
    assert f"trained once at most     {tables['evicting']['training']['at_most_once']} (" in part
    assert max(map(len, text.splitlines()[:-1])) < 320


def test_a_damaged_checkpoint_is_no_report(trained, tmp_path):
    shutil.copytree(trained / "checkpoints", tmp_path / "checkpoints")
    step = Checkpoint(tmp_path / "checkpoints").path
    shard = next(pathlib.Path(step).glob("shard-*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    for command in ("verify", "report"):
        done = subprocess.run([str(programs.find("checkpoint")), command, step], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 4 and f"{shard.name} has checksum" in done.stdout


def test_nonsense_under_a_right_checksum_ends_as_verify_does(tmp_path):
    """Numbers and lines of a MANIFEST are changed, and its checksum made again."""
    golden = pathlib.Path(__file__).resolve().parent.parent / "framework/checkpoint/testdata/golden_2"
    path = tmp_path / "step-000000000042"
    shutil.copytree(golden / path.name, path)
    lines = (path / "MANIFEST").read_bytes().split(b"\n")[1:]
    draw = random.Random(7)
    numbers = [b"0", b"1", b"-1", b"3", b"2147483647", b"9223372036854775807", b"1e30", b'"x"']
    codes = []
    for _ in range(60):
        changed = list(lines)
        at = draw.randrange(len(changed))
        key, colon, _ = changed[at].partition(b": ")
        if colon and draw.random() < .8:
            changed[at] = key + b": " + draw.choice(numbers)
        else:
            del changed[at]
        body = b"\n".join(changed)
        head = f"# weir checkpoint manifest, xxh3 {stable_hash.hash_bytes(body):016x}\n"
        (path / "MANIFEST").write_bytes(head.encode() + body)
        verify, report = (subprocess.run([str(programs.find("checkpoint")), command, str(path)], stderr=subprocess.PIPE,
                                         stdout=subprocess.DEVNULL) for command in ("verify", "report"))
        # Layouts of chunks are compared by whoever reads them as a table, as `export` does.
        two_layouts = report.returncode == 4 and b"table 't' has two layouts" in report.stderr
        assert two_layouts or verify.returncode == report.returncode in (0, 2, 4), changed[at]
        codes.append(report.returncode)
    assert 0 in codes and 4 in codes


# -------------------------------------------------------------------------------------------------------- by hand


def write_table(directory: pathlib.Path, ids: np.ndarray, rows: np.ndarray, width: int, states: Dict[str, int],
                chunks: int, step: int = 100, job_text: str = "") -> pathlib.Path:
    """Writes a checkpoint with the table "t" by docs/checkpoint_format.md. rows [n, width + state] are float32."""
    path = directory / f"step-{step:012d}"
    path.mkdir(parents=True)
    manifest = checkpoint_pb2.CheckpointManifest(format_version=2, job="by hand", step=step, job_text=job_text)
    manifest.trainers.SetInParent()
    shard = manifest.shards.add()
    with open(path / "shard-00000", "wb") as file:
        file.write(b"WEIRSHRD\1".ljust(64, b"\0"))
        for part in np.array_split(np.arange(len(ids)), chunks):
            file.write(b"\0" * (align(file.tell()) - file.tell()))
            shard.tables.add(table="t", width=width, state_width=rows.shape[1] - width, logical_shards=16,
                             row_count=len(part), offset=file.tell(), state_names=list(states),
                             state_widths=list(states.values()))
            file.write(ids[part].tobytes())
            file.write(b"\0" * (align(file.tell()) - file.tell()))
            file.write(rows[part].tobytes())
    data = (path / "shard-00000").read_bytes()
    shard.file.name, shard.file.bytes, shard.file.checksum = "shard-00000", len(data), stable_hash.hash_bytes(data)

    def write() -> None:
        body = text_format.MessageToString(manifest).encode()
        head = f"# weir checkpoint manifest, xxh3 {stable_hash.hash_bytes(body):016x}\n"
        (path / "MANIFEST").write_bytes(head.encode() + body)

    write()
    digest = rows_digest(Checkpoint(path).table("t"))
    manifest.values_digest, manifest.state_digest = digest.values, digest.state
    write()
    return path


def test_rows_that_nobody_prepared_have_numpys_figures(tmp_path):
    """Zeros, infinities, NaN, denormal and huge values, ids at the ends of their type, chunks without rows."""
    draw = np.random.default_rng(1)
    n, width = 5003, 11
    ids = np.unique(np.concatenate([draw.integers(-2**63, 2**63, n - 3, np.int64), [0, -2**63, 2**63 - 1]]))
    n = len(ids)
    values = (draw.standard_normal((n, width)) * 10.0**draw.integers(-30, 20, (n, width))).astype(np.float32)
    values[::7] = 0
    values[1::7] *= np.float32(0)  # some of them -0
    values[2::97, 3] = np.nan
    values[3::97, 4] = -np.inf
    values[4::97] = np.float32(1e-42)
    values[5::97] = np.float32(3.4e38)
    moment = np.abs(draw.standard_normal((n, width))).astype(np.float32)
    moment[::31, 0] = np.inf
    steps = draw.zipf(1.5, n).clip(0, 1000).astype(np.float32) - 1
    last = draw.integers(0, 100, n).astype(np.uint32).view(np.float32)
    rows = np.concatenate([values, moment, steps[:, None], last[:, None]], axis=1)
    path = write_table(tmp_path, ids, rows, width, {"moment1": width, "step": 1, "lifecycle.step": 1}, chunks=3)
    checkpoint = Checkpoint(path)
    table = report_of(path)["table"][0]
    wanted = expected(checkpoint.table("t"), 100, "FLOAT32", "step")
    # Norms of finite rows beyond float32 count as the greatest float32.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(checkpoint.table("t").values.astype(np.float64)).sum(axis=1)
        norms = np.where(np.isfinite(squares), np.minimum(np.sqrt(squares), np.finfo(np.float32).max), np.nan)
    wanted["norm"] = figures(norms.astype(np.float32))
    for saving in wanted["saving"]:
        saving.pop("squares_cut", None)
    compare(table, wanted, "t")
    assert "storage" not in table and any("no job that this build can read" in text for text in table["unknown"])


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_tables_of_few_rows_have_reports(tmp_path, rows):
    floats = np.ones((rows, 3), np.float32)
    path = write_table(tmp_path, np.arange(rows), floats, 2, {"step": 1}, chunks=1)
    table = report_of(path)["table"][0]
    assert table["rows"] == str(rows) and table["norm"]["count"] == str(rows)
    if rows > 0:
        compare(table, expected(Checkpoint(path).table("t"), 100, "FLOAT32", "step"), "t")
    assert f"table t: {rows} rows of width 2" in run("checkpoint", "report", path)


def test_adagrad_says_which_rows_were_never_trained(tmp_path):
    job = 'optimizer { adagrad { initial_accumulator: 0.5 } } table { name: "t" width: 2 is_distributed: true }'
    rows = np.array([[1, 2, .5, .5], [1, 2, .5, .75], [0, 0, .5, .5], [1, 2, 0, 0]], np.float32)
    told = report_of(write_table(tmp_path / "told", np.arange(4), rows, 2, {"moment": 2}, chunks=2, job_text=job))
    assert told["table"][0]["training"] == {"by": "moment", "never": "2"}
    untold = report_of(write_table(tmp_path / "untold", np.arange(4), rows, 2, {"moment": 2}, chunks=2))
    assert "training" not in untold["table"][0]


def main() -> None:
    checkpoint = Checkpoint(sys.argv[1])
    for table in report_of(checkpoint.path)["table"]:
        counts = table.get("hottest", {}).get("by")
        job = parse_text(checkpoint.manifest.job_text, job_pb2.JobConfig()) if "storage" in table else None
        wanted = expected(checkpoint.table(table["name"]), checkpoint.step, table.get("storage", "FLOAT32"), counts,
                          None if job is None else job.train.epochs)
        compare(table, wanted, table["name"])
        print(f"{table['name']}: the figures of {table['rows']} rows are NumPy's")


if __name__ == "__main__":
    main()
