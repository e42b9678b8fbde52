"""Mistakes in jobs that Python makes: each is refused with a message that says what is wrong, and where."""

import copy
import re

import numpy as np
import pytest

import weir
from weir import v1

# A job that is right. A test changes one thing in it.
RIGHT = {
    "data": {
        "train": {"files": "train.csv"},
        "eval": {"files": "eval.csv"},
        "csv": {"column": [{"name": "label"}, {"name": "age"}, {"name": "user", "type": "ID"},
                           {"name": "city", "type": "TEXT"}]},
        "batch_size": 64,
    },
    "model": {
        "layer": [
            {"name": "user_vector", "embedding": {"ids": "user", "table": "users"}},
            {"name": "input", "concat": {"input": ["user_vector", "age"]}},
            {"name": "deep", "mlp": {"input": "input", "sizes": [16], "activation": "RELU"}},
            {"name": "logit", "fc": {"input": "deep", "size": 1}},
        ],
        "loss": {"sigmoid_cross_entropy": {"logits": "logit", "label": "label"}},
    },
    "table": {"name": "users", "width": 8, "is_sparse": True, "is_distributed": True},
    "optimizer": {"adam": {"learning_rate": 0.01}},
    "distribute": {"servers": 2, "trainers": 2},
    "train": {"epochs": 1, "lanes": 4},
    "checkpoint": {"dir": "checkpoints"},
}

# What is changed, the message of the checker, and the line of the job's text that it marks.
WRONG = [
    # Data.
    ("data.batch_size", 0, "data.batch_size must be at least 1, got 0", "batch_size: 0"),
    ("data.batch_size", 7, "data.batch_size must be a multiple of train.lanes, 4, got 7; it counts the examples of the "
     "whole cluster", "batch_size: 7"),
    ("data.csv", None, "data needs one of criteo, multi_slot, csv, ", "data {"),
    ("data.csv.column[1].name", "label", "data.csv.column[1].name 'label' is the name of an earlier column",
     'name: "label"'),
    ("data.csv.column[1].name", "", "data.csv.column[1] needs a name", "column {"),
    ("data.csv.separator", "", "data.csv.separator must be one character or several, got ''", 'separator: ""'),
    ("start_from", {"checkpoint": "x", "new": "("}, "start_from[0].new[0]: '(' is no regular expression: missing )",
     'new: "("'),
    ("data.shuffle_window", -1, "data.shuffle_window must be at least 0, got -1", "shuffle_window: -1"),
    ("data.eval", {}, "data.eval names no files", "eval {"),
    # The model.
    ("model.layer", [], "model.layer must have at least one layer", "model {"),
    ("model.loss", None, "model.loss must have at least one loss: there is nothing to minimise", "model {"),
    ("model.layer[2]", {"name": "deep"}, "model.layer[2] needs one of embedding, fc, mlp, ", "layer {"),
    ("model.layer[2].mlp.input", "inptu", "layer 'deep': input 'inptu' is neither a variable of the data nor a layer "
     "above (did you mean 'input'?)", 'input: "inptu"'),
    ("model.layer[0].embedding.ids", "age", "layer 'user_vector': ids 'age' holds floats, not ids", 'ids: "age"'),
    ("model.layer[0].embedding.table", "user", "layer 'user_vector': table 'user' is no table of the job (did you mean "
     "'users'?)", 'table: "user"'),
    ("model.layer[1].concat.input", ["city", "age"], "layer 'input': input 'city' holds ids; only an embedding reads "
     "them", 'input: "city"'),
    ("model.layer[1].concat.input", ["user_vector", "city"], "layer 'input': input 'city' holds ids; only an embedding "
     "reads them", 'input: "city"'),
    ("model.layer[3].name", "deep", "model.layer[3].name 'deep' is the name of layer[2] too", 'name: "deep"'),
    ("model.layer[3].fc.size", 0, "layer 'logit': size must be at least 1, got 0", "size: 0"),
    ("model.layer[3].fc.size", 2, "loss 'sigmoid_cross_entropy': sigmoid_cross_entropy_with_logits: X must be [B, 1], "
     "one number per example, got [-1, 2] (variable logit)", "sigmoid_cross_entropy {"),
    ("model.layer[2].mlp.sizes", [], "layer 'deep': sizes needs at least one size", "mlp {"),
    ("model.layer[2].mlp.dropout", 1.5, "layer 'deep': dropout must be at least 0 and below 1, got 1.5",
     "dropout: 1.5"),
    ("model.loss[0].sigmoid_cross_entropy.label", "lable", "loss 'sigmoid_cross_entropy': label 'lable' is neither a "
     "variable of the data nor a layer above (did you mean 'label'?)", 'label: "lable"'),
    # Tables and optimizers.
    ("table[0].width", 0, "table[0].width must be at least 1, got 0", "width: 0"),
    ("table[0].is_sparse", False, "table[0].is_distributed needs is_sparse: true: ", "is_distributed: true"),
    ("table[0].is_distributed", False, "table[0].dict_size is required for table 'users': ", "table {"),
    ("table[0].logical_shards", 3, "table[0].logical_shards must be a power of two up to 1048576, got 3",
     "logical_shards: 3"),
    ("table[0].initializer", {"uniform": {"min": 1, "max": 0}}, "table[0].initializer.uniform needs min below max, got "
     "1 and 0", "uniform {"),
    ("table[0].optimizer", v1.Optimizer(sgd=v1.Sgd(learning_rate=0)), "table[0].optimizer.sgd.learning_rate must be "
     "positive, got 0", "learning_rate: 0.0"),
    ("optimizer.adam.learning_rate", -0.1, "optimizer.adam.learning_rate must be positive, got -0.1",
     "learning_rate: -0.1"),
    ("optimizer", v1.Optimizer(), "optimizer needs one of sgd, momentum, adagrad, adam, ", "optimizer {"),
    # The cluster and the training loop.
    ("distribute.trainers", 8, "distribute.trainers is 8, more than train.lanes, 4: ", "trainers: 8"),
    ("distribute.geo", v1.Geo(every_steps=4), "distribute.geo contradicts sync: true: ", "geo {"),
    ("distribute.wire", v1.Wire(push=v1.WIRE_INT8), "distribute.wire.push WIRE_INT8 loses bits, ", "push: WIRE_INT8"),
    ("train.epochs", 0, "train.epochs must be at least 1, got 0", "epochs: 0"),
    ("train.lanes", 3, "train.lanes must be a power of two up to 65536, ", "lanes: 3"),
    ("checkpoint.keep_last", -1, "checkpoint.keep_last must be at least 1, got -1", "keep_last: -1"),
    ("deadlines.heartbeat_s", 20, "deadlines.heartbeat_s must be below lease_s, 10, got 20: ", "heartbeat_s: 20.0"),
    ("metric", [{"name": "a", "auc": {}}, {"name": "a", "auc": {}}], "metric[1].name is the second metric with a "
     "figure named a; ", 'name: "a"'),
    ("cluster.pserver", ["a:1", "a:2", "a:3"], "cluster.pserver names 3 servers; distribute.servers is 2",
     'pserver: "a:1"'),
    ("program", "p.program", "program is set and so is model; ", 'program: "p.program"'),
]


