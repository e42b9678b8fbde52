"""Tests of weir.write_rows, weir.write_checkpoint and weir.edit_checkpoint, whose files the C++ programs read."""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import weir
from weir import programs, stable_hash
from weir.digest import rows_digest
from weir.errors import DamagedFileError, ProgramsMissingError, WeirError
from weir.feature_id import feature_ids
from weir.writers import distinct_ids
from weir.writers.distinct_ids import DistinctIds
from weir.writers.publication import write_manifest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/framework/checkpoint/testdata/golden"
GOLDEN_2 = ROOT / "tests/framework/checkpoint/testdata/golden_2"
USERS = 80

JOB = """
name: "small"
data {
  train { files: "train.csv" }
  eval { files: "eval.csv" }
  csv {
    column { name: "label" type: FLOAT }
    column { name: "user" type: ID }
    column { name: "city" type: TEXT }
    column { name: "price" type: FLOAT }
    column { name: "weight" type: FLOAT }
  }
  dense { transform: STANDARDIZE }
  batch_size: 32
}
model {
  layer { name: "fields" embedding { ids: "user" ids: "city" table: "vectors" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "price" input: "weight" } }
  layer { name: "deep" mlp { input: "input" sizes: [8] activation: RELU } }
  layer { name: "logit" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true logical_shards: 64 }
optimizer { adam { learning_rate: 0.01 } }
distribute { sync: true servers: 2 trainers: 1 }
train { epochs: 2 seed: 1 lanes: 2 eval_every_steps: 6 }
checkpoint { dir: "local" every_steps: 6 keep_last: 20 }
"""


