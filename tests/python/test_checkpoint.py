"""Tests of weir.checkpoint, weir.row_file, weir.stable_hash and weir.feature_id, against files of the C++ programs."""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import subprocess
import time

import numpy as np
import pytest
from google.protobuf import text_format

from weir import programs, stable_hash
from weir.checkpoint import Checkpoint, NotFoundError, RowFile, checkpoints
from weir.digest import elements_digest, rows_digest
from weir.errors import DamagedFileError, ProgramsMissingError, WeirError
from weir.feature_id import feature_ids, missing_id, padding_id, rare_id
from weir.protos import checkpoint_pb2, row_file_pb2
from weir.rows import align
from weir.text_message import parse_text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/framework/checkpoint/testdata/golden"
USERS, ITEMS, CITIES = 300, 30, ("Oslo", "Rome", "Köln")

JOB = """
name: "small"
data {
  train { files: "train.csv" }
  eval { files: "eval.csv" }
  csv {
    column { name: "label" type: FLOAT }
    column { name: "user" type: ID }
    column { name: "item" type: ID }
    column { name: "city" type: TEXT output: "place" }
    column { name: "street" type: ID output: "place" }
    column { name: "seen" type: ID list: "|" }
    column { name: "price" type: FLOAT }
  }
  ids { shared: "item" shared: "seen" }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "user" ids: "place" table: "vectors" pooling: SUM } }
  layer { name: "item_sum" embedding { ids: "item" ids: "seen" table: "items" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "item_sum" input: "price" } }
  layer { name: "deep" mlp { input: "input" sizes: [8] activation: RELU } }
  layer { name: "logit" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
table {
  name: "items" width: 3 is_sparse: true is_distributed: true storage: BFLOAT16
  optimizer { adagrad { learning_rate: 0.05 } }
}
optimizer { adam { learning_rate: 0.01 } }
distribute { sync: true servers: 2 trainers: 1 }
train { epochs: 2 seed: 1 lanes: 2 eval_every_steps: 9 }
checkpoint { dir: "local" every_steps: 2 keep_last: 20 }
"""


