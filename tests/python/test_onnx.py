"""Exported ONNX models: their scores are those of `--role=predict`, with ids that the training has not seen.

NumPy runs the models (onnx_numpy.py); the tests of onnx and onnxruntime are skipped where these are not installed.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_numpy
import pytest

import weir
from weir import initial_values, programs
from weir.errors import DamagedFileError, ProgramsMissingError, WeirError
from weir.onnx import graph as onnx_graph
from weir.onnx import rows as onnx_rows
from weir.onnx.export import program_of
from weir.protos import program_pb2

try:
    programs.find("trainer")
except ProgramsMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

DATA = """
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "user" output: "cat" }
    slot { name: "item" output: "cat" }
    slot { name: "kind" }
    slot { name: "tags" }
    slot { name: "seen" }
    slot { name: "dense" type: FLOAT dim: 3 }
    slot { name: "picture" type: FLOAT dim: 36 }
  }
  derived { name: "pair" cross { of: "user" of: "item" } }
  ids { shared: "seen" empty: ZERO }
  dense {
    transform: STANDARDIZE
    column { index: 1 transform: LOG1P }
    column { index: 2 transform: BUCKETIZE boundaries: -0.5 boundaries: 0.25 boundaries: 1 }
  }
  batch_size: 64
}
optimizer { adam { learning_rate: 0.02 } }
train { epochs: 1 seed: 7 lanes: 2 threads: 1 }
checkpoint { dir: "checkpoints" }
"""

# A job has those tables that it reads.
TABLES = """
table {
  name: "table_t" width: 6 is_sparse: true is_distributed: true
  initializer { uniform { min: -0.5 max: 0.7 } }
}

table {
  name: "table_g" width: 5 is_sparse: true is_distributed: true
  initializer { gaussian { mean: 0.1 stddev: 0.3 } }
}

table { name: "table_c" width: 4 is_sparse: true is_distributed: true initializer { constant { value: 0.25 } } }

table {
  name: "table_h" width: 7 is_sparse: true is_distributed: true storage: BFLOAT16
  initializer { xavier { fan_in: 3 fan_out: 4 } }
}

table { name: "table_m" width: 3 dict_size: 20 is_sparse: true }

table { name: "table_d" width: 4 dict_size: 20 }