def run(program: str, *arguments: str, cwd=None, fails: bool = False) -> str:
    done = subprocess.run([str(programs.find(program)), *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout


def has_programs() -> bool:
    try:
        programs.find("checkpoint")
    except ProgramsMissingError:
        return False
    return True


def write_data(directory: pathlib.Path) -> None:
    draw = random.Random(1)
    for name, lines in (("train.csv", 400), ("eval.csv", 60)):
        with open(directory / name, "w", encoding="utf-8") as file:
            file.write("label,user,city,price,weight\n")
            for _ in range(lines):
                city = draw.choice(["Oslo", "Köln", "Rome", ""])
                file.write(f"{draw.randrange(2)},{draw.randrange(USERS)},{city},{draw.random():.3f},"
                           f"{draw.random():.3f}\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with a job, and checkpoints of it: "local" of one server, "two" of two, "async" with a schedule."""
    if not has_programs():
        pytest.skip("the programs are not built")
    directory = tmp_path_factory.mktemp("trained")
    write_data(directory)
    (directory / "job.textproto").write_text(JOB)
    run("trainer", "--role=local", "--job=job.textproto", cwd=directory)
    run("launch", "--servers=2", "--trainers=1", "--job=job.textproto", "--set", "checkpoint.dir=two", cwd=directory)
    run("launch", "--servers=2", "--trainers=2", "--job=job.textproto", "--set", "checkpoint.dir=async", "--set",
        "distribute.sync=false", "--set", "optimizer.schedule.exponential.decay_steps=3", "--set",
        "optimizer.schedule.exponential.decay_rate=0.5", cwd=directory)
    return directory


def files_of(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()}


def check(checkpoint: weir.Checkpoint) -> weir.Checkpoint:
    """Checks a checkpoint as the programs do, and that they compute the digests in its manifest."""
    checkpoint.verify()
    assert checkpoint.digest() == (checkpoint.manifest.values_digest, checkpoint.manifest.state_digest)
    shards = checkpoint.manifest.shards
    assert sum(shard.values_digest for shard in shards) % 2**64 == checkpoint.manifest.values_digest
    if has_programs():
        assert " OK " in run("checkpoint", "verify", checkpoint.path)
        total = checkpoint.digest()
        digests = run("checkpoint", "digest", checkpoint.path).splitlines()
        assert digests[-1] == f"values={total.values:016x} state={total.state:016x}"
        assert digests[:-1] == [f"{name} values={d.values:016x} state={d.state:016x}"
                                for name, d in checkpoint.digests().items()]
    return checkpoint


def same_rows(a, b) -> bool:
    return (a.ids.tobytes() == b.ids.tobytes() and a.values.tobytes() == b.values.tobytes()
            and list(a.state) == list(b.state)
            and all(a.state[name].tobytes() == b.state[name].tobytes() for name in a.state))


def some_rows(draw: np.random.Generator, count: int, width: int):
    """Returns distinct ids of all of int64, and values."""
    ids = np.unique(draw.integers(-2**63, 2**63, count, np.int64, endpoint=False))
    return draw.permutation(ids), draw.normal(size=(len(ids), width)).astype(np.float32)


# ------------------------------------------------------------------------------------------------------- the one hash


@pytest.mark.parametrize("package", [True, False])
def test_a_hash_of_pieces_is_that_of_the_whole(monkeypatch, package):
    data = np.random.default_rng(1).integers(0, 256, 9000, np.uint8)
    if not package:
        monkeypatch.setattr(stable_hash, "_xxhash", None)
    draw = random.Random(2)
    for length in (0, 1, 3, 16, 17, 128, 240, 241, 1023, 1024, 1025, 1088, 2048, 2049, 9000):
        expected = stable_hash.hash_bytes(data[:length].tobytes())
        for _ in range(8):
            running, at = stable_hash.RunningHash(), 0
            while at < length:
                piece = draw.choice([1, 63, 64, 65, 1023, 1024, 1025, 5000])
                running.update(data[at:min(length, at + piece)])
                at += piece
                if draw.random() < 0.1:
                    running.digest()  # changes nothing
            assert running.digest() == expected, length


# ---------------------------------------------------------------------------------------------------------- row files


def test_a_row_file_is_that_of_the_export(trained, tmp_path):
    for step in ("two", "local"):
        run("checkpoint", "export", trained / step, "--table=vectors", "--state",
            f"--output={tmp_path / 'theirs.rows'}")
        checkpoint = weir.Checkpoint(trained / step)
        table = checkpoint.table("vectors")
        draw = np.random.default_rng(3).permutation(len(table))
        weir.write_rows(tmp_path / "ours.rows", "vectors", table.ids[draw], table.values[draw],
                        {name: each[draw] for name, each in table.state.items()}, job_name="small",
                        step=checkpoint.step, logical_shards=64)
        assert (tmp_path / "ours.rows").read_bytes() == (tmp_path / "theirs.rows").read_bytes()


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_any_shape_come_back(tmp_path, seed):
    draw = np.random.default_rng(seed)
    count, width = int(draw.choice([0, 1, 2, 63, 1000, 40000])), int(draw.choice([1, 2, 7, 64]))
    ids, values = some_rows(draw, count, width)
    states = {name: draw.random((len(ids), int(draw.integers(1, 5)))).astype(np.float32)
              for name in ["moment", "µ", "step"][:draw.integers(0, 4)]}
    path = tmp_path / "some.rows"
    weir.write_rows(path, "Tabelle ä", ids, values, states or None)
    rows = weir.RowFile(path)
    rows.verify()
    np.testing.assert_array_equal(rows.rows(ids), values)
    order = np.argsort(ids)
    np.testing.assert_array_equal(rows.ids, ids[order])
    assert list(rows.state_widths.items()) == [(name, each.shape[1]) for name, each in states.items()]
    for name, each in states.items():
        np.testing.assert_array_equal(rows.state[name], each[order])
    assert (rows.name, rows.since_step, len(rows.removed)) == ("Tabelle ä", None, 0)
    whole = path.read_bytes()
    # Batches of any size, and a row file, have the same rows.
    cuts = sorted(draw.integers(0, len(ids) + 1, 5).tolist())
    batches = [(ids[a:b], values[a:b], {name: each[a:b] for name, each in states.items()})
               for a, b in zip([0, *cuts], [*cuts, len(ids)])]
    weir.write_rows(tmp_path / "batches.rows", "Tabelle ä", iter(batches))
    assert same_rows(weir.RowFile(tmp_path / "batches.rows"), rows)
    weir.write_rows(tmp_path / "copy.rows", "Tabelle ä", rows)
    assert (tmp_path / "copy.rows").read_bytes() == whole
    if has_programs():
        printed = run("checkpoint", "rows", path)
        assert f"values={rows_digest(rows).values:016x}" in printed and f"rows={len(ids)}" in printed


def test_many_small_batches_make_few_chunks(tmp_path):
    weir.write_rows(tmp_path / "a.rows", "t", ((np.arange(i * 3, i * 3 + 3), np.ones((3, 2))) for i in range(5000)))
    rows = weir.RowFile(tmp_path / "a.rows")
    assert len(rows) == 15000 and len(rows.description.chunks) == 1


@pytest.mark.parametrize("how", ["rows", "checkpoint"])
def test_rows_that_come_in_batches_need_memory_for_one(tmp_path, how):
    count, width, batch = 400_000, 64, 25_000

    def batches():
        for at in range(0, count, batch):
            # Not in order, and each id once.
            ids = np.arange(at, at + batch, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            yield ids, np.full((batch, width), at, np.float32)

    tracemalloc.start()
    try:
        if how == "rows":
            weir.write_rows(tmp_path / "big.rows", "t", batches())
        else:
            weir.write_checkpoint(tmp_path, {}, tables={"t": batches()})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    rows = weir.RowFile(tmp_path / "big.rows") if how == "rows" else weir.Checkpoint(tmp_path).table("t")
    assert len(rows) == count
    # 106 MB of rows. A batch has 6.4 MB, a chunk 8.4 MB, and the ids 3.2 MB.
    assert peak < 60e6


def test_values_of_other_types_are_rounded_as_stated(tmp_path):
    halves = np.array([[65504, 6e-8], [0.1, -0.0]], np.float16)
    doubles = np.array([[1 + 2**-24, 1 + 3 * 2**-24], [0.1, 1e-46]])  # ties: to even, which is down and up
    whole = np.array([[2**24 + 1, -3], [2**53, 7]])
    for given, expected in ((halves, halves.astype(np.float32)), (doubles, doubles.astype(np.float32)),
                            (whole, whole.astype(np.float32)), (doubles.astype(">f8"), doubles.astype(np.float32)),
                            (doubles.astype(np.longdouble), doubles.astype(np.float32)), ([[1, 2], [3, 4]],) * 2):
        weir.write_rows(tmp_path / "a.rows", "t", [2, 1], given)
        assert weir.RowFile(tmp_path / "a.rows").rows([2, 1]).tobytes() == np.array(expected, np.float32).tobytes()
    assert weir.RowFile(tmp_path / "a.rows").ids.tolist() == [1, 2]
    weir.write_rows(tmp_path / "a.rows", "t", [2, 1], doubles)
    assert weir.RowFile(tmp_path / "a.rows").rows([2])[0].tolist() == [1, 1 + 2**-22]


def test_values_in_any_layout_of_memory_are_equal(tmp_path):
    ids, values = some_rows(np.random.default_rng(5), 100, 6)
    weir.write_rows(tmp_path / "a.rows", "t", ids, values)
    for given in (np.asfortranarray(values), np.repeat(values, 2, axis=1)[:, ::2], values[::-1][::-1],
                  values.astype(">f4")):
        weir.write_rows(tmp_path / "b.rows", "t", ids.astype(np.uint64), given)
        assert (tmp_path / "b.rows").read_bytes() == (tmp_path / "a.rows").read_bytes()


def test_the_first_id_that_is_there_twice_is_named(tmp_path):
    values = np.zeros((6, 2))
    with pytest.raises(ValueError, match=r"table 't': id 7 is there twice, in rows 1 and 3; merge these rows, or"):
        weir.write_rows(tmp_path / "a.rows", "t", [5, 7, 8, 7, 5, 7], values)
    batches = [([5, 7], values[:2]), ([8, 9, 10], values[:3]), ([7, 5], values[:2])]
    with pytest.raises(ValueError, match="id 7 is there twice, in rows 1 and 5"):
        weir.write_rows(tmp_path / "a.rows", "t", batches)
    with pytest.raises(ValueError, match="id 7 is there twice, in rows 1 and 5"):
        weir.write_checkpoint(tmp_path / "c", {}, tables={"t": batches})
    with pytest.raises(ValueError, match="id -1 is there twice, in rows 0 and 1"):
        weir.write_rows(tmp_path / "a.rows", "t", np.array([2**64 - 1, 2**64 - 1], np.uint64), values[:2])
    assert os.listdir(tmp_path) in ([], ["c"]) and os.listdir(tmp_path / "c") == []


@pytest.mark.parametrize("seed", range(6))
def test_ids_beyond_memory_are_compared_on_disk(tmp_path, seed):
    draw = np.random.default_rng(seed)
    ids = draw.permutation(5000)
    copies = draw.integers(0, 5000, int(draw.integers(0, 4)))
    at = np.sort(draw.choice(np.arange(5000), len(copies), replace=False))
    ids[at] = ids[copies]  # which may be copies of themselves
    seen: dict[int, int] = {}
    expected = None
    for place, id in enumerate(ids.tolist()):
        if id in seen:
            expected = distinct_ids.Twice(id, seen[id], place)
            break
        seen[id] = place
    for most in (100, 1 << 20):
        found = DistinctIds(str(tmp_path), most)
        for part in np.array_split(ids, 77):
            found.add(part)
        assert found.first_double() == expected, most
        found.close()
    assert os.listdir(tmp_path) == []


def test_values_that_are_not_finite_are_named_or_written(tmp_path):
    values = np.ones((3, 4))
    for bad, text in ((np.nan, "= nan is not finite"), (-np.inf, "= -inf is not finite"),
                      (1e39, r"= 1e\+39 is beyond the greatest float32")):
        values[1, 2] = bad
        with pytest.raises(ValueError, match=rf"values of table 't': row 1 \(id 8\), column 2 {text}; correct it, or "):
            weir.write_rows(tmp_path / "a.rows", "t", [9, 8, 7], values)
        with pytest.raises(ValueError, match=r"state 'm' of table 't': row 4 \(id 8\), column 2"):
            weir.write_rows(tmp_path / "a.rows", "t",
                            [([1, 2, 3], np.zeros((3, 1)), {"m": np.zeros((3, 4))}),
                             ([9, 8, 7], np.zeros((3, 1)), {"m": values})])
        assert os.listdir(tmp_path) == []
    weir.write_rows(tmp_path / "b.rows", "t", [9, 8, 7], values, finite=False)
    assert weir.RowFile(tmp_path / "b.rows").rows([8])[0].tolist() == [1, 1, np.inf, 1]
    # Those of a file, too.
    with pytest.raises(ValueError, match=r"row \d \(id 8\), column 2 = inf is not finite"):
        weir.write_rows(tmp_path / "c.rows", "t", weir.RowFile(tmp_path / "b.rows"))
    weir.write_rows(tmp_path / "c.rows", "t", weir.RowFile(tmp_path / "b.rows"), finite=False)
    os.remove(tmp_path / "b.rows")
    assert os.listdir(tmp_path) == ["c.rows"]


TWO = np.zeros((2, 3))


@pytest.mark.parametrize("arguments, error, message", [
    ((["a", "b"], TWO), TypeError, "ids are integers, got <U1"),
    (([1.0, 2.0], TWO), TypeError, "ids are integers, got float64"),
    (([True, False], TWO), TypeError, "ids are integers, got bool"),
    (([[1, 2]], TWO), ValueError, r"ids have the shape \[1, 2\]; \[n\] was expected"),
    (([1, 2, 3], TWO), ValueError, r"values have the shape \[2, 3\]; \[3, width\] was expected for 3 ids"),
    (([1, 2], TWO[0]), ValueError, r"values have the shape \[3\]"),
    (([1, 2], np.zeros((2, 0))), ValueError, "values have width 0; a row has 1 to"),
    (([1, 2], TWO.astype(complex)), TypeError, "values of table 't': numbers were expected, got complex128"),
    (([1, 2], TWO.astype(bool)), TypeError, "numbers were expected, got bool"),
    (([1, 2], TWO.astype(object)), TypeError, "numbers were expected, got object"),
    (([1, 2], [["a"], ["b"]]), TypeError, "numbers were expected, got <U1 such as 'a'"),
    (([1, 2], [[1, 2], [3]]), (ValueError, TypeError), "values of table 't'"),
    (([1, 2], np.ma.masked_array(TWO)), TypeError, "has masked elements"),
    (([1, 2], TWO, {"m": TWO[:1]}), ValueError, r"state 'm' have the shape \[1, 3\]; \[2, width\] was expected"),
    (([1, 2], TWO, {"": TWO}), ValueError, "'' is no name of a state"),
    (([1, 2], TWO, {3: TWO}), TypeError, "names of states are strings, got 3"),
    (([1, 2], TWO, [TWO]), TypeError, "state of table 't' is a dict from names to arrays, got list"),
    (([1, 2], TWO, {"lifecycle.count": TWO}), TypeError, "'lifecycle.count' of table 't': integers were expected"),
    (([1, 2], TWO, {"lifecycle.count": [[1], [-1]]}), ValueError, "run from -1 to 1; integers from 0 to 4294967295"),
    (([1, 2],), TypeError, r"batches of table 't' are tuples .*, got int"),
    ((np.array([1, 2]),), TypeError, "got ndarray"),
    ((([1, 2], TWO),), TypeError, "rows without values"),
    (([([1, 2], TWO), ([3], [[1.0]])],), ValueError,
     "the batch from row 2 on has width 1 and state none, and the first has width 3 and state none"),
    (([([1], TWO, {}, 3)],), TypeError, "got 4 things in a tuple"),
    (([],), ValueError, r"there is no batch.*for an empty table give arrays, ids \[0\] and values \[0, width\]"),
    (([[1, 2], TWO],), TypeError, r"batches of table 't' are tuples .*, got list"),
])
def test_what_is_no_row_is_refused(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        weir.write_rows(tmp_path / "a.rows", "t", *arguments)
    assert os.listdir(tmp_path) == []


def test_names_and_numbers_of_a_row_file_are_checked(tmp_path):
    for table in ("", "a\0b", "\ud800"):
        with pytest.raises(ValueError, match="is no name of a table"):
            weir.write_rows(tmp_path / "a.rows", table, [1, 2], TWO)
    with pytest.raises(TypeError, match="names of tables are strings, got None"):
        weir.write_rows(tmp_path / "a.rows", None, [1, 2], TWO)
    for shards in (0, 3, 1 << 21, -4):
        with pytest.raises(ValueError, match="logical_shards is a power of two up to 1048576, got"):
            weir.write_rows(tmp_path / "a.rows", "t", [1, 2], TWO, logical_shards=shards)
    with pytest.raises(ValueError, match="step is -1; steps run from 0 to"):
        weir.write_rows(tmp_path / "a.rows", "t", [1, 2], TWO, step=-1)
    with pytest.raises(TypeError, match="step is an integer, got 1.5"):
        weir.write_rows(tmp_path / "a.rows", "t", [1, 2], TWO, step=1.5)
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        weir.write_rows(tmp_path / "none" / "a.rows", "t", [1, 2], TWO)
    assert os.listdir(tmp_path) == []


def test_a_row_file_stays_as_it_is_if_the_next_fails(tmp_path):
    path = tmp_path / "a.rows"
    weir.write_rows(path, "t", [1, 2], TWO)
    whole = path.read_bytes()

    def batches():
        yield [1], TWO[:1]
        raise RuntimeError("the source has ended")

    with pytest.raises(RuntimeError, match="the source has ended"):
        weir.write_rows(path, "t", batches())
    assert path.read_bytes() == whole and os.listdir(tmp_path) == ["a.rows"]
    weir.write_rows(path, "t", [1], TWO[:1])
    assert len(weir.RowFile(path)) == 1


def test_a_row_file_goes_through_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE) as cat:
        weir.write_rows(tmp_path / "pipe", "t", iter([([1, 2], TWO)]))
        (tmp_path / "a.rows").write_bytes(cat.communicate(timeout=60)[0])
    assert weir.RowFile(tmp_path / "a.rows").ids.tolist() == [1, 2]


def test_a_written_row_that_is_damaged_is_found(tmp_path):
    weir.write_rows(tmp_path / "a.rows", "t", [1, 2], TWO + 1)
    whole = bytearray((tmp_path / "a.rows").read_bytes())
    whole[130] ^= 1
    (tmp_path / "a.rows").write_bytes(whole)
    with pytest.raises(DamagedFileError, match="chunk 0 at byte 64 is damaged"):
        weir.write_rows(tmp_path / "b.rows", "t", weir.RowFile(tmp_path / "a.rows"))
    assert os.listdir(tmp_path) == ["a.rows"]


def test_rows_load_into_a_job_of_any_cluster(trained, tmp_path):
    """Pretrained vectors, some of users that the data have, some of others, which keep their bits."""
    draw = np.random.default_rng(8)
    others = feature_ids(np.arange(USERS, 5 * USERS), "user")
    ids = np.concatenate([feature_ids(np.arange(USERS), "user"), feature_ids(["Oslo"], "city"), others])
    vectors = draw.normal(size=(len(ids), 4)).astype(np.float32)
    state = {"moment1": draw.random((len(ids), 4)), "moment2": draw.random((len(ids), 4)),
             "step": np.full((len(ids), 1), 3)}
    weir.write_rows(tmp_path / "a.rows", "words", ids, vectors, state)
    weir.write_rows(tmp_path / "plain.rows", "words", ids, vectors)
    digests = set()
    for name, program, arguments in (("one", "trainer", ["--role=local"]), ("two", "launch", ["--servers=2"])):
        run(program, *arguments, "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path / name}", "--set",
            f"table[0].load={tmp_path / 'a.rows'}", cwd=trained)
        checkpoint = weir.Checkpoint(tmp_path / name)
        table = checkpoint.table("vectors")
        np.testing.assert_array_equal(table.rows(others), vectors[-len(others):])
        at = np.searchsorted(table.ids, others)
        for each in state:
            np.testing.assert_array_equal(table.state[each][at], state[each][-len(others):].astype(np.float32))
        assert (table.rows(ids[:USERS + 1]) != vectors[:USERS + 1]).any()
        digests.add(checkpoint.digest())
    assert len(digests) == 1
    run("trainer", "--role=local", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path / 'plain'}", "--set",
        f"table[0].load={tmp_path / 'plain.rows'}", cwd=trained)
    fresh = weir.Checkpoint(tmp_path / "plain").table("vectors")
    np.testing.assert_array_equal(fresh.rows(others), vectors[-len(others):])
    assert not fresh.state["moment1"][np.searchsorted(fresh.ids, others)].any()


# -------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("seed", range(12))
def test_a_checkpoint_of_any_shapes_comes_back(tmp_path, seed):
    draw = np.random.default_rng(seed)
    shapes = [(), (1,), (0,), (3, 0), (7,), (5, 3), (2, 3, 4), (1, 70000)]
    values, state = {}, {}
    for i in range(int(draw.integers(0, 6))):
        name, shape = f'layer."{i}".\\ä', shapes[draw.integers(len(shapes))]
        values[name] = draw.normal(size=shape).astype(np.float32)
        if draw.random() < 0.6:
            state[name] = {"moment1": draw.random(shape).astype(np.float32), "step": float(draw.integers(100))}
    tables = {}
    for i in range(int(draw.integers(0 if values else 1, 4))):
        ids, rows = some_rows(draw, int(draw.choice([0, 1, 500, 60000])), int(draw.integers(1, 20)))
        states = {"moment": draw.random((len(ids), 2)).astype(np.float32)} if draw.random() < 0.5 else {}
        tables[f"table {i}"] = (ids, rows, states)
    shards = int(draw.choice([1, 16, 4096]))
    if draw.random() < 0.3:
        state["@LR_SCHEDULE"] = {"learning_rate": 0.25, "learning_rate.step": 2**40 + 1, "transactions": 7}
    checkpoint = check(weir.write_checkpoint(tmp_path, values, state=state, tables=tables, logical_shards=shards,
                                             step=int(draw.integers(3))))
    assert (checkpoint.variables, checkpoint.tables) == (sorted(values), sorted(tables))
    for name, array in values.items():
        assert checkpoint.dense(name).shape == array.shape and checkpoint.dense(name).tobytes() == array.tobytes()
    for name, states in state.items():
        found = checkpoint.state(name)
        assert list(found) == list(states)
        for each, value in states.items():
            assert type(found[each]) is type(value)
            np.testing.assert_array_equal(found[each], value)
    for name, (ids, rows, states) in tables.items():
        table = checkpoint.table(name)
        order = np.argsort(ids)
        assert table.logical_shards == shards and table.width == rows.shape[1]
        np.testing.assert_array_equal(table.ids, ids[order])
        np.testing.assert_array_equal(table.values, rows[order])
        assert list(table.state) == list(states)
        for each, value in states.items():
            np.testing.assert_array_equal(table.state[each], value[order])
    # Equal parameters give equal files, whatever the order of rows.
    shuffled = {}
    for name, (ids, rows, states) in tables.items():
        mix = draw.permutation(len(ids))
        shuffled[name] = (ids[mix], rows[mix], {each: value[mix] for each, value in states.items()})
    other = weir.write_checkpoint(tmp_path / "other", values, state=state, tables=shuffled, logical_shards=shards,
                                  step=checkpoint.step)
    assert files_of(other.path) == files_of(checkpoint.path)


def test_a_checkpoint_of_what_another_holds_has_its_digests(trained, tmp_path):
    for name in ("local", "two"):
        old = weir.Checkpoint(trained / name)
        new = check(weir.write_checkpoint(
            tmp_path / name, {each: old.dense(each) for each in old.variables},
            state={each: old.state(each) for each in old.variables},
            tables={each: old.table(each) for each in old.tables}, job=weir.Job.from_file(trained / "job.textproto")))
        assert new.digest() == old.digest() and new.job_name == "small" and new.step == 0
        assert new.table("vectors").logical_shards == 64
        assert same_rows(new.table("vectors"), old.table("vectors"))
    assert (tmp_path / "local/step-000000000000/shard-00000").stat().st_size > 1000


def predict(checkpoint, directory, *arguments: str) -> list[str]:
    """Returns the lines that the program writes for data.eval."""
    output = pathlib.Path(directory) / "scores.csv"
    run("trainer", "--role=predict", "--job=job.textproto", f"--checkpoint={checkpoint}", f"--output={output}",
        *arguments, cwd=directory)
    return output.read_text().splitlines()


def written(old: weir.Checkpoint, path, **more) -> weir.Checkpoint:
    """Writes all that another checkpoint holds as a new one."""
    return weir.write_checkpoint(
        path, {each: old.dense(each) for each in old.variables},
        state={each: old.state(each) for each in old.variables},
        tables={each: old.table(each).chunks() for each in old.tables}, logical_shards=64, **more)


def test_a_written_checkpoint_predicts_and_trains_on_any_cluster(trained, tmp_path):
    old = weir.Checkpoint(trained / "two", step=6)
    job = weir.Job.from_file(trained / "job.textproto")
    new = check(written(old, tmp_path / "new", job=job, statistics=old))
    assert predict(new.path, trained) == predict(old.path, trained)
    digests = set()
    for name, program in (("one", ["trainer", "--role=local", "--resume"]),
                          ("two", ["launch", "--servers=1", "--trainers=2", "--", "--resume"])):
        shutil.copytree(tmp_path / "new", tmp_path / name)
        at = len(program) if name == "one" else program.index("--")
        program[at:at] = ["--job=job.textproto", "--set", f"checkpoint.dir={tmp_path / name}"]
        said = run(*program, cwd=trained)
        assert "resumed from" in said
        digests.add(weir.Checkpoint(tmp_path / name).digest())
    # It has gone on from these values, not from those of a fresh run, whose last digest is another.
    assert len(digests) == 1 and digests.isdisjoint({old.digest(), weir.Checkpoint(trained / "two").digest()})


def test_a_prediction_needs_the_statistics_of_the_job(trained, tmp_path):
    old = weir.Checkpoint(trained / "two", step=6)
    new = written(old, tmp_path / "new", job=weir.Job.from_file(trained / "job.textproto"))
    said = run("trainer", "--role=predict", "--job=job.textproto", f"--checkpoint={new.path}",
               f"--output={tmp_path / 'scores.csv'}", cwd=trained, fails=True)
    assert "holds no data statistics" in said
    with pytest.raises(WeirError, match="has no data statistics"):
        written(old, tmp_path / "other", statistics=new)


def test_values_without_state_predict_where_the_job_has_none(trained, tmp_path):
    old = weir.Checkpoint(trained / "two")
    new = weir.write_checkpoint(
        tmp_path, {each: old.dense(each) for each in old.variables},
        tables={"vectors": (old.table("vectors").ids, old.table("vectors").values)}, statistics=old,
        job=weir.Job.from_file(trained / "job.textproto", overrides=["optimizer={sgd{learning_rate:0.1}}"]))
    assert predict(new.path, trained, "--set", "optimizer={sgd{learning_rate:0.1}}") == predict(old.path, trained)
    said = run("trainer", "--role=predict", "--job=job.textproto", f"--checkpoint={new.path}",
               f"--output={tmp_path / 'scores.csv'}", cwd=trained, fails=True)
    assert "it was written with another optimizer" in said


@pytest.mark.parametrize("arguments, error, message", [
    ((["w"],), TypeError, "values is a dict by name, got list"),
    (({},), ValueError, "neither values nor tables: there is nothing to write"),
    (({"w": ["a"]},), TypeError, "'w': numbers were expected, got <U1 such as 'a'"),
    (({"w": [[1], [1, 2]]},), (ValueError, TypeError), "'w'"),
    (({"w": [1, np.nan]},), ValueError, r"'w'\[1\] = nan is not finite"),
    (({"w": [[1, 2], [1e39, 4]]},), ValueError, r"'w'\[1, 0\] = 1e\+39 is beyond the greatest float32"),
    (({"": [1]},), ValueError, "'' is no name of a variable"),
    (({1: [1]},), TypeError, "names of variables are strings, got 1"),
    (({"w": [1]}, {"v": {"m": [1]}}), ValueError, "state of 'v', which is not among values"),
    (({"w": [1]}, {"w": {"m": [1, 2]}}), ValueError, r"state 'm' of 'w' has the shape \[2\]; that of the variable, "
                                                     r"\[1\], was expected, or a number"),
    (({"w": [1]}, {"w": [1]}), TypeError, "state of 'w' is a dict"),
    (({"w": [1]}, {"w": {"m": "x"}}), TypeError, "state 'm' of 'w': numbers were expected"),
    (({"w": [1]}, {"w": {"step": float("inf")}}), ValueError, "state 'step' of 'w' = inf is not finite"),
    (({"w": [1]}, {"w": {"step": 10**400}}), ValueError, "state 'step' of 'w' = 10+ is beyond the greatest float32"),
    (({"w": [1]}, {"@LR_SCHEDULE": {"n": 2**63}}), ValueError, "is no int64"),
    (({"w": [1]}, {"@LR_SCHEDULE": {"n": [1]}}), TypeError, "state 'n' of '@LR_SCHEDULE' is a number, got list"),
    (({"w": [1]}, {}, {"w": ([1], [[1]])}), ValueError, "'w' is among values and among tables"),
    (({}, {}, {"t": [1, 2]}), TypeError, "batches of table 't' are tuples"),
    (({}, {}, {"t": ([1, 1], [[1], [1]])}), ValueError, "id 1 is there twice, in rows 0 and 1"),
    (({}, {}, {"t": {"ids": [1]}}), TypeError, "rows of table 't' are .*; got dict"),
])
def test_what_is_no_parameter_is_refused(tmp_path, arguments, error, message):
    values, state, tables = (*arguments, {}, {})[:3]
    with pytest.raises(error, match=message):
        weir.write_checkpoint(tmp_path / "new", values, state=state, tables=tables)
    assert not (tmp_path / "new").exists()


def test_the_numbers_of_a_checkpoint_are_checked(tmp_path):
    job = weir.Job("a", table=[{"name": "t", "width": 3, "logical_shards": 32}])
    rows = ([1], [[1.0, 2]])
    with pytest.raises(ValueError, match="table 't': values have width 2; the job's table has 3"):
        weir.write_checkpoint(tmp_path, {}, tables={"t": rows}, job=job)
    with pytest.raises(ValueError, match="logical_shards of 'v', which is not among tables"):
        weir.write_checkpoint(tmp_path, {}, tables={"t": rows}, logical_shards={"v": 4})
    with pytest.raises(ValueError, match="logical_shards is a power of two"):
        weir.write_checkpoint(tmp_path, {}, tables={"t": rows}, logical_shards=5)
    with pytest.raises(ValueError, match="steps run from 0"):
        weir.write_checkpoint(tmp_path, {"w": [1]}, step=-1)
    assert os.listdir(tmp_path) == []
    job.table[0].width = 2
    tables = {"t": rows, "t@candidates": (np.empty(0, np.int64), np.empty((0, 1), np.uint32)), "u": rows}
    checkpoint = weir.write_checkpoint(tmp_path, {}, tables=tables, job=job, logical_shards={"u": 8})
    assert [checkpoint.table(name).logical_shards for name in ("t", "t@candidates", "u")] == [32, 32, 8]


def test_a_checkpoint_never_takes_the_place_of_another(tmp_path):
    first = weir.write_checkpoint(tmp_path, {"w": [1.0]}, step=7)
    before = files_of(first.path)
    with pytest.raises(FileExistsError, match="step-000000000007 is there already; name another directory"):
        weir.write_checkpoint(tmp_path, {"w": [2.0]}, step=7)
    with pytest.raises(FileExistsError, match="is there already"):
        weir.edit_checkpoint(first, tmp_path, values={"w": [2.0]})
    with pytest.raises(WeirError, match="is the directory of one step; name a directory of checkpoints"):
        weir.write_checkpoint(first.path, {"w": [2.0]})
    assert files_of(first.path) == before and os.listdir(tmp_path) == ["step-000000000007"]
    weir.write_checkpoint(tmp_path, {"w": [2.0]}, step=8)
    assert [each.step for each in weir.checkpoints(tmp_path)] == [7, 8]
    (tmp_path / "OWNER").write_text("")
    with pytest.raises(WeirError, match="belongs to a run, whose mark is its file OWNER; name another directory"):
        weir.write_checkpoint(tmp_path, {"w": [2.0]}, step=9)


def test_one_that_comes_meanwhile_stays(tmp_path):
    def rows():
        yield [1], [[1.0]]
        weir.write_checkpoint(tmp_path, {"w": [1.0]}, step=7)
        yield [2], [[1.0]]

    with pytest.raises(FileExistsError, match="step-000000000007 has come meanwhile"):
        weir.write_checkpoint(tmp_path, {}, tables={"t": rows()}, step=7)
    assert weir.Checkpoint(tmp_path).variables == ["w"] and os.listdir(tmp_path) == ["step-000000000007"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_write_that_breaks_off_leaves_nothing(tmp_path, error):
    def rows():
        yield [1], [[1.0]]
        assert len(os.listdir(tmp_path)) == 1
        raise error

    with pytest.raises(error):
        weir.write_checkpoint(tmp_path, {"w": [1.0]}, tables={"t": rows()})
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        weir.write_checkpoint(tmp_path, {"w": [1.0]})
    with pytest.raises(OSError, match="No space left"):
        weir.write_rows(tmp_path / "a.rows", "t", [1, 2], TWO)
    assert os.listdir(tmp_path) == []


def test_the_next_save_removes_what_a_killed_write_has_left(trained, tmp_path):
    code = ("import os, weir\ndef rows():\n  yield [1], [[1.0]]\n  os.kill(os.getpid(), 9)\n"
            f"weir.write_checkpoint({str(tmp_path)!r}, {{}}, tables={{'t': rows()}})")
    done = subprocess.run([sys.executable, "-c", code], check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == -9
    assert [re.fullmatch(r"tmp-step-0{12}-[0-9a-f]{16}", name) is not None for name in os.listdir(tmp_path)] == [True]
    said = run("trainer", "--role=local", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path}", "--set",
               "train.max_steps=6", cwd=trained)
    assert "which was not finished" in said and sorted(os.listdir(tmp_path)) == ["PROGRESS", "step-000000000006"]


# -------------------------------------------------------------------------------------------------------------- edits


@pytest.mark.parametrize("name", ["local", "two", "async"])
def test_a_copy_without_changes_has_the_files_of_the_original(trained, tmp_path, name):
    old = weir.Checkpoint(trained / name)
    new = check(weir.edit_checkpoint(old, tmp_path))
    before, after = files_of(old.path), files_of(new.path)
    assert before.pop("MANIFEST").split(b"\n")[1:] and after.pop("MANIFEST") and before == after
    assert new.manifest == old.manifest and new.figures == old.figures
    assert {"statistics", "places"} <= set(after)


@pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_2])
def test_a_copy_of_any_format_is_of_the_present_one(tmp_path, golden):
    old = weir.Checkpoint(golden)
    new = check(weir.edit_checkpoint(golden, tmp_path))
    assert new.digest() == old.digest() and new.manifest.format_version == 2
    before, after = files_of(old.path), files_of(new.path)
    assert {**before, "MANIFEST": b""} == {**after, "MANIFEST": b""}
    lifted = weir.Checkpoint(GOLDEN_2).manifest.trainers
    assert new.manifest.trainers == lifted or golden == GOLDEN and new.manifest.trainers.stream_scheme == 1
    assert not new.manifest.HasField("stream_scheme")


def test_a_run_goes_on_from_a_copy_as_from_the_original(trained, tmp_path):
    weir.edit_checkpoint(weir.Checkpoint(trained / "two", step=6), tmp_path / "copy")
    run("trainer", "--role=local", "--resume", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path / 'copy'}",
        cwd=trained)
    assert weir.Checkpoint(tmp_path / "copy").digest() == weir.Checkpoint(trained / "two").digest()
    weir.edit_checkpoint(weir.Checkpoint(trained / "async", step=weir.checkpoints(trained / "async")[0].step),
                         tmp_path / "async")
    run("launch", "--servers=2", "--trainers=2", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path / 'async'}",
        "--set", "distribute.sync=false", "--set", "optimizer.schedule.exponential.decay_steps=3", "--set",
        "optimizer.schedule.exponential.decay_rate=0.5", "--", "--resume", cwd=trained)
    assert len(weir.checkpoints(tmp_path / "async")) > 1