def run(program: str, *arguments: str, cwd=None) -> str:
    done = subprocess.run([str(programs.find(program)), *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def need_programs() -> None:
    try:
        programs.find("trainer")
    except ProgramsMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with checkpoints of one job: "local" of one server, "two" of two, "async" with a schedule."""
    need_programs()
    directory = tmp_path_factory.mktemp("trained")
    draw = random.Random(1)
    for name, lines in (("train.csv", 600), ("eval.csv", 100)):
        with open(directory / name, "w", encoding="utf-8") as file:
            file.write("label,user,item,city,street,seen,price\n")
            for i in range(lines):
                user = i % USERS if name == "train.csv" else draw.randrange(USERS)
                seen = "|".join(str(draw.randrange(ITEMS)) for _ in range(draw.randrange(3)))
                file.write(f"{draw.randrange(2)},{user},{draw.randrange(ITEMS)},{draw.choice((*CITIES, ''))},"
                           f"{draw.randrange(5) - 2},{seen},{draw.random():.3f}\n")
    (directory / "job.textproto").write_text(JOB)
    run("trainer", "--role=local", "--job=job.textproto", cwd=directory)
    run("launch", "--servers=2", "--trainers=1", "--job=job.textproto", "--set", "checkpoint.dir=two", cwd=directory)
    run("launch", "--servers=2", "--trainers=2", "--job=job.textproto", "--set", "checkpoint.dir=async", "--set",
        "distribute.sync=false", "--set", "optimizer.schedule.exponential.decay_steps=3", "--set",
        "optimizer.schedule.exponential.decay_rate=0.5", cwd=directory)
    return directory


@pytest.fixture
def copy(tmp_path):
    """A copy of the golden checkpoint's directory."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return tmp_path / "golden" / "step-000000000042"


def manifest_of(directory: pathlib.Path) -> checkpoint_pb2.CheckpointManifest:
    return text_format.Parse((directory / "MANIFEST").read_text(), checkpoint_pb2.CheckpointManifest())


def write_manifest(directory: pathlib.Path, body: bytes) -> None:
    head = f"# weir checkpoint manifest, xxh3 {stable_hash.hash_bytes(body):016x}\n"
    (directory / "MANIFEST").write_bytes(head.encode() + body)


def digest_lines(checkpoint: Checkpoint) -> str:
    lines = [f"{name} values={d.values:016x} state={d.state:016x}" for name, d in checkpoint.digests().items()]
    total = checkpoint.digest()
    return "\n".join([*lines, f"values={total.values:016x} state={total.state:016x}", ""])


# ------------------------------------------------------------------------------------------------------------ hashes


def test_xxh3_has_its_published_values():
    assert stable_hash._hash_run(np.empty((1, 0), np.uint8), 0)[0] == 0x2D06800538D394C2
    secret = np.frombuffer(stable_hash._SECRET, np.uint8).reshape(1, -1)
    assert stable_hash._hash_run(secret, 0)[0] != stable_hash._hash_run(secret, 1)[0]


def test_xxh3_of_numpy_is_that_of_the_package():
    xxhash = pytest.importorskip("xxhash")
    data = np.random.default_rng(1).integers(0, 256, 5000, np.uint8)
    for seed in (0, 1, 0xDEADBEEFCAFEBABE):
        for length in [*range(300), 1023, 1024, 1025, 1088, 1089, 2047, 2048, 2049, 5000]:
            expected = xxhash.xxh3_64_intdigest(data[:length].tobytes(), seed)
            assert stable_hash._hash_run(data[:length].reshape(1, -1), seed)[0] == expected, (length, seed)
    for columns in (1, 4, 40, 400):
        rows = data[:columns * 12].view(np.float32).reshape(-1, columns)
        expected_rows = [xxhash.xxh3_64_intdigest(row.tobytes()) for row in rows]
        assert stable_hash.hash_rows(rows).tolist() == expected_rows


def test_texts_hash_equally_with_and_without_the_package(monkeypatch):
    texts = ["", "a", "Köln", b"\xff\x00", "x" * 300, "Rome"]
    with_package = stable_hash.hash_texts(texts)
    monkeypatch.setattr(stable_hash, "_xxhash", None)
    assert stable_hash.hash_texts(texts).tolist() == with_package.tolist()


def test_mix_id_is_the_finaliser_of_splitmix64():
    # The first two outputs of splitmix64 from the seed 0.
    assert stable_hash.mix_ids(np.array([0], np.int64)).tolist() == [0xE220A8397B1DCDAF]
    golden = np.array([0x9E3779B97F4A7C15], np.uint64).astype(np.int64)
    assert stable_hash.mix_ids(golden).tolist() == [0x6E789E6AA1B965F4]


# ------------------------------------------------------------------------------------------------------- checkpoints


def test_the_golden_checkpoint_has_its_values():
    checkpoint = Checkpoint(GOLDEN)
    checkpoint.verify()
    assert (checkpoint.step, checkpoint.job_name, checkpoint.figures) == (42, "toy", {"auc": 0.75})
    assert (checkpoint.variables, checkpoint.tables) == (["b", "w"], ["t"])
    np.testing.assert_array_equal(checkpoint.dense("w"), (np.arange(24, dtype=np.float32) / 2 - 3).reshape(6, 4))
    assert checkpoint.dense("b").tobytes() == np.array([-0.0, 1, 2], np.float32).tobytes()
    state = checkpoint.state("w")
    assert state["step"] == 7.0
    np.testing.assert_array_equal(state["moment1"], np.arange(100, 124, dtype=np.float32).reshape(6, 4))
    assert checkpoint.state("b") == {}
    table = checkpoint.table("t")
    rows = sorted((id, float(i)) for i, id in enumerate([5, -1, -2**63, 2**63 - 1, 0, 123456789012]))
    assert (len(table), table.width, table.state_widths) == (6, 2, {"moment": 2})
    assert table.ids.tolist() == [id for id, _ in rows] and table.ids.dtype == np.int64
    np.testing.assert_array_equal(table.values, [[x, -x] for _, x in rows])
    np.testing.assert_array_equal(table.state["moment"], [[10 + x, 20 + x] for _, x in rows])
    total = checkpoint.digest()
    assert (f"{total.values:016x}", f"{total.state:016x}") == ("e668949ec9d4ffdb", "f86ef3c561bdffed")


def test_the_golden_checkpoint_reads_equally_without_xxhash(monkeypatch):
    monkeypatch.setattr(stable_hash, "_xxhash", None)
    test_the_golden_checkpoint_has_its_values()


@pytest.mark.parametrize("name", ["local", "two", "async"])
def test_digests_are_those_of_the_program(trained, name):
    checkpoint = Checkpoint(trained / name)
    checkpoint.verify()
    assert digest_lines(checkpoint) == run("checkpoint", "digest", trained / name)
    assert checkpoint.digest() == (checkpoint.manifest.values_digest, checkpoint.manifest.state_digest)


def test_arrays_are_those_that_the_program_exports(trained, tmp_path):
    run("checkpoint", "export", trained / "two", "--state", f"--output={tmp_path / 'all.npz'}")
    exported = dict(np.load(tmp_path / "all.npz"))
    checkpoint = Checkpoint(trained / "two")
    for name in checkpoint.variables:
        np.testing.assert_array_equal(checkpoint.dense(name), exported.pop(name))
        for state, values in checkpoint.state(name).items():
            np.testing.assert_array_equal(values, exported.pop(f"{name}.{state}").reshape(np.shape(values)))
    for name in checkpoint.tables:
        table = checkpoint.table(name)
        np.testing.assert_array_equal(table.ids, exported.pop(f"{name}.ids"))
        np.testing.assert_array_equal(table.values, exported.pop(f"{name}.values"))
        np.testing.assert_array_equal(np.hstack(list(table.state.values())), exported.pop(f"{name}.state"))
    assert not exported


def test_one_server_and_two_leave_equal_arrays(trained):
    one, two = Checkpoint(trained / "local"), Checkpoint(trained / "two")
    assert (len(one.manifest.shards), len(two.manifest.shards)) == (1, 2)
    np.testing.assert_array_equal(one.table("vectors").values, two.table("vectors").values)
    np.testing.assert_array_equal(one.dense("deep.0.w"), two.dense("deep.0.w"))


def test_optimizer_state_has_the_names_of_its_rule(trained):
    checkpoint = Checkpoint(trained / "two")
    assert sorted(checkpoint.state("logit.w")) == ["moment1", "moment2", "step"]
    assert checkpoint.state("logit.w")["step"] == checkpoint.step
    assert {name: s.shape[1] for name, s in checkpoint.table("vectors").state.items()} == {
        "moment1": 4, "moment2": 4, "step": 1}
    assert {name: s.shape[1] for name, s in checkpoint.table("items").state.items()} == {"moment": 3}


def test_a_lifecycle_is_state_beside_the_rows(trained, tmp_path):
    run("trainer", "--role=local", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path}", "--set",
        "table[0].lifecycle.admit_after=6", "--set", "table[0].lifecycle.ttl_steps=100", cwd=trained)
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.tables == ["items", "vectors"]
    state = checkpoint.table("vectors").state
    assert state["lifecycle.step"].dtype == np.uint32 and 0 < state["lifecycle.step"].max() <= checkpoint.step
    candidates = checkpoint.table("vectors@candidates")
    assert set(feature_ids(range(USERS), "user").tolist()) == set(candidates.ids.tolist())
    # A user is in four lines of two epochs, of which two may be in one step.
    assert set(candidates.values.view(np.uint32).ravel().tolist()) <= {2, 3, 4}
    total = checkpoint.digest()
    assert f"values={total.values:016x} state={total.state:016x}" in run("checkpoint", "digest", tmp_path)


def test_values_held_in_16_bits_are_exact(trained):
    values = Checkpoint(trained / "two").table("items").values
    assert len(values) > 0 and not np.any(values.view(np.uint32) & 0xFFFF)


def test_schedules_are_state_of_their_own(trained):
    state = Checkpoint(trained / "async").state("@LR_SCHEDULE")
    assert state["transactions"] > 0 and state["learning_rate.step"] > 0 and 0 < state["learning_rate"] < 0.01
    assert "@LR_SCHEDULE" not in Checkpoint(trained / "async").variables


def test_the_newest_complete_step_is_taken(trained, tmp_path):
    shutil.copytree(trained / "two", tmp_path / "two")
    listed = checkpoints(tmp_path / "two")
    steps = [info.step for info in listed]
    assert steps == sorted(steps) and all(info.complete and info.time and info.job_name == "small" for info in listed)
    log = run("checkpoint", "list", tmp_path / "two")
    assert [int(s) for s in re.findall(r"step=(\d+)", log)] == steps
    with_figures = Checkpoint(tmp_path / "two", step=18)
    assert sorted(with_figures.figures) == ["auc", "loss"] and listed[steps.index(2)].figures == {}
    newest = tmp_path / "two" / f"step-{steps[-1]:012d}"
    with open(newest / "shard-00001", "r+b") as file:
        file.truncate(100)
    checkpoint = Checkpoint(tmp_path / "two")
    assert checkpoint.step == steps[-2] and "shard-00001 has 100 bytes" in checkpoint.refused[0]
    assert "the file was cut or changed" in checkpoints(tmp_path / "two")[-1].problem
    with pytest.raises(DamagedFileError, match="shard-00001 has 100 bytes"):
        Checkpoint(tmp_path / "two", step=steps[-1])
    with pytest.raises(DamagedFileError):
        Checkpoint(newest)


def test_an_open_checkpoint_outlives_its_removal(copy):
    checkpoint = Checkpoint(copy)
    table = checkpoint.table("t")
    shutil.rmtree(copy)
    assert len(table.values) == 6 and checkpoint.dense("w").shape == (6, 4)
    checkpoint.verify()


def test_a_directory_or_step_that_is_not_there_is_named(tmp_path, copy):
    with pytest.raises(WeirError, match="nowhere is no directory"):
        Checkpoint(tmp_path / "nowhere")
    with pytest.raises(WeirError, match="no complete checkpoint in"):
        Checkpoint(tmp_path)
    with pytest.raises(WeirError, match="no checkpoint of step 7; it has 42"):
        Checkpoint(copy.parent, step=7)
    with pytest.raises(WeirError, match="is the checkpoint of step 42, not of 7"):
        Checkpoint(copy, step=7)
    with pytest.raises(WeirError, match="is no directory"):
        checkpoints(copy / "MANIFEST")


def test_a_name_that_is_not_there_brings_the_nearest():
    checkpoint = Checkpoint(GOLDEN)
    with pytest.raises(NotFoundError, match="no variable 'v'.*b, w|did you mean"):
        checkpoint.dense("v")
    with pytest.raises(KeyError, match=r"it is a table: use table\('t'\)"):
        checkpoint.dense("t")
    with pytest.raises(WeirError, match=r"it is a dense variable: use dense\('w'\)"):
        checkpoint.table("w")


# -------------------------------------------------------------------------------------------------------------- rows


def test_rows_come_in_the_order_of_the_ids(trained):
    table = Checkpoint(trained / "two").table("vectors")
    at = np.array([[5, 3], [3, 0]])
    rows = table.rows(table.ids[at])
    assert rows.shape == (2, 2, 4) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows, table.values[at])
    np.testing.assert_array_equal(table.rows(table.ids.astype(np.uint64)), table.values)
    assert table.rows([]).shape == (0, 4)