table {
  name: "table_s" width: 6 is_sparse: true is_distributed: true initializer { uniform { min: 0 max: 1 } }
  segment { width: 1 initializer { constant { value: 2 } } }
  segment { width: 3 optimizer { adagrad { learning_rate: 0.1 } } }
  segment { width: 2 after: 3 }
}
"""

# Layers whose outputs, side by side, are the input of the last layer.
MODELS = {
    "tables": (["a", "b0", "d", "e", "f0", "g0", "h0", "i", "j"], """
      layer { name: "a" embedding { ids: "cat" table: "table_t" pooling: SQRT_N } }
      layer { name: "b" embedding { ids: "tags" ids: "kind" table: "table_g" pooling: SQRT_N per_slot: true } }
      layer { name: "b0" reduce_sum { input: "b" axis: 1 } }
      layer { name: "d" embedding { ids: "cat" table: "table_c" pooling: MEAN } }
      layer { name: "e" embedding { ids: "tags" table: "table_c" pooling: MEAN } }
      layer { name: "f" embedding { ids: "kind" table: "table_h" } }
      layer { name: "f0" reshape { input: "f" dims: 7 } }
      layer { name: "g" embedding { ids: "seen" table: "table_t" padding_id: 3 sequence: 4 } }
      layer { name: "g0" reduce_sum { input: "g" axis: 2 } }
      layer { name: "h" embedding { ids: "cat" table: "table_s" } }
      layer { name: "h0" reshape { input: "h" dims: 12 } }
      layer { name: "i" embedding { ids: "seen" table: "table_c" padding_id: 3 pooling: SUM } }
      layer { name: "j" embedding { ids: "pair" table: "table_g" pooling: SUM } }
    """),
    "dense": (["add", "ln", "pr", "di", "cr", "bl", "ci", "fm", "dp", "wide.0", "wide.1", "sm", "sp.1"], """
      layer { name: "v" embedding { ids: "cat" table: "table_t" } }
      layer { name: "k" embedding { ids: "kind" table: "table_g" pooling: SUM } }
      layer { name: "x" mlp { input: "dense" sizes: [6] activation: TANH dropout: 0.3 } }
      layer { name: "y" fc { input: "v" input: "x" size: 6 activation: SIGMOID } }
      layer { name: "sq" square { input: "y" } }
      layer { name: "sc" scale { input: "x" scale: 0.5 bias: 0.25 } }
      layer { name: "mu" mul { input: "sq" input: "sc" } }
      layer { name: "ex" scale { input: "sq" bias: 1 } }
      layer { name: "dv" div { input: "mu" input: "ex" } }
      layer { name: "sb" sub { input: "dv" input: "sc" } }
      layer { name: "ac" activation { input: "sb" type: RELU } }
      layer { name: "add" add { input: "ac" input: "y" input: "x" } }
      layer { name: "ln" layer_norm { input: "add" } }
      layer { name: "pr" prelu { input: "x" } }
      layer { name: "di" dice { input: "add" } }
      layer { name: "cr" cross { input: "x" layers: 2 rank: 2 } }
      layer { name: "bl0" bilinear { input: "v" input: "x" type: INTERACTION } }
      layer { name: "bl1" bilinear { input: "v" input: "x" type: ALL } }
      layer { name: "bl2" bilinear { input: "v" input: "x" type: EACH } }
      layer { name: "bl3" add { input: "bl0" input: "bl1" input: "bl2" } }
      layer { name: "bl" reduce_sum { input: "bl3" axis: 1 } }
      layer { name: "ci" cin { input: "v" input: "x" sizes: [4, 2] split_half: true } }
      layer { name: "fm" fm_interaction { input: "v" } }
      layer { name: "dp" dot_interaction { input: "v" input: "y" self_interaction: true } }
      layer { name: "wide" mmoe { input: "x" experts: 2 sizes: [3] tasks: 2 } }
      layer { name: "sm" activation { input: "y" type: SOFTMAX } }
      layer { name: "sp" split { input: "k" sizes: [2, 3] } }
    """),
    "sequences": (["p0", "p1", "p2", "p3", "p4", "p5", "ap", "sa", "sb", "gl", "gp", "ma", "mb"], """
      layer { name: "q" embedding { ids: "kind" table: "table_t" pooling: SUM } }
      layer { name: "seq" embedding { ids: "seen" table: "table_t" sequence: 5 } }
      layer { name: "p0" sequence_pool { input: "seq" type: SUM } }
      layer { name: "p1" sequence_pool { input: "seq" type: MEAN } }
      layer { name: "p2" sequence_pool { input: "seq" type: SQRT_N } }
      layer { name: "p3" sequence_pool { input: "seq" type: MAX } }
      layer { name: "p4" sequence_pool { input: "seq" type: FIRST } }
      layer { name: "p5" sequence_pool { input: "seq" type: LAST } }
      layer { name: "ap" attention_pool { query: "q" sequence: "seq" sizes: [4] softmax: true } }
      layer { name: "pos" add_positions { input: "seq" from_end: true } }
      layer { name: "pos2" add_positions { input: "pos" length: "seq.length" } }
      layer { name: "at" self_attention { input: "pos2" heads: 2 causal: true length: "seq.length" } }
      layer { name: "sa" reduce_sum { input: "at" axis: 1 } }
      layer { name: "cat2" embedding { ids: "cat" table: "table_t" } }
      layer { name: "at2" self_attention { input: "cat2" heads: 3 length: "" } }
      layer { name: "sb" reduce_sum { input: "at2" axis: 1 } }
      layer { name: "gl" gru { input: "seq" size: 3 } }
      layer { name: "gs" gru { input: "seq" size: 4 sequence: true } }
      layer { name: "gp" sequence_pool { input: "gs" length: "seq.length" } }
      layer { name: "ma" embedding { ids: "seen" table: "table_m" pooling: SUM padding_id: 3 } }
      layer { name: "mb" embedding { ids: "seen" table: "table_d" pooling: MEAN } }
    """),
    "pictures": (["flat"], """
      layer { name: "in" reshape { input: "picture" dims: [1, 6, 6] } }
      layer { name: "c1" conv2d { input: "in" filters: 3 kernel: 3 padding: 1 activation: RELU } }
      layer { name: "n1" batch_norm { input: "c1" activation: TANH } }
      layer { name: "m1" pool2d { input: "n1" kernel: 2 } }
      layer { name: "a1" pool2d { input: "m1" type: AVERAGE kernel: 3 stride: 2 padding: 1 } }
      layer { name: "flat" reshape { input: "a1" dims: 12 } }
    """),
}

def job_text(model: str) -> str:
    inputs, layers = MODELS[model]
    joined = "".join(f'input: "{each}" ' for each in inputs)
    tables = [each for each in TABLES.split("\n\n") if each.split('"')[1] in layers]
    return f"""name: "{model}" {DATA} {"".join(tables)}