def test_a_silent_input_has_no_effect(trained, tmp_path):
    """The rows of a weight that the column "price" enters by are set to zero: scores do not depend on it any more."""
    old = weir.Checkpoint(trained / "two")
    w = old.dense("deep.0.w")
    assert w.shape == (6, 8)  # a sum of rows of width 4, price, weight
    w[4] = 0
    new = check(weir.edit_checkpoint(old, tmp_path / "silent", values={"deep.0.w": w}))
    np.testing.assert_array_equal(new.dense("deep.0.w"), w)
    assert new.figures == {} and old.figures and new.digest().state == old.digest().state
    lines = [line.split(",") for line in (trained / "eval.csv").read_text().splitlines()]
    for line in lines[1:]:
        line[3] = "0.5"
    (trained / "other.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    other = ("--set", "data.eval.files=other.csv")
    assert predict(old.path, trained) != predict(old.path, trained, *other)
    assert predict(new.path, trained) == predict(new.path, trained, *other) != predict(old.path, trained)


def test_a_table_is_cut(trained, tmp_path):
    """A table of width 2 in a job of that width, beside the old model with the other columns set to zero."""
    old = weir.Checkpoint(trained / "two")
    keep = [0, 1, 4, 5]
    narrow = weir.Job.from_file(trained / "job.textproto", overrides=["table[0].width=2"])

    def cut(rows):
        return rows.ids, rows.values[:, :2], {
            name: each if name == "step" else each[:, :2] for name, each in rows.state.items()}

    def silence(rows):
        rows.values[:, 2:] = 0
        return rows

    zero = check(weir.edit_checkpoint(old, tmp_path / "zero", tables={"vectors": silence}))
    state = {name: each if np.ndim(each) == 0 else each[keep] for name, each in old.state("deep.0.w").items()}
    cut_to_2 = check(weir.edit_checkpoint(
        old, tmp_path / "cut", values={"deep.0.w": old.dense("deep.0.w")[keep]}, state={"deep.0.w": state},
        tables={"vectors": cut}, job=narrow))
    assert cut_to_2.table("vectors").state_widths == {"moment1": 2, "moment2": 2, "step": 1}
    assert "width: 2" in cut_to_2.manifest.job_text and len(cut_to_2.table("vectors")) == len(old.table("vectors"))
    ours = predict(cut_to_2.path, trained, "--set", "table[0].width=2")
    np.testing.assert_allclose(*[np.array([line.split(",")[-1] for line in lines[1:]], float)
                                 for lines in (ours, predict(zero.path, trained))], rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="values have width 1; the job's table has 2"):
        weir.edit_checkpoint(old, tmp_path / "none", job=narrow,
                             tables={"vectors": lambda rows: (rows.ids, rows.values[:, :1], {})})
    assert os.listdir(tmp_path / "none") == []


def test_columns_that_begin_with_zeros_stay_so(tmp_path):
    """What a run says of rows that it has not made (start_from.new_values) goes into copies, cut with the table."""
    shutil.copytree(GOLDEN_2, tmp_path / "old")
    directory = tmp_path / "old/step-000000000042"
    manifest = weir.Checkpoint(directory).manifest
    for entry in (entry for shard in manifest.shards for entry in shard.tables):
        entry.zero_begin, entry.zero_end = 1, 2
    (directory / "MANIFEST").unlink()
    write_manifest(str(directory), manifest)
    old = weir.Checkpoint(directory)
    assert old.table("t").zero_columns == (1, 2)
    for i, (edit, zeros) in enumerate((
            ({}, (1, 2)), ({"values": {"b": [1, 2, 3]}}, (1, 2)), ({"tables": {"t": lambda rows: rows}}, (1, 2)),
            ({"tables": {"t": ([1], [[1.0, 2]])}}, (1, 2)),
            ({"tables": {"t": lambda rows: (rows.ids, rows.values[:, :1], {})}}, (1, 1)))):
        new = check(weir.edit_checkpoint(old, tmp_path / str(i), **edit))
        assert new.table("t").zero_columns == zeros
    new = check(weir.write_checkpoint(tmp_path / "new", {}, tables={"t": old.table("t"), "u": ([1], [[1.0]])}))
    assert (new.table("t").zero_columns, new.table("u").zero_columns) == ((1, 2), (0, 0))


def test_rows_are_dropped_replaced_and_added(trained, tmp_path):
    old = weir.Checkpoint(trained / "two")
    table = old.table("vectors")
    users = feature_ids(np.arange(USERS), "user")

    def without_users(rows):
        keep = ~np.isin(rows.ids, users)
        return rows.ids[keep], rows.values[keep], {name: each[keep] for name, each in rows.state.items()}

    dropped = check(weir.edit_checkpoint(old, tmp_path / "dropped", tables={"vectors": without_users})).table("vectors")
    keep = ~np.isin(table.ids, users)
    np.testing.assert_array_equal(dropped.ids, table.ids[keep])
    np.testing.assert_array_equal(dropped.values, table.values[keep])
    np.testing.assert_array_equal(dropped.state["moment2"], table.state["moment2"][keep])
    empty = check(weir.edit_checkpoint(old, tmp_path / "empty", tables={
        "vectors": lambda rows: (rows.ids[:0], rows.values[:0], {name: s[:0] for name, s in rows.state.items()})}))
    assert len(empty.table("vectors")) == 0 and empty.table("vectors").state_widths == table.state_widths
    weir.write_rows(tmp_path / "a.rows", "any", [5, 6], np.ones((2, 4)))
    both = check(weir.edit_checkpoint(old, tmp_path / "both", tables={
        "vectors": weir.RowFile(tmp_path / "a.rows"), "more": ([1, 2, 3], np.zeros((3, 2), np.float16)),
        "batches": iter([([1], [[1.0]]), ([0], [[2.0]])])}))
    assert old.figures and both.figures == {}
    assert both.table("vectors").ids.tolist() == [5, 6] and both.table("vectors").logical_shards == 64
    assert (both.tables, both.table("batches").values.tolist()) == (["batches", "more", "vectors"], [[2], [1]])
    none = check(weir.edit_checkpoint(both, tmp_path / "none", tables={"vectors": None, "batches": None}))
    assert none.tables == ["more"] and none.variables == old.variables


def test_what_a_lifecycle_keeps_goes_with_its_table(trained, tmp_path):
    run("trainer", "--role=local", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path / 'old'}", "--set",
        "table[0].lifecycle.admit_after=6", "--set", "table[0].lifecycle.ttl_steps=100", cwd=trained)
    old = weir.Checkpoint(tmp_path / "old")
    candidates = old.table("vectors@candidates")
    assert len(candidates) > 0 and len(old.table("vectors")) > 0
    same = check(weir.edit_checkpoint(old, tmp_path / "same", tables={
        "vectors": lambda rows: rows, "vectors@candidates": lambda rows: rows}))
    for name in ("vectors", "vectors@candidates"):
        assert same_rows(same.table(name), old.table(name))
    assert files_of(same.path)["shard-00000"] == files_of(old.path)["shard-00000"]

    def none_before(rows):
        return rows._replace(state={**rows.state, "lifecycle.step": np.zeros((len(rows.ids), 1), int)})

    reset = check(weir.edit_checkpoint(old, tmp_path / "reset", tables={"vectors": none_before}))
    assert reset.table("vectors").state["lifecycle.step"].dtype == np.uint32
    assert not reset.table("vectors").state["lifecycle.step"].any()
    copy = check(weir.write_checkpoint(tmp_path / "copy", {}, tables={
        name: (old.table(name).ids, old.table(name).values, old.table(name).state)
        for name in ("vectors", "vectors@candidates")}, logical_shards=64))
    assert same_rows(copy.table("vectors@candidates"), candidates)
    assert same_rows(copy.table("vectors"), old.table("vectors"))
    gone = check(weir.edit_checkpoint(old, tmp_path / "gone", tables={"vectors": None}))
    assert not gone._tables and gone.variables == old.variables