def test_columns_that_a_run_has_added_with_zeros_are_known(copy):
    assert Checkpoint(copy).table("t").zero_columns == (0, 0)
    manifest = manifest_of(copy)
    entries = [e for shard in manifest.shards for e in shard.tables if e.table == "t"]
    for entry in entries:
        entry.zero_begin, entry.zero_end = 1, 2
    write_manifest(copy, text_format.MessageToString(manifest).encode())
    assert Checkpoint(copy).table("t").zero_columns == (1, 2)
    entries[-1].zero_end = 1
    write_manifest(copy, text_format.MessageToString(manifest).encode())
    with pytest.raises(DamagedFileError, match="table 't' has two layouts"):
        Checkpoint(copy).table("t")
    entries[-1].zero_end = 3
    write_manifest(copy, text_format.MessageToString(manifest).encode())
    with pytest.raises(DamagedFileError, match="widths that make no sense"):
        Checkpoint(copy)


def test_missing_rows_are_an_error_or_filled_in():
    table = Checkpoint(GOLDEN).table("t")
    with pytest.raises(NotFoundError, match="no row of 2 of 3 ids, such as 6, 7"):
        table.rows([5, 7, 6])
    assert np.isnan(table.rows([7, 5], missing="nan")).tolist() == [[True, True], [False, False]]
    assert table.rows([7], missing="zero").tolist() == [[0, 0]]
    with pytest.raises(ValueError, match="missing is 'error', 'nan' or 'zero', got 'none'"):
        table.rows([7], missing="none")
    with pytest.raises(TypeError, match="ids are integers, got float64"):
        table.rows([1.0])