def message(call, *arguments, **named):
    """Returns the message of the JobError that a call raises."""
    with pytest.raises(weir.JobError) as error:
        call(*arguments, **named)
    return str(error.value)


def job_of(directory, **changes):
    return weir.Job("wrong", directory=directory, **{**copy.deepcopy(RIGHT), **changes})


def place_of(said, text):
    """Checks that the message shows the line that it names, with the mark below its column; returns name and line."""
    first, shown, mark = said.splitlines()
    name, line, column = re.match(r"(.*?):(\d+):(\d+): ", first).groups()
    assert shown == "  " + text.splitlines()[int(line) - 1]
    assert mark == "  " + " " * (int(column) - 1) + "^"
    assert shown[2:int(column) + 1].strip() == ""  # the mark is below the beginning of the line
    return name, shown.strip()


def test_the_job_itself_is_right(tmp_path):
    job_of(tmp_path).check()


def test_there_are_thirty_mistakes_and_more():
    assert len({(path, repr(value)) for path, value, _, _ in WRONG}) == len(WRONG) >= 30


@pytest.mark.parametrize("path, value, says, line", WRONG, ids=[f"{at}={value!r:.20}" for at, value, _, _ in WRONG])
def test_a_mistake_is_named_with_its_place(tmp_path, path, value, says, line):
    job = job_of(tmp_path)
    job.set(path, value)
    said = message(job.check)
    assert said.partition(": ")[2].startswith(says)
    assert place_of(said, job.to_text()) == ("wrong.textproto", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path, value, says, line", WRONG[::6])
def test_a_saved_mistake_is_named_with_its_place_in_the_file(tmp_path, path, value, says, line):
    job = job_of(tmp_path)
    job.set(path, value)
    file = job.save(tmp_path / "job.textproto")
    said = message(weir.Job.from_file(file).check)
    assert said.partition(": ")[2].startswith(says)
    assert place_of(said, file.read_text()) == (str(file), line)


SAYS = {path: says for path, _, says, _ in WRONG}
OVERRIDES = ["train.epochs=0", "table[0].width=0", "optimizer.adam.learning_rate=-0.1", "distribute.trainers=8",
             "model.layer[2].mlp.input=inptu"]


@pytest.mark.parametrize("assignment", OVERRIDES)
def test_a_mistake_in_an_override_is_named_by_it(tmp_path, assignment):
    file = job_of(tmp_path).save(tmp_path / "job.textproto")
    path = assignment.partition("=")[0]
    said = message(weir.Job.from_file(file, [assignment]).check)
    assert said.startswith(f"--set {path}: {SAYS[path]}")


@pytest.mark.parametrize("wait", [True, False])
def test_a_run_of_a_wrong_job_says_what_the_check_says(tmp_path, wait):
    job = job_of(tmp_path, train={"epochs": 0})
    with pytest.raises(weir.RunError) as error:
        weir.train(job, progress=False, wait=wait).wait()
    assert "wrong.textproto:" in str(error.value) and "train.epochs must be at least 1, got 0" in str(error.value)
    assert error.value.exit_code == 2


# Values of a wrong type, which need no program to be found.


@pytest.mark.parametrize("fields, says", [
    ({"train": {"epochs": np.float64(2)}}, "train.epochs takes an integer, got "),
    ({"train": {"epochs": [1, 2]}}, "train.epochs takes an integer, got [1, 2] (list)"),
    ({"train": {"epochs": None, "seed": b"7"}}, "train.seed takes an integer, got b'7' (bytes)"),
    ({"train": ["epochs", 3]}, "train takes a dict or a weir.v1.Train, got ['epochs', 3] (list)"),
    ({"train": "epochs: 3"}, "train takes a dict or a weir.v1.Train, got 'epochs: 3' (str)"),
    ({"train": v1.Train}, "train takes a dict or a weir.v1.Train, got "),
    ({"data": {"batch_size": "64"}}, "data.batch_size takes an integer, got '64' (str)"),
    ({"data": {"shuffle": "WINDOWS"}}, "data.shuffle: 'WINDOWS' is no value of 'shuffle' (did you mean 'WINDOW'?)"),
    ({"data": {"shuffle": None, "drop_last": "yes"}}, "data.drop_last takes True or False, got 'yes' (str)"),
    ({"data": {"csv": {"column": [{"name": 7}]}}}, "data.csv.column[0].name takes a string, got 7 (int)"),
    ({"data": {"csv": {"column": ["label"]}}}, "data.csv.column[0] takes a dict or a weir.v1.Csv.Column, got 'label'"),
    ({"data": {"train": {"files": [b"train.csv"]}}}, "data.train.files[0] takes a string, got b'train.csv' (bytes)"),
    ({"model": {"layer": {"name": "a", "mlp": {"sizes": [16, "8"]}}}},
     "model.layer[0].mlp.sizes[1] takes an integer, got '8' (str)"),
    ({"model": {"layer": [{}, {"name": "a", "fc": 3}]}}, "model.layer[1].fc takes a dict or a weir.v1.Fc"),
    ({"table": [{"width": 8.0}]}, "table[0].width takes an integer, got 8.0 (float)"),
    ({"table": 8}, "table[0] takes a dict or a weir.v1.Table, got 8 (int)"),
    ({"optimizer": {"adam": {"learning_rate": "0.01"}}}, "optimizer.adam.learning_rate takes a number, got '0.01'"),
    ({"optimizer": {"adam": 0.01}}, "optimizer.adam takes a dict or a weir.v1.Adam, got 0.01 (float)"),
    ({"optimizer": v1.Adam()}, "optimizer takes a dict or a weir.v1.Optimizer, got a weir.v1.Adam"),
    ({"optimizer": {"adam": {}, "sgd": {}}}, "optimizer: 'sgd' excludes 'adam'; only one of them can be set"),
])
def test_a_value_of_a_wrong_type_names_its_field(fields, says):
    assert message(weir.Job, **fields).startswith(says)


@pytest.mark.parametrize("path, value, says", [
    ("train.epoch", 3, "train.epoch: unknown field 'epoch' (did you mean 'epochs'?)"),
    ("train.epochs", "3", "train.epochs takes an integer, got '3' (str)"),
    ("table[1].width", 3, "table[1].width: 'table' has 1 entries, there is no index 1"),
    ("table.width", 3, "table.width: 'table' is repeated, write 'table[0].width'"),
    ("train.epochs.more", 3, "train.epochs.more: 'epochs' has no fields of its own"),
    ("train[0]", {}, "train[0]: 'train' is not repeated, it takes no index"),
])
def test_a_wrong_path_or_value_of_set_leaves_the_job_as_it_was(tmp_path, path, value, says):
    job = job_of(tmp_path)
    before = job.to_text()
    assert message(job.set, path, value).startswith(says)
    assert job.to_text() == before