def test_state_is_replaced_dropped_and_added(trained, tmp_path):
    for name in ("two", "async"):
        old = weir.Checkpoint(trained / name)
        ones = np.ones_like(old.dense("deep.0.w"))
        new = check(weir.edit_checkpoint(old, tmp_path / name, state={
            "deep.0.w": {"moment1": ones, "step": 9.0}, "logit.w": None, "deep.0.b": {"moment2": None, "extra": 3.0}}))
        found = new.state("deep.0.w")
        assert list(found) == list(old.state("deep.0.w")) and found["step"] == 9.0
        np.testing.assert_array_equal(found["moment1"], ones)
        np.testing.assert_array_equal(found["moment2"], old.state("deep.0.w")["moment2"])
        assert new.state("logit.w") == {} and sorted(new.state("deep.0.b")) == ["extra", "moment1", "step"]
        assert new.digest().values == old.digest().values and new.figures == old.figures
        steps = {entry.element_begin for shard in new.manifest.shards for entry in shard.dense
                 if entry.variable == "deep.0.w.step"}
        assert steps == {entry.element_begin for shard in old.manifest.shards for entry in shard.dense
                         if entry.variable == "deep.0.w.step"}
    rates = old.state("@LR_SCHEDULE")
    slow = check(weir.edit_checkpoint(old, tmp_path / "rates", state={"@LR_SCHEDULE": {"learning_rate.step": 2**33}}))
    assert slow.state("@LR_SCHEDULE") == {**rates, "learning_rate.step": 2**33}
    assert check(weir.edit_checkpoint(old, tmp_path / "no", state={"@LR_SCHEDULE": None})).digest() != old.digest()