def test_only_chunks_with_the_ids_are_read(tmp_path):
    directory, ids, values = write_table(tmp_path, rows=4000, width=2, rows_per_chunk=100)
    table = Checkpoint(directory).table("big")
    np.testing.assert_array_equal(table.rows(ids[[7, 5]]), values[[7, 5]])
    assert sum("ids" in chunk.__dict__ for chunk in table._chunks) <= 2 < len(table._chunks)


def test_chunks_hold_every_row_once(trained):
    table = Checkpoint(trained / "two").table("vectors")
    batches = list(table.chunks())
    ids = np.concatenate([batch.ids for batch in batches])
    order = np.argsort(ids)
    np.testing.assert_array_equal(ids[order], table.ids)
    np.testing.assert_array_equal(np.concatenate([b.values for b in batches])[order], table.values)
    np.testing.assert_array_equal(np.concatenate([b.state["moment2"] for b in batches])[order],
                                  table.state["moment2"])


def test_rows_are_found_by_the_raw_ids_of_the_data(trained):
    checkpoint = Checkpoint(trained / "two")
    expected = np.concatenate([
        feature_ids(range(USERS), "user"), feature_ids(CITIES, "place", "city"),
        feature_ids(np.arange(-2, 3), "place", "street"), [missing_id("place", "city")]])
    assert sorted(expected.tolist()) == checkpoint.table("vectors").ids.tolist()
    expected = np.append(feature_ids(np.arange(ITEMS), "item", shared=True), missing_id("seen", shared=True))
    assert sorted(expected.tolist()) == checkpoint.table("items").ids.tolist()