model {{ {layers}
  layer {{ name: "all" concat {{ {joined} }} }}
  layer {{ name: "logit" fc {{ input: "all" size: 1 }} }}
  loss {{ sigmoid_cross_entropy {{ logits: "logit" label: "label" }} }}
}}
"""


def write_data(directory: pathlib.Path) -> None:
    """Writes lines with many values that evaluation alone has."""
    draw = random.Random(5)

    def line(values: int) -> str:
        def ids(count: int, weighted: bool = False) -> str:
            drawn = [draw.randrange(values) for _ in range(count)]
            texts = [f"{each}:{draw.uniform(0.5, 2):.3f}" if weighted else str(each) for each in drawn]
            return " ".join([str(count), *texts])

        parts = ["1 " + draw.choice("01"), ids(1), ids(1), ids(1), ids(draw.randrange(4), weighted=True),
                 ids(draw.randrange(9)), " ".join(["3", *(f"{draw.gauss(0, 2):.4f}" for _ in range(3))])]
        return " ".join([*parts, "36", *(f"{draw.random():.3f}" for _ in range(36))])

    (directory / "train.txt").write_text("".join(line(12) + "\n" for _ in range(600)))
    (directory / "eval.txt").write_text("".join(line(20) + "\n" for _ in range(150)))


@pytest.fixture(name="trained", scope="module")
def fixture_trained(tmp_path_factory) -> Any:
    """Trains models when they are asked for, each once."""
    directory = tmp_path_factory.mktemp("onnx")
    write_data(directory)
    done: dict[str, SimpleNamespace] = {}

    def trained(model: str) -> SimpleNamespace:
        if model not in done:
            job = weir.Job.from_text(job_text(model), directory)
            job.override(f'checkpoint.dir="{model}"')
            weir.train(job, local=True, progress=False)
            done[model] = SimpleNamespace(job=job, checkpoint=directory / model, directory=directory,
                                          scores=weir.predict(job, directory / model))
        return done[model]

    return trained


@pytest.fixture(name="table_model", scope="module")
def fixture_table_model(trained) -> SimpleNamespace:
    return trained("tables")


def exported(of: SimpleNamespace, **settings: Any) -> tuple[str, Any]:
    """Exports a model. Returns its path, and what the export says."""
    path = str(of.directory / f"{of.job.name}.onnx")
    weighted = ["tags"] if of.job.name == "tables" else []
    return path, weir.export_onnx(of.job, of.checkpoint, path, **{"weighted": weighted, **settings})


def scores_in_numpy(of: SimpleNamespace, path: str) -> np.ndarray:
    inputs = weir.onnx_inputs(path, of.job, of.checkpoint)
    return onnx_numpy.run(path, inputs)["prediction"][:, 0]


# ------------------------------------------------------------------------------------------------------------- scores

WAYS = [{}, {"lookup": "buckets"}, {"dense_only": True}]


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("way", WAYS, ids=["map", "buckets", "dense_only"])
def test_scores_are_those_of_predict(trained, model, way):
    of = trained(model)
    path, _ = exported(of, **way)
    assert np.abs(scores_in_numpy(of, path) - of.scores).max() <= 1e-6


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("way", WAYS, ids=["map", "buckets", "dense_only"])
def test_scores_of_onnxruntime_are_those_of_predict(trained, model, way):
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed (pip install onnx)")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install onnxruntime)")
    print(f"onnx {onnx.__version__}, onnxruntime {runtime.__version__}")
    of = trained(model)
    path, _ = exported(of, **way)
    onnx.checker.check_model(path, full_check=True)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = weir.onnx_inputs(path, of.job, of.checkpoint)
    made = session.run(["prediction"], inputs)[0][:, 0]
    assert np.abs(made - of.scores).max() <= 1e-6
    # Batches of one, and lists of another length.
    some = [session.run(["prediction"], {name: value[at:at + 1] for name, value in inputs.items()})[0][0, 0]
            for at in range(5)]
    assert np.abs(some - of.scores[:5]).max() <= 1e-6


def test_the_data_of_the_tests_has_ids_without_a_row(table_model):
    path, _ = exported(table_model)
    inputs = weir.onnx_inputs(path, table_model.job, table_model.checkpoint)
    checkpoint = weir.Checkpoint(table_model.checkpoint)
    for table, variable in (("table_t", "cat"), ("table_g", "pair"), ("table_h", "kind"), ("table_s", "cat")):
        known = np.isin(inputs[variable], checkpoint.table(table).ids)
        assert 0.2 < known.mean() < 0.9, (table, known.mean())


def test_unknown_ids_may_have_rows_of_zeros(table_model):
    path, _ = exported(table_model, unknown="zero", outputs=["h"])
    inputs = weir.onnx_inputs(path, table_model.job, table_model.checkpoint)
    rows = onnx_numpy.run(path, inputs)["h"]
    expected = weir.Checkpoint(table_model.checkpoint).table("table_s").rows(inputs["cat"], missing="zero")
    assert np.array_equal(rows, expected)
    assert (expected == 0).all(axis=-1).any()


def test_initial_values_are_those_of_the_c_plus_plus_code(table_model):
    """dense_only takes them from NumPy, and the map computes them in the graph."""
    program = program_of(table_model.job)
    tables = {var.name: var for var in program.blocks[0].vars if var.kind == program_pb2.TABLE}
    columns = initial_values.columns_of(program, tables["table_s"])
    assert [(each.begin, each.end, each.kind, float(each.a)) for each in columns] == [
        (0, 1, "constant", 2.0), (1, 4, "uniform", 0.0), (4, 6, "constant", 0.0)]
    rows = initial_values.initial_rows(columns, initial_values.key_of(program.seed, "table_s"), np.array([1, -1]))
    # The first columns do not depend on how a row is divided.
    whole = [initial_values.ColumnValues(0, 6, "uniform", np.float32(0), np.float32(1))]
    assert np.array_equal(rows[:, 1:4], initial_values.initial_rows(
        whole, initial_values.key_of(program.seed, "table_s"), np.array([1, -1]))[:, 1:4])
    # Columns that are 0 leave the others as they are.
    for zeros in ((2, 5), (0, 6), (1, 4), (2, 3), (5, 6)):
        expected = rows.copy()
        expected[:, zeros[0]:zeros[1]] = 0
        columns = initial_values.columns_of(program, tables["table_s"], zeros)
        assert np.array_equal(expected, initial_values.initial_rows(
            columns, initial_values.key_of(program.seed, "table_s"), np.array([1, -1])))
    halves = initial_values.initial_rows(
        initial_values.columns_of(program, tables["table_h"]), 1, np.arange(50), program_pb2.BFLOAT16)
    assert (halves.view(np.uint32) & 0xFFFF == 0).all()


def test_outputs_name_any_variable(table_model):
    path, made = exported(table_model, outputs=["a", "d"])
    inputs = weir.onnx_inputs(path, table_model.job, table_model.checkpoint)
    assert sorted(inputs) == ["cat"]
    assert made.outputs == {"a": ("batch", 6), "d": ("batch", 4)}
    assert {name: value.shape for name, value in onnx_numpy.run(path, inputs).items()} == {
        "a": (150, 6), "d": (150, 4)}


CSV_JOB = """
name: "csv"
data {
  train { files: "train.csv" }
  eval { files: "eval.csv" }
  csv {
    column { name: "label" classes { text: "no" } classes { text: "yes" } }
    column { name: "label2" }
    column { name: "age" }
    column { name: "user" type: ID }
    column { name: "city" type: TEXT missing: "?" }
    column { name: "items" type: ID list: "|" weight: ":" }
  }
  derived { name: "user_city" cross { of: "user" of: "city" } }
  derived { name: "few" vocabulary { of: "user" learned { min_count: 3 } unknown_buckets: 1 } }
  ids { min_count: 2 }
  dense { transform: STANDARDIZE }
  batch_size: 32
}
model {
  layer { name: "u" embedding { ids: "user" ids: "city" ids: "user_city" table: "rows" pooling: MEAN per_slot: true } }
  layer { name: "i" embedding { ids: "items" table: "rows" pooling: SUM } }
  layer { name: "f" embedding { ids: "few" table: "places" } }
  layer { name: "l0" embedding { ids: "user" table: "rows" sequence: 2 } }
  layer { name: "l" sequence_pool { input: "l0" type: LAST } }
  layer { name: "in" concat { input: "u" input: "i" input: "f" input: "l" input: "age" } }
  layer { name: "deep" mlp { input: "in" sizes: [8] } }
  layer { name: "one" fc { input: "deep" size: 1 } }
  layer { name: "two" fc { input: "deep" size: 1 } }
  loss { name: "first" sigmoid_cross_entropy { logits: "one" label: "label" } }
  loss { name: "second" square_error { input: "two" label: "label2" } }
}
table { name: "rows" width: 4 is_sparse: true is_distributed: true initializer { uniform { min: -1 max: 1 } } }
table { name: "places" width: 3 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.05 } }
train { seed: 3 lanes: 2 threads: 1 }
checkpoint { dir: "csv" }
"""


@pytest.fixture(name="csv_model", scope="module")
def fixture_csv_model(tmp_path_factory) -> SimpleNamespace:
    directory = tmp_path_factory.mktemp("csv")
    draw = random.Random(8)

    def rows(count: int, users: int) -> list[dict[str, Any]]:
        return [{"label": draw.choice(["no", "yes"]), "label2": draw.random(),
                 "age": draw.choice([None, draw.uniform(10, 90)]), "user": draw.choice([None, draw.randrange(users)]),
                 "city": draw.choice(["Oslo", "Köln", "?"]),
                 "items": "|".join(f"{draw.randrange(users)}:{draw.random():.3f}" for _ in range(draw.randrange(4)))}
                for _ in range(count)]

    def write(name: str, lines: list[dict[str, Any]]) -> None:
        text = [",".join("" if value is None else str(value) for value in line.values()) for line in lines]
        (directory / name).write_text("\n".join([",".join(lines[0]), *text]) + "\n", "utf-8")

    write("train.csv", rows(400, 20))
    evaluated = rows(80, 40)
    write("eval.csv", evaluated)
    job = weir.Job.from_text(CSV_JOB, directory)
    weir.train(job, local=True, progress=False)
    return SimpleNamespace(job=job, checkpoint=directory / "csv", directory=directory,
                           scores=weir.predict(job, directory / "csv"), rows=evaluated)


def test_columns_of_one_id_have_no_lengths(csv_model):
    path, made = exported(csv_model)
    assert made.inputs == {
        "user": ("batch", 1), "city": ("batch", 1), "user_city": ("batch", 1), "few": ("batch", 1),
        "age": ("batch", 1), "items": ("batch", 1, "items.n"), "items.lengths": ("batch", 1),
        "items.weights": ("batch", 1, "items.n")}
    assert made.outputs == {"prediction": ("batch", 1), "second.prediction": ("batch", 1)}
    assert np.abs(scores_in_numpy(csv_model, path) - csv_model.scores).max() <= 1e-6


@pytest.mark.parametrize("way", WAYS, ids=["map", "buckets", "dense_only"])
def test_scores_of_a_csv_job_are_those_of_predict(csv_model, way):
    path, _ = exported(csv_model, **way)
    assert np.abs(scores_in_numpy(csv_model, path) - csv_model.scores).max() <= 1e-6


def test_arrays_give_the_inputs_of_the_file(csv_model):
    path, _ = exported(csv_model)
    columns = {name: [row[name] for row in csv_model.rows] for name in csv_model.rows[0] if "label" not in name}
    of_file = weir.onnx_inputs(path, csv_model.job, csv_model.checkpoint)
    of_arrays = weir.onnx_inputs(path, csv_model.job, csv_model.checkpoint, columns)
    assert sorted(of_file) == sorted(of_arrays)
    for name, values in of_file.items():
        assert np.array_equal(values, of_arrays[name]), name


# Example jobs, with the data of each.
EXAMPLES = {
    "adult/job": "adult", "adult/mmoe": "adult", "avazu/job": "generated",
    "california_housing/job": "california_housing",
    "fashion_mnist/job": "fashion_mnist", "fashion_mnist/cnn": "fashion_mnist", "flights/job": "clicks",
    "flights/wide_and_deep": "clicks", "flights/dcn_v2": "clicks", "flights/dlrm": "clicks",
    "flights/xdeepfm": "clicks",
    "layouts/bank": "generated", "layouts/criteo": "generated", "layouts/libffm": "generated",
    "layouts/libsvm": "generated", "layouts/list_csv": "generated", "layouts/slot_sign": "generated",
    "layouts/tfrecord": "generated", "movielens/din": "movielens", "movielens/skip_gram": "movielens",
    "movielens/sasrec": "movielens", "movielens/two_tower": "movielens", "synthetic_ctr/job": "clicks",
}
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(name="example_data", scope="module")
def fixture_example_data(tmp_path_factory) -> Any:
    """Makes the data of an example when they are asked for."""
    directory = tmp_path_factory.mktemp("examples")
    shared = os.environ.get("WEIR_DATA_DIR", "")

    def call(*command: Any) -> None:
        subprocess.run([str(each) for each in command], check=True, stdout=subprocess.DEVNULL)

    def make(kind: str) -> pathlib.Path:
        data = directory / kind
        if data.is_dir():
            return data
        if kind not in ("generated", "clicks") and not os.path.isdir(shared):
            pytest.skip("WEIR_DATA_DIR names no directory with the shared data")
        data.mkdir()
        if kind == "clicks":
            call(programs.find("generate_ctr"), f"--output={data}", "--rows=4000", "--eval_rows=400", "--files=2")
        elif kind == "generated":
            call(sys.executable, ROOT / "examples/layouts/generate", f"--output={data}", "--lines=3000")
        elif kind == "adult":
            for name in ("adult.data.gz", "adult.test.gz"):
                lines = gzip.open(f"{shared}/adult/{name}", "rt").readlines()
                gzip.open(data / name, "wt").writelines(lines[:2000])
        elif kind == "fashion_mnist":
            for name, count in (("train", 1200), ("t10k", 200)):
                for what, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
                    raw = gzip.open(f"{shared}/fashion-mnist/{name}-{what}-ubyte.gz").read(head + count * size)
                    raw = raw[:4] + count.to_bytes(4, "big") + raw[8:]
                    (data / f"{name}-{what}-ubyte").write_bytes(raw)
        else:
            call(sys.executable, ROOT / f"examples/{kind}/prepare", f"--data={shared}", f"--output={data}")
            for test in data.glob("*-test.txt"):
                test.write_text("".join(test.read_text().splitlines(keepends=True)[:606]))
        if kind == "movielens":
            shutil.copy(f"{shared}/movielens-latest-small/ratings.csv.gz", data)
        return data

    return make


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_jobs_have_the_scores_of_predict(name, example_data, tmp_path):
    job = weir.Job.from_text((ROOT / f"examples/{name}.textproto").read_text("utf-8"), tmp_path)
    data = example_data(EXAMPLES[name])
    if name == "avazu/job":
        job.set("data.train.files", str(data / "avazu/train.gz"))
        job.set("data.eval.files", str(data / "avazu/train.gz"))
    elif EXAMPLES[name] == "clicks":
        job.set("data.train.files", str(data / "train-*.tsv"))
        job.set("data.eval.files", str(data / "eval.tsv"))
    (tmp_path / "data").symlink_to(data)
    for setting in ('checkpoint.dir="checkpoints"', "checkpoint.every_steps=0", "train.max_steps=12",
                    "train.eval_every_steps=0", "data.batch_size=128", "train.threads=1"):
        job.override(setting)
    weir.train(job, local=True, progress=False)
    scores = weir.predict(job, tmp_path / "checkpoints")
    path = str(tmp_path / "model.onnx")
    weir.export_onnx(job, tmp_path / "checkpoints", path)
    inputs = {key: value[:256] for key, value in weir.onnx_inputs(path, job, tmp_path / "checkpoints").items()}
    scores = scores[:256].reshape(len(next(iter(inputs.values()))), -1)
    made = [onnx_numpy.run(path, inputs)["prediction"]]
    with contextlib.suppress(ImportError):
        import onnx
        import onnxruntime

        onnx.checker.check_model(path, full_check=True)
        made.append(onnxruntime.InferenceSession(path).run(["prediction"], inputs)[0])
    there = ~np.isnan(scores)
    for each in made:
        assert each.shape == scores.shape
        assert (np.abs(each - scores) <= np.maximum(1e-6, 1e-5 * np.abs(scores)))[there].all()


# ----------------------------------------------------------------------------------------------------------- the model


def test_two_exports_have_the_same_bytes(table_model):
    path, _ = exported(table_model)
    first = pathlib.Path(path).read_bytes()
    exported(table_model)
    assert pathlib.Path(path).read_bytes() == first


def test_a_model_is_written_through_a_link_and_never_over_a_pipe(tmp_path):
    link = tmp_path / "latest.onnx"
    link.symlink_to("real.onnx")
    onnx_graph.write_model(onnx_graph.Graph("g"), str(link), "", {}, "1")
    assert link.is_symlink() and (tmp_path / "real.onnx").is_file()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        onnx_graph.write_model(onnx_graph.Graph("g"), str(pipe), "", {}, "1")
        assert reader.communicate()[0] == link.read_bytes()
    assert pipe.is_fifo()


def test_the_model_says_what_it_is(table_model):
    path, made = exported(table_model)
    model = onnx_numpy.read_model(path)
    assert (model.ir_version, model.producer_name) == (8, "weir")
    assert {each.domain: each.version for each in model.opset_import} == {"": 18, "ai.onnx.ml": 2}
    metadata = {each.key: each.value for each in model.metadata_props}
    checkpoint = weir.Checkpoint(table_model.checkpoint)
    assert metadata["weir.job"] == "tables"
    assert metadata["weir.step"] == str(checkpoint.step)
    assert metadata["weir.values_digest"] == f"{checkpoint.digest().values:016x}"
    assert json.loads(metadata["weir.tables"]) == made.tables
    assert made.tables["table_t"] == {"rows": len(checkpoint.table("table_t")), "width": 6, "lookup": "map"}
    assert all(each.doc_string for each in model.graph.input)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_values_are_written_before_they_are_read(trained, model):
    path, _ = exported(trained(model))
    graph = onnx_numpy.read_model(path).graph
    known = {each.name for each in [*graph.initializer, *graph.input]}
    read = {name for node in graph.node for name in node.input}
    read |= {name for node in graph.node for each in node.attribute for inner in each.g.node for name in inner.input}
    assert read.issuperset(each.name for each in graph.initializer)
    for node in graph.node:
        assert known.issuperset(node.input), node.name
        assert known.isdisjoint(node.output), node.name
        known.update(node.output)
    assert known.issuperset(each.name for each in graph.output)


def test_tables_with_one_set_of_ids_share_a_map(table_model):
    path, _ = exported(table_model, outputs=["a", "h"])
    nodes = onnx_numpy.read_model(path).graph.node
    maps = [node for node in nodes if node.op_type == "LabelEncoder"]
    checkpoint = weir.Checkpoint(table_model.checkpoint)
    same = np.array_equal(checkpoint.table("table_t").ids, checkpoint.table("table_s").ids)
    assert len(maps) == (1 if same else 2)


def test_small_arrays_are_in_the_model_and_large_ones_beside_it(table_model, monkeypatch):
    path, made = exported(table_model)
    assert made.files == [path]
    monkeypatch.setattr(onnx_graph, "_LARGE", 1 << 8)
    path, made = exported(table_model)
    assert made.files == [path, f"{path}.data"]
    large = [each for each in onnx_numpy.read_model(path).graph.initializer if each.external_data]
    assert {"table_t.rows", "table_g.rows"} <= {each.name for each in large}
    for each in large:
        where = {entry.key: entry.value for entry in each.external_data}
        assert where["location"] == os.path.basename(f"{path}.data")
        assert int(where["offset"]) % 4096 == 0
    assert np.abs(scores_in_numpy(table_model, path) - table_model.scores).max() <= 1e-6
    monkeypatch.undo()
    exported(table_model)
    assert not os.path.exists(f"{path}.data")
    assert [name for name in os.listdir(table_model.directory) if name.startswith(".tables.onnx")] == []


def test_ids_beyond_the_limit_of_a_model_go_into_buckets(table_model):
    _, made = exported(table_model, map_bytes=15 * 60)
    ways = {each["lookup"] for each in made.tables.values()}
    assert ways == {"map", "buckets"}


# -------------------------------------------------------------------------------------------------------------- errors


def test_an_operator_without_a_form_is_named_with_its_layer(trained, monkeypatch):
    from weir.onnx import ops as onnx_ops

    of = trained("dense")
    monkeypatch.delitem(onnx_ops.CONVERTERS, "bilinear")
    with pytest.raises(WeirError, match="the operator 'bilinear' of layer 'bl[0-2]' has no form in ONNX: it makes 'bl"):
        exported(of)
    monkeypatch.undo()
    with pytest.raises(WeirError, match="the operator 'sigmoid_cross_entropy_with_logits' has no form in ONNX"):
        exported(of, outputs=["sigmoid_cross_entropy.loss"])


def test_a_checkpoint_of_another_job_is_refused(trained, table_model):
    with pytest.raises(WeirError, match="is of job 'tables', and this is job 'dense'; give the job file"):
        weir.export_onnx(trained("dense").job, table_model.checkpoint, table_model.directory / "x.onnx")


def with_sum(of):
    """Returns the job of a model with another pooling, and the place of that in it."""
    text = of.job.to_text()
    assert "pooling: SQRT_N" in text
    line = text[:text.index("pooling: SQRT_N")].count("\n") + 1
    column = text.splitlines()[line - 1].index("pooling") + 1
    return weir.Job.from_text(text.replace("SQRT_N", "SUM", 1), of.directory), f"{line}:{column}"


def test_a_job_of_another_model_is_refused_with_its_place(table_model):
    other, place = with_sum(table_model)
    told = (rf":{place}: model.layer\[0\].embedding.pooling was SQRT_N in the checkpoint's job, and is SUM here: "
            "the scores would not be those of the model in .*; set it back, or ")
    path = table_model.directory / "other.onnx"
    with pytest.raises(weir.JobError, match=r"^tables.textproto" + told):
        weir.export_onnx(other, table_model.checkpoint, path, weighted=["tags"])
    with pytest.raises(weir.JobError, match=r"^tables.textproto:.* \(1 more setting differs\): the scores"):
        changed = other.copy()
        changed.train.seed = 77
        weir.export_onnx(changed, table_model.checkpoint, path, weighted=["tags"])
    assert not path.exists()
    with pytest.raises(weir.RunError, match=r"^tables.textproto" + told) as raised:
        weir.predict(other, table_model.checkpoint)
    assert raised.value.exit_code == 2
    exported_path, _ = exported(table_model)
    with pytest.raises(weir.JobError, match=told):
        weir.onnx_inputs(exported_path, other, table_model.checkpoint)


def test_settings_that_do_not_decide_scores_may_differ(table_model):
    job = table_model.job.copy()
    job.data.batch_size = 8
    job.optimizer.Clear()
    job.optimizer.sgd.learning_rate = 1
    job.model.loss[0].weight = 3
    path = table_model.directory / "same.onnx"
    weir.export_onnx(job, table_model.checkpoint, path, weighted=["tags"])
    assert path.read_bytes() == open(exported(table_model)[0], "rb").read()


def test_the_job_in_the_checkpoint_has_the_model(table_model, monkeypatch):
    other, _ = with_sum(table_model)
    other.table[0].width = 9
    wanted, _ = exported(table_model)
    path = table_model.directory / "own.onnx"
    weir.export_onnx(other, table_model.checkpoint, path, weighted=["tags"], checkpoint_job=True)
    assert path.read_bytes() == open(wanted, "rb").read()
    inputs = weir.onnx_inputs(path, other, table_model.checkpoint, checkpoint_job=True)
    of_job = weir.onnx_inputs(path, table_model.job, table_model.checkpoint)
    assert all((inputs[name] == of_job[name]).all() for name in of_job)
    scores = weir.predict(other, table_model.checkpoint, checkpoint_job=True)
    assert scores.tolist() == table_model.scores.tolist()
    # Without a job all is that of the checkpoint's, with files in the current directory.
    monkeypatch.chdir(table_model.directory)
    alone = weir.predict(None, table_model.checkpoint, checkpoint_job=True)
    assert alone.tolist() == table_model.scores.tolist()


def test_a_job_that_has_changed_is_refused(table_model):
    path = table_model.directory / "changed.onnx"
    wider = table_model.job.copy()
    wider.set("table[2].width", 9)
    with pytest.raises(WeirError, match=r"table\[2\].width was 4 in the checkpoint's job, and is 9 here"):
        weir.export_onnx(wider, table_model.checkpoint, path)
    other = weir.Job.from_text(table_model.job.to_text().replace('"logit"', '"score"'), table_model.directory)
    with pytest.raises(WeirError, match=r"model.layer\[\d+\] was not set in the checkpoint's job, and is { name: "
                       '"score"'):
        weir.export_onnx(other, table_model.checkpoint, path)
    longer = weir.Job.from_text(table_model.job.to_text().replace('input: "j"', 'input: "j" input: "j"'),
                                table_model.directory)
    with pytest.raises(WeirError, match=r"model.layer\[\d+\].*input\[\d\] was .* and is .*\"j\" here"):
        weir.export_onnx(longer, table_model.checkpoint, path)
    assert not path.exists()


def test_a_checkpoint_without_its_job_is_refused_by_its_variables(table_model):
    opened = weir.Checkpoint(table_model.checkpoint)
    opened.manifest.job_text = ""
    path = table_model.directory / "changed.onnx"
    wider = table_model.job.copy()
    wider.set("table[2].width", 9)
    with pytest.raises(WeirError, match="rows of table 'table_c' have 4 values in .*, and 9 in the job; the "
                       "checkpoint is of another version of job 'tables'"):
        weir.export_onnx(wider, opened, path)
    other = weir.Job.from_text(table_model.job.to_text().replace('"logit"', '"score"'), table_model.directory)
    with pytest.raises(WeirError, match="has no variable 'score.[bw]'.*; the checkpoint is of another version of job"):
        weir.export_onnx(other, opened, path)
    with pytest.raises(WeirError, match="does not have its job: give the job that it was trained with"):
        weir.export_onnx(other, opened, path, checkpoint_job=True)
    longer = weir.Job.from_text(table_model.job.to_text().replace('input: "j"', 'input: "j" input: "j"'),
                                table_model.directory)
    with pytest.raises(WeirError, match=r"'logit.w' is \[\d+, 1\] in .*, and \[\d+, 1\] in the job"):
        weir.export_onnx(longer, opened, path)
    assert not path.exists()


def test_a_missing_directory_is_named_before_anything_is_done(table_model):
    with pytest.raises(FileNotFoundError, match="there is no directory /nowhere for /nowhere/model.onnx"):
        weir.export_onnx(table_model.job, table_model.checkpoint, "/nowhere/model.onnx")


def test_a_map_beyond_the_limit_names_the_ways_out(table_model):
    with pytest.raises(WeirError, match=r"table 'table_\w' has \d+ ids, which take \d+ bytes in the model, and \d+ are "
                       r"left .*: look ids up in buckets \(lookup='buckets'\), or export the dense part"):
        exported(table_model, lookup="map", map_bytes=500)


def test_a_model_beyond_the_limit_of_protobuf_is_refused(table_model, monkeypatch):
    monkeypatch.setattr(onnx_graph, "MOST_MODEL_BYTES", 1000)
    with pytest.raises(WeirError, match=r"has \d+ bytes, and protobuf holds 1000: look ids up in buckets"):
        exported(table_model)


def test_ids_that_no_buckets_keep_apart_are_refused(monkeypatch):
    monkeypatch.setattr(onnx_rows, "_BUCKET", 1)
    with pytest.raises(WeirError, match="of its 400 ids have one rest of a division by .*, and a bucket holds 1"):
        onnx_rows._in_buckets("t", np.random.default_rng(1).integers(-2**63, 2**63 - 1, 400))


@pytest.mark.parametrize("count", [0, 1, 15, 1000])
def test_buckets_hold_each_id_once(count):
    ids = np.random.default_rng(count).integers(-2**63, 2**63 - 1, count)
    keys, places = onnx_rows._in_buckets("t", ids)
    assert np.array_equal(np.sort(places[places < count]), np.arange(count))
    assert np.array_equal(keys[places < count], ids[places[places < count]])
    # An empty place of a bucket has an id that is looked up in another one.
    bucket = np.mod(keys, len(keys))
    assert (bucket[places == count] != np.nonzero(places == count)[0]).all()
    assert (bucket[places < count] == np.nonzero(places < count)[0]).all()


@pytest.mark.parametrize(("settings", "error", "message"), [
    ({"outputs": ["nothing"]}, WeirError, "outputs: the program computes no variable 'nothing'"),
    ({"outputs": "a"}, TypeError, "outputs is a list of names of variables, got the text 'a'"),
    ({"weighted": "tags"}, TypeError, "weighted is a list of names of variables, got the text 'tags'"),
    ({"weighted": ["tag"]}, WeirError, "weighted: the job has no variable 'tag' of ids"),
    ({"lookup": "tree"}, ValueError, "lookup is one of auto, map, buckets, got 'tree'"),
    ({"unknown": "mean"}, ValueError, "unknown is one of initial, zero, got 'mean'"),
    ({"overrides": ["train.epoch=3"]}, WeirError, "unknown field 'epoch'"),
])
def test_wrong_arguments_are_explained(table_model, settings, error, message):
    with pytest.raises(error, match=message):
        exported(table_model, **settings)


def test_inputs_need_the_model_of_the_job(trained, table_model, tmp_path):
    path, _ = exported(table_model)
    with pytest.raises(WeirError, match="tables.onnx is of job 'tables', and the checkpoint is of job 'dense'"):
        weir.onnx_inputs(path, trained("dense").job, trained("dense").checkpoint)
    with pytest.raises(WeirError, match="in the checkpoint's job, and is .* here"):
        weir.onnx_inputs(path, trained("dense").job, table_model.checkpoint)
    opened = weir.Checkpoint(table_model.checkpoint)
    opened.manifest.job_text = ""
    with pytest.raises(WeirError, match="has an input 'seen.*', which is no variable of the job"):
        weir.onnx_inputs(path, trained("dense").job, opened)
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(pathlib.Path(path).read_bytes()[:1001])
    with pytest.raises(DamagedFileError, match="cut.onnx is no ONNX model, or is cut"):
        weir.onnx_inputs(cut, table_model.job, table_model.checkpoint)


def test_weights_that_a_model_does_not_take_are_an_error(table_model):
    path, _ = exported(table_model, weighted=[])
    with pytest.raises(WeirError, match="ids of 'tags' have weights, and the model takes none: export it with"):
        weir.onnx_inputs(path, table_model.job, table_model.checkpoint)


# --------------------------------------------------------------------------------------------------------- the command


def weir_command(capsys, *arguments: Any) -> tuple[int, str, str]:
    from weir import cli

    code = cli.main([str(each) for each in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_exports_a_model(csv_model, capsys):
    job = csv_model.directory / "job.textproto"
    job.write_text(CSV_JOB)
    path = csv_model.directory / "command.onnx"
    code, out, err = weir_command(capsys, "export", job, csv_model.checkpoint, path, "--lookup=buckets")
    assert (code, err) == (0, "")
    assert "input user [batch, 1]" in out
    assert "output second.prediction [batch, 1]" in out
    assert "lookup=buckets" in out


def test_the_command_checks_a_model(csv_model, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install onnxruntime)")
    job = csv_model.directory / "job.textproto"
    job.write_text(CSV_JOB)
    code, out, _ = weir_command(capsys, "export", job, csv_model.checkpoint, csv_model.directory / "c.onnx", "--check")
    assert code == 0
    assert "checked examples=80 most_difference=" in out


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["export", "a.onnx"], 2, "weir export: expected JOB CHECKPOINT MODEL.onnx, or CHECKPOINT VALUES.safetensors"),
    (["export", "job", "nowhere", "a.onnx"], 2, "weir export: nowhere is no directory"),
    (["export", "--dense", "a"], 2, "weir export: unrecognized arguments: --dense; --help lists the flags"),
    (["card"], 2, "weir card: the following arguments are required"),
])
def test_the_command_explains_what_is_wrong(capsys, arguments, code, message):
    done, out, err = weir_command(capsys, *arguments)
    assert (done, out) == (code, "")
    assert err.startswith(message)