def test_a_variable_is_reshaped_added_and_removed(trained, tmp_path):
    old = weir.Checkpoint(trained / "two")
    wide = np.vstack([old.dense("deep.0.w"), np.zeros((3, 8))])
    with pytest.raises(ValueError, match=r"'deep.0.w' gets the shape \[9, 8\] instead of \[6, 8\], which its state "
                                         "'moment1' has; pass it too, .* or drop its state, state={'deep.0.w': None}"):
        weir.edit_checkpoint(old, tmp_path / "a", values={"deep.0.w": wide})
    with pytest.raises(ValueError, match="its state 'moment2' has"):
        weir.edit_checkpoint(old, tmp_path / "a", values={"deep.0.w": wide}, state={"deep.0.w": {"moment1": wide}})
    new = check(weir.edit_checkpoint(
        old, tmp_path / "b", values={"deep.0.w": wide, "deep.0.b": None, "new.w": [[1, 2.5]]},
        state={"deep.0.w": {"moment1": wide, "moment2": wide}, "new.w": {"step": 1.0}}))
    np.testing.assert_array_equal(new.dense("deep.0.w"), wide.astype(np.float32))
    assert new.state("deep.0.w")["step"] == old.state("deep.0.w")["step"]
    assert new.variables == sorted({*old.variables, "new.w"} - {"deep.0.b"})
    assert new.dense("new.w").tolist() == [[1, 2.5]] and new.state("new.w") == {"step": 1.0}
    without = check(weir.edit_checkpoint(old, tmp_path / "c", values={"deep.0.w": wide}, state={"deep.0.w": None}))
    assert without.state("deep.0.w") == {} and without.dense("deep.0.w").shape == (9, 8)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("seed", range(8))