def test_rare_and_padding_values_have_ids_of_their_own(trained, tmp_path):
    run("trainer", "--role=local", "--job=job.textproto", "--set", f"checkpoint.dir={tmp_path}", "--set",
        "data.ids.min_count=3", cwd=trained)  # every user is there twice
    table = Checkpoint(tmp_path).table("vectors")
    assert rare_id("user") in table.ids and not np.isin(feature_ids(range(USERS), "user"), table.ids).any()
    assert np.isin(feature_ids(CITIES, "place", "city"), table.ids).all()
    # SaltId(StableHash("padding"), 0) of framework/base/feature_id.h.
    key = stable_hash.mix_ids(np.array([0])) ^ np.uint64(stable_hash.hash_bytes(b"padding"))
    assert padding_id(0) == int(stable_hash.mix_ids(key).astype(np.int64)[0])


def test_feature_ids_take_integers_and_texts_of_any_shape():
    assert feature_ids(np.array([[1, 2]], np.uint8), "user").shape == (1, 2)
    assert feature_ids(["a", "b"], "user").tolist() == feature_ids(np.array(["a", "b"]), "user").tolist()
    assert feature_ids([b"a"], "user").tolist() == feature_ids(np.array(["a"], object), "user").tolist()
    assert feature_ids(2**64 - 1, "user") == feature_ids(-1, "user")
    assert feature_ids([], "user").shape == (0,)
    with pytest.raises(TypeError, match="ids are integers"):
        feature_ids([1.5], "user")


# ------------------------------------------------------------------------------------------------------- damaged files


def outcome(read):
    """Returns what `read` returns, or None after an error of this package; any other error fails the test."""
    try:
        return read()
    except WeirError as error:
        assert str(error)
        return None


def read_all(directory):
    """Returns the shapes of all arrays of a checkpoint after reading them, and whether verify found no damage."""
    checkpoint = Checkpoint(directory)
    shapes = [checkpoint.dense(name).shape for name in checkpoint.variables]
    for name in checkpoint.variables:
        shapes += [np.shape(s) for s in checkpoint.state(name).values()]
    for name in checkpoint.tables:
        table = checkpoint.table(name)
        table.rows([0, 5, 7], missing="zero")
        outcome(lambda: shapes.extend(s.shape for s in (table.ids, table.values, *table.state.values())))
    checkpoint.digest()
    return shapes, outcome(lambda: checkpoint.verify() or True)


@pytest.mark.parametrize("file", ["MANIFEST", "shard-00000", "shard-00002"])
def test_a_cut_file_is_refused(copy, file):
    whole = (copy / file).read_bytes()
    for size in sorted({0, 1, 63, 64, 65, len(whole) - 1, *range(0, len(whole), 61)}):
        (copy / file).write_bytes(whole[:size])
        with pytest.raises(DamagedFileError, match=file):
            Checkpoint(copy)
    (copy / file).unlink()
    with pytest.raises(DamagedFileError, match=f"{file} is missing"):
        Checkpoint(copy)


def test_a_changed_byte_is_found(copy):
    shapes, verified = read_all(copy)
    assert verified
    for name in ("MANIFEST", "shard-00000", "shard-00001"):
        whole = (copy / name).read_bytes()
        for at in [*range(0, 16), *range(16, len(whole), 7)]:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << at % 8
            (copy / name).write_bytes(damaged)
            found = outcome(lambda: read_all(copy))
            if name == "MANIFEST":
                assert found is None, at
            else:
                assert found is None or found[1] is None, (name, at)
        (copy / name).write_bytes(whole)
    assert read_all(copy) == (shapes, True)


def test_nonsense_under_a_right_checksum_is_an_error_or_the_same_shapes(copy):
    """Numbers, names and lines of MANIFEST are changed, and its checksum made again."""
    body = (copy / "MANIFEST").read_bytes().partition(b"\n")[2]
    lines = body.split(b"\n")
    draw = random.Random(3)
    numbers = [b"0", b"1", b"-1", b"3", b"64", b"2147483647", b"4294967296", b"9223372036854775807", b"1e30", b'"x"']
    fine = 0
    for _ in range(400):
        changed = list(lines)
        at = draw.randrange(len(changed))
        key, colon, _ = changed[at].partition(b": ")
        kind = draw.randrange(4)
        if kind == 0:
            del changed[at]
        elif kind == 1:
            changed.insert(at, changed[draw.randrange(len(changed))])
        elif colon:
            changed[at] = key + b": " + draw.choice(numbers)
        else:
            changed[at] = bytes(draw.randrange(256) for _ in range(8))
        write_manifest(copy, b"\n".join(changed))
        fine += outcome(lambda: read_all(copy)) is not None
    assert 10 < fine < 390


def test_a_dimension_beyond_all_bounds_is_an_error(copy):
    manifest = manifest_of(copy)
    for dims in ([2**62, 2**62], [0, 2**62, 2**62], [1] * 70, [-6, -4]):
        for entry in (e for shard in manifest.shards for e in shard.dense if e.variable == "w"):
            entry.whole_dims[:] = dims
        write_manifest(copy, text_format.MessageToString(manifest).encode())
        with pytest.raises(DamagedFileError):
            Checkpoint(copy).dense("w")