def test_edits_of_any_parts_change_these_alone(trained, tmp_path, seed):
    draw = np.random.default_rng(seed)
    old = weir.Checkpoint(trained / ["local", "two", "async"][seed % 3])
    values = {name: draw.normal(size=old.dense(name).shape).astype(np.float32)
              for name in old.variables if draw.random() < 0.4}
    state = {name: {each: draw.random(np.shape(value)).astype(np.float32) if np.ndim(value) else 2.0
                    for each, value in old.state(name).items() if draw.random() < 0.5}
             for name in old.variables if draw.random() < 0.4}
    factor = np.float32(draw.choice([0, -1, 0.5]))
    new = check(weir.edit_checkpoint(old, tmp_path, values=values, state=state,
                                     tables={"vectors": lambda rows: rows._replace(values=rows.values * factor)}))
    assert new.variables == old.variables and new.tables == old.tables
    for name in old.variables:
        np.testing.assert_array_equal(new.dense(name), values.get(name, old.dense(name)))
        for each, value in old.state(name).items():
            np.testing.assert_array_equal(new.state(name)[each], state.get(name, {}).get(each, value))
    np.testing.assert_array_equal(new.table("vectors").values, old.table("vectors").values * factor)
    np.testing.assert_array_equal(new.table("vectors").state["moment1"], old.table("vectors").state["moment1"])
    for before, after in zip(old.manifest.shards, new.manifest.shards):
        assert (before.trainer_steps, before.table_steps) == (after.trainer_steps, after.table_steps)
        assert [(e.variable, e.element_begin, e.element_count) for e in before.dense] == [
            (e.variable, e.element_begin, e.element_count) for e in after.dense]