@pytest.mark.parametrize("damage, message", [
    ({"format_version": 3, "build": "later"}, r"MANIFEST has format 3; this package reads up to 2.*later"),
    ({"step": -1}, "speaks of step -1"),
])
def test_a_manifest_says_what_is_wrong_with_it(copy, damage, message):
    manifest = manifest_of(copy)
    for field, value in damage.items():
        setattr(manifest, field, value)
    # A newer build may write fields that this one does not know.
    write_manifest(copy, text_format.MessageToString(manifest).encode() + b"later_field: 3\n")
    with pytest.raises(DamagedFileError, match=message):
        Checkpoint(copy)


def test_a_shard_file_says_what_is_wrong_with_it(copy):
    data = bytearray((copy / "shard-00001").read_bytes())
    (copy / "shard-00001").write_bytes(data[:8] + b"\2" + data[9:])
    with pytest.raises(DamagedFileError, match="shard-00001 has format 2; this package reads up to 1"):
        Checkpoint(copy)
    (copy / "shard-00001").write_bytes(b"X" + data[1:])
    with pytest.raises(DamagedFileError, match="shard-00001 is no shard file"):
        Checkpoint(copy)
    (copy / "shard-00001").write_bytes(data[:-1] + b"\x77")
    with pytest.raises(DamagedFileError, match="shard-00001 has checksum .*bytes of it have changed"):
        Checkpoint(copy).verify()


def test_a_checkpoint_of_one_host_says_how_to_complete_it(copy):
    manifest = manifest_of(copy)
    manifest.per_host = True
    write_manifest(copy, text_format.MessageToString(manifest).encode())
    (copy / "shard-00002").unlink()
    with pytest.raises(DamagedFileError, match="copy the shards of all hosts into one"):
        Checkpoint(copy)


def test_a_manifest_cannot_lead_out_of_its_directory(copy):
    for name in ("../shard-00000", "", ".hidden", "a\0b"):
        manifest = manifest_of(copy)
        manifest.shards[0].file.name = name
        write_manifest(copy, text_format.MessageToString(manifest).encode())
        with pytest.raises(DamagedFileError, match="a plain name was expected"):
            Checkpoint(copy)


def test_bytes_that_are_claimed_twice_are_an_error(copy):
    good = manifest_of(copy)
    for field in "dense", "tables":
        manifest = manifest_of(copy)
        entries = getattr(manifest.shards[0], field)
        entries.append(entries[0])
        write_manifest(copy, text_format.MessageToString(manifest).encode())
        with pytest.raises(DamagedFileError, match="share byte"):
            Checkpoint(copy)
    good.shards.append(good.shards[0])
    write_manifest(copy, text_format.MessageToString(good).encode())
    with pytest.raises(DamagedFileError, match="names the file 'shard-00000' twice"):
        Checkpoint(copy)


@pytest.mark.parametrize("opening", [b"a {", b"a: <", b"shards {", b"a: [{"])
def test_a_manifest_of_any_nesting_is_an_error(copy, opening):
    write_manifest(copy, b"step: 1 " + 20000 * opening)
    with pytest.raises(DamagedFileError, match="MANIFEST"):
        Checkpoint(copy)


def test_a_text_of_any_nesting_is_an_error():
    with pytest.raises(text_format.ParseError, match="nested too deeply"):
        parse_text(20000 * "a {", checkpoint_pb2.CheckpointManifest(), allow_unknown_field=True)


def test_files_that_are_no_regular_ones_are_refused_at_once(copy):
    for name in ("shard-00000", "MANIFEST"):
        (copy / name).unlink()
        os.mkfifo(copy / name)
        with pytest.raises(WeirError, match=name):
            Checkpoint(copy)
        (copy / name).unlink()
        (copy / name).symlink_to("/dev/zero")
        with pytest.raises(WeirError, match=name):
            Checkpoint(copy)


def test_a_row_that_is_there_twice_is_an_error(copy):
    number, entry = next((i, e) for i, shard in enumerate(manifest_of(copy).shards) for e in shard.tables
                         if e.row_count > 1 and e.table == "t")
    path = copy / f"shard-{number:05d}"
    data = bytearray(path.read_bytes())
    data[entry.offset + 8:entry.offset + 16] = data[entry.offset:entry.offset + 8]
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="table 't': row .* is there twice"):
        Checkpoint(copy).table("t").ids


# ---------------------------------------------------------------------------------------------------------- row files