@pytest.mark.parametrize("edits, error, message", [
    ({"values": {"v": None}}, WeirError, "has no variable 'v'"),
    ({"state": {"v": {"m": [1]}}}, WeirError, "has no variable 'v'"),
    ({"state": {"w": {"m": None}}}, WeirError, "has no state 'm' of 'w'"),
    ({"values": {"w": None}, "state": {"w": {"step": 1.0}}}, ValueError, "state of 'w', which is to be removed"),
    ({"values": {"w": [["x"]]}}, TypeError, "'w': numbers were expected"),
    ({"values": {"w": np.full((6, 4), np.nan)}}, ValueError, r"'w'\[0, 0\] = nan is not finite"),
    ({"values": {"@LR_SCHEDULE": [1]}}, ValueError, "has no values; its state goes into state"),
    ({"values": [1]}, TypeError, "values is a dict by name, got list"),
    ({"values": {"t": [1]}}, ValueError, "'t' would be a variable and a table"),
    ({"tables": {"w": ([1], [[1]])}}, ValueError, "'w' would be a variable and a table"),
    ({"tables": {"s": None}}, WeirError, "has no table 's'"),
    ({"tables": {"s": lambda rows: rows}}, WeirError, "has no table 's'"),
    ({"tables": {"t": lambda rows: (rows.ids, rows.values)}}, TypeError,
     r"table 't' has state moment, and the function returned \(ids, values\); return \(ids, values, state\), with {}"),
    ({"tables": {"t": lambda rows: None}}, TypeError, "batches of table 't' are tuples .*, got NoneType"),
    ({"tables": {"t": lambda rows: rows._replace(ids=rows.ids * 0)}}, ValueError, "table 't': id 0 is there twice, in "
                                                                                 "rows 0 and 1"),
    ({"tables": {"t": lambda rows: rows._replace(values=rows.values / 0)}}, ValueError, "is not finite"),
    ({"tables": {"t": lambda rows: rows._replace(values=np.ones((len(rows.ids), len(rows.ids))))}}, ValueError,
     "table 't': rows get width 1 and state moment.2., and those of another file width 2 and state moment.2."),
])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_wrong_edit_writes_nothing(tmp_path, edits, error, message):
    with pytest.raises(error, match=message):
        weir.edit_checkpoint(GOLDEN, tmp_path / "new", **edits)
    assert not (tmp_path / "new").exists() or os.listdir(tmp_path / "new") == []


def test_damage_of_the_original_is_not_copied(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "old")
    for name in ("shard-00000", "shard-00001", "shard-00002"):
        path = tmp_path / "old/step-000000000042" / name
        whole = path.read_bytes()
        for at in range(64, len(whole), 23):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1:])
            with pytest.raises(DamagedFileError, match=name):
                weir.edit_checkpoint(tmp_path / "old", tmp_path / "new", values={"b": [1, 2, 3]})
        path.write_bytes(whole)
    assert not (tmp_path / "new").exists()


def test_bits_of_any_values_stay_where_nothing_is_changed(tmp_path):
    """NaNs with payloads, in values, state and rows, go through a copy, and through files that take them."""
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000, 1, 0x7F800001], np.uint32).view(np.float32)
    old = weir.write_checkpoint(
        tmp_path / "old", {"w": bits}, state={"w": {"m": bits[::-1]}},
        tables={"t": ([1, 2, 3], bits.reshape(3, 2), {"m": bits[::-1].reshape(3, 2)})}, finite=False)
    assert old.dense("w").tobytes() == bits.tobytes()
    new = check(weir.edit_checkpoint(old, tmp_path / "new", values={"v": [1.0]}))
    assert new.dense("w").tobytes() == bits.tobytes() and new.state("w")["m"].tobytes() == bits[::-1].tobytes()
    assert same_rows(new.table("t"), old.table("t"))
    assert new.table("t").values.tobytes() == bits.tobytes()
    with pytest.raises(ValueError, match=r"row 0 \(id 1\), column 0 = nan is not finite"):
        weir.write_rows(tmp_path / "a.rows", "t", [1, 2, 3], new.table("t").values)


# ---------------------------------------------------------------------------------------------------------- documents


def test_the_code_of_the_document_runs(tmp_path, monkeypatch):
    try:
        generate = programs.find("generate_ctr")
        programs.find("trainer")
    except ProgramsMissingError as error:
        pytest.skip(str(error))
    example = tmp_path / "examples/synthetic_ctr"
    example.mkdir(parents=True)
    shutil.copy(ROOT / "examples/synthetic_ctr/job.textproto", example)
    subprocess.run([str(generate), f"--output={example / 'data'}", "--rows=4000", "--eval_rows=400", "--files=2"],
                   check=True, stdout=subprocess.DEVNULL)
    monkeypatch.chdir(tmp_path)
    run("trainer", "--role=local", "--job=examples/synthetic_ctr/job.textproto")
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    section = text.partition("\n## Writing rows and checkpoints\n")[2].partition("\n## ")[0]
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, names)
    assert len(weir.RowFile("many.rows")) == 10000
    trained = weir.Checkpoint(example / "pretrained").table("field_vectors")
    assert np.abs(trained.rows(names["ids"], missing="zero")).max() > 0
    for name in ("mine", "silent", "halved", "shorter", "narrow"):
        check(weir.Checkpoint(name))
    for name, arguments in (("silent", []), ("narrow", ["--set", "table[0].width=4"])):
        run("trainer", "--role=predict", "--job=examples/synthetic_ctr/job.textproto", f"--checkpoint={name}",
            f"--output={name}.csv", *arguments)
        assert len((tmp_path / f"{name}.csv").read_text().splitlines()) >= 400
    old, halved = weir.Checkpoint("examples/synthetic_ctr/checkpoints"), weir.Checkpoint("halved")
    assert (halved.table("field_vectors").values == old.table("field_vectors").values / 2).all()
    assert len(weir.Checkpoint("shorter").table("field_vectors")) <= len(old.table("field_vectors"))