@pytest.fixture(scope="module")
def row_files(trained, tmp_path_factory):
    directory = tmp_path_factory.mktemp("rows")
    for name, arguments in {
            "all": [trained / "two", "--state"],
            "plain": [trained / "two"],
            "changes": [trained / "two", "--since=8"],
            # Backwards: the earlier step has fewer users.
            "removed": [trained / "two", "--step=2", f"--since={trained / 'two' / 'step-000000000018'}", "--state"],
    }.items():
        for ending in ("rows", "npz"):
            run("checkpoint", "export", *arguments, "--table=vectors", f"--output={directory / name}.{ending}")
    return directory


@pytest.mark.parametrize("name", ["all", "plain", "changes", "removed"])
def test_a_row_file_has_the_arrays_of_the_export(row_files, name):
    rows = RowFile(row_files / f"{name}.rows")
    rows.verify()
    exported = np.load(row_files / f"{name}.npz")
    np.testing.assert_array_equal(rows.ids, exported["vectors.ids"])
    np.testing.assert_array_equal(rows.values, exported["vectors.values"])
    assert (rows.name, rows.width, rows.job_name, len(rows)) == ("vectors", 4, "small", len(rows.ids))
    if rows.state_widths:
        np.testing.assert_array_equal(np.hstack(list(rows.state.values())), exported["vectors.state"])
    if rows.since_step is not None:
        np.testing.assert_array_equal(rows.removed, exported["vectors.removed"])
    printed = run("checkpoint", "rows", row_files / f"{name}.rows")
    assert f"values={rows_digest(rows).values:016x}" in printed
    np.testing.assert_array_equal(rows.rows(rows.ids[::-3]), rows.values[::-3])


def test_a_row_file_knows_its_steps(row_files):
    assert (RowFile(row_files / "all.rows").step, RowFile(row_files / "all.rows").since_step) == (19, None)
    removed = RowFile(row_files / "removed.rows")
    assert (removed.step, removed.since_step) == (2, 18) and len(removed.removed) > 100


def test_a_damaged_row_file_is_refused_or_reads_equally(row_files, tmp_path):
    whole = (row_files / "removed.rows").read_bytes()
    expected = RowFile(row_files / "removed.rows")
    path = tmp_path / "damaged.rows"

    def read():
        rows = RowFile(path)
        rows.verify()
        return rows.ids.tobytes(), rows.values.tobytes(), rows.removed.tobytes(), [*rows.state]

    same = (expected.ids.tobytes(), expected.values.tobytes(), expected.removed.tobytes(), [*expected.state])
    for size in sorted({0, 1, 63, 64, 87, 88, len(whole) - 1, len(whole) - 24, *range(0, len(whole), 501)}):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedFileError, match="damaged.rows"):
            read()
    for at in [*range(80), *range(80, len(whole), 97), *range(len(whole) - 200, len(whole))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        assert outcome(read) in (None, same), at


@pytest.mark.filterwarnings("ignore:Unexpected end-group tag")
def test_nonsense_in_the_description_of_a_row_file_is_an_error(row_files, tmp_path):
    whole = (row_files / "removed.rows").read_bytes()
    about = RowFile(row_files / "removed.rows").description
    size = int.from_bytes(whole[-24:-16], "little")
    path = tmp_path / "damaged.rows"

    def write(description: bytes) -> None:
        end = len(description).to_bytes(8, "little") + stable_hash.hash_bytes(description).to_bytes(8, "little")
        path.write_bytes(whole[:-24 - size] + description + end + b"WEIRROWE")

    def read():
        rows = RowFile(path)
        return rows.ids, rows.values, rows.state, rows.removed, rows.rows([1], missing="nan"), rows.verify()

    for field, values in {"width": [0, -1, 5, 2**31 - 1], "logical_shards": [0, -4], "rows": [0, 2**60],
                          "removed": [-1], "format_version": [2]}.items():
        for value in values:
            changed = row_file_pb2.RowFile()
            changed.CopyFrom(about)
            setattr(changed, field, value)
            write(changed.SerializeToString())
            with pytest.raises(DamagedFileError):
                read()
    for field in ("offset", "bytes", "rows", "removed"):
        for value in (-1, -64, 1, 65, 2**62, 2**63 - 64):
            changed = row_file_pb2.RowFile()
            changed.CopyFrom(about)
            setattr(changed.chunks[0], field, value)
            write(changed.SerializeToString())
            with pytest.raises(DamagedFileError):
                read()
    changed = row_file_pb2.RowFile()
    changed.CopyFrom(about)
    changed.chunks.append(about.chunks[0])
    changed.rows += about.chunks[0].rows
    changed.removed += about.chunks[0].removed
    write(changed.SerializeToString())
    with pytest.raises(DamagedFileError, match="share bytes"):
        read()
    draw = random.Random(2)
    for _ in range(300):
        damaged = bytearray(about.SerializeToString())
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        write(bytes(damaged))
        outcome(read)


def test_a_newer_row_file_names_both_formats(row_files, tmp_path):
    whole = (row_files / "all.rows").read_bytes()
    (tmp_path / "new.rows").write_bytes(whole[:8] + b"\5" + whole[9:])
    with pytest.raises(DamagedFileError, match="new.rows has format 5; this package reads up to 1"):
        RowFile(tmp_path / "new.rows")
    with pytest.raises(DamagedFileError, match="is no row file"):
        RowFile(GOLDEN / "step-000000000042" / "shard-00000")
    with pytest.raises(DamagedFileError, match="is missing"):
        RowFile(tmp_path / "nowhere.rows")


def test_the_code_of_the_documents_runs(trained, row_files, tmp_path, monkeypatch):
    shutil.copytree(trained / "two", tmp_path / "checkpoints")
    shutil.copy(row_files / "changes.rows", tmp_path / "vectors.120000-121000.rows")
    monkeypatch.chdir(tmp_path)
    for document in ("checkpoint_format.md", "row_files.md"):
        code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
        assert len(code) == 1
        stored = []
        exec(code[0], {"store": lambda ids, values: stored.append(len(values))})
    assert sum(stored) > 0


# ------------------------------------------------------------------------------------------------------------- speed


def write_table(directory, rows: int, width: int, rows_per_chunk: int, shards: int = 4096):
    """Writes a checkpoint with the table "big" and one state of its width, by docs/checkpoint_format.md. Returns its
    directory, and ids and values in the order of the file, which is that of logical shards."""
    draw = np.random.default_rng(5)
    ids = np.unique(draw.integers(-2**63, 2**63, rows, np.int64))
    of = stable_hash.logical_shards(ids, shards)
    order = np.argsort(of, kind="stable")
    ids, of = ids[order], of[order]
    floats = draw.random((len(ids), 2 * width), np.float32)
    step = directory / "step-000000000001"
    step.mkdir()
    manifest = checkpoint_pb2.CheckpointManifest(format_version=1, job="big", step=1)
    shard = manifest.shards.add()
    with open(step / "shard-00000", "wb") as file:
        file.write(b"WEIRSHRD\1".ljust(64, b"\0"))
        for at in range(0, len(ids), rows_per_chunk):
            part = slice(at, at + rows_per_chunk)
            file.write(b"\0" * (align(file.tell()) - file.tell()))
            shard.tables.add(table="big", width=width, state_width=width, logical_shards=shards,
                             row_count=len(ids[part]), offset=file.tell(), state_names=["moment"],
                             state_widths=[width], shard_begin=of[part][0], shard_end=of[part][-1] + 1)
            file.write(ids[part].tobytes())
            file.write(b"\0" * (align(file.tell()) - file.tell()))
            file.write(floats[part].tobytes())
    data = (step / "shard-00000").read_bytes()
    shard.file.name, shard.file.bytes, shard.file.checksum = "shard-00000", len(data), stable_hash.hash_bytes(data)
    write_manifest(step, text_format.MessageToString(manifest).encode())
    return directory, ids, floats[:, :width]


def test_a_million_rows_read_in_reasonable_time(tmp_path):
    directory, ids, values = write_table(tmp_path, rows=1_000_000, width=8, rows_per_chunk=116_000)
    asked = np.random.default_rng(6).choice(len(ids), 1000, replace=False)

    def timed(what, count, call):
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        print(f"{what}: {seconds * 1e3:.1f} ms, {count / seconds:.3g} rows/s")
        return result

    checkpoint = timed("open", len(ids), lambda: Checkpoint(directory))
    ten = timed("10 rows", 10, lambda: checkpoint.table("big").rows(ids[asked[:10]]))
    table = checkpoint.table("big")
    first = timed("1,000 rows, first call", 1000, lambda: table.rows(ids[asked]))
    again = timed("1,000 rows, again", 1000, lambda: table.rows(ids[asked]))
    many = timed("all rows by id", len(ids), lambda: table.rows(ids))
    order = np.argsort(ids)
    np.testing.assert_array_equal(timed("ids", len(ids), lambda: table.ids), ids[order])
    np.testing.assert_array_equal(timed("values", len(ids), lambda: table.values), values[order])
    np.testing.assert_array_equal(ten, values[asked[:10]])
    np.testing.assert_array_equal(first, values[asked])
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(many, values)
    timed("verify", len(ids), checkpoint.verify)
    digest = timed("digest", len(ids), checkpoint.digest)
    need_programs()
    printed = timed("checkpoint digest", len(ids), lambda: run("checkpoint", "digest", directory))
    assert f"values={digest.values:016x} state={digest.state:016x}" in printed


def test_a_dense_digest_does_not_depend_on_pieces():
    values = np.random.default_rng(7).random(100_000, np.float32)
    whole = elements_digest("w", 0, values)
    assert (elements_digest("w", 0, values[:33]) + elements_digest("w", 33, values[33:])) % 2**64 == whole
