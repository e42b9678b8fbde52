"""Tests of weir.Job: jobs from files, text and Python values, their text, and messages that lead to the field."""

import copy
import pathlib
import pickle
import stat

import numpy as np
import pytest

import weir
from weir import v1

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*/*.textproto"))
FLIGHTS = ROOT / "examples/flights/job.textproto"

# A small job that is right.
LINEAR = {
    "name": "linear",
    "data": {"train": {"files": "train.tsv"}, "criteo": {}},
    "model": {
        "layer": [{"name": "logit", "fc": {"input": "dense", "size": 1}}],
        "loss": [{"sigmoid_cross_entropy": {"logits": "logit", "label": "label"}}],
    },
    "optimizer": {"sgd": {"learning_rate": 0.1}},
}


def message(call, *arguments, **named):
    """Returns the message of the JobError that a call raises."""
    with pytest.raises(weir.JobError) as error:
        call(*arguments, **named)
    return str(error.value)


def linear(**changes):
    return weir.Job(**{**copy.deepcopy(LINEAR), **changes})


# Text.


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_the_text_of_a_job_gives_the_agreement_and_plan_of_its_file(path):
    job = weir.Job.from_file(path)
    again = weir.Job.from_text(job.to_text(), job.directory)
    assert again.config == job.config
    # The agreement lists every setting that the fingerprint covers, and the plan.
    assert again._ask("--print=agreement") == job._ask("--print=agreement")
    assert again.plan() == job.plan()


def test_the_examples_are_found():
    assert len(EXAMPLES) > 20


def test_numbers_of_any_size_survive_the_text():
    job = linear()
    job.set("optimizer", {"adam": {"learning_rate": 1 / 3, "epsilon": 5e-324}})
    job.set("train.seed", 2**64 - 1)
    job.set("table", [{"name": "t", "min_value": -float("inf"), "max_value": 1e300}])
    assert weir.Job.from_text(job.to_text(), job.directory) == job


def test_texts_of_any_characters_survive_the_text():
    job = linear()
    job.set("data.train.files", ['a "b"\n\t\\ é 漢 \x01'])
    assert weir.Job.from_text(job.to_text(), job.directory) == job


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "job.textproto").write_bytes(b'\xef\xbb\xbfname: "a"')
    assert weir.Job.from_file(tmp_path / "job.textproto").name == "a"


# Python values.


def test_a_job_of_python_values_is_that_of_the_text():
    job = weir.Job(
        "a",
        data={"criteo": {}, "shuffle": "WINDOW", "batch_size": np.int64(64), "train": {"files": ["x", "y"]}},
        table=[{"name": "t", "width": 8, "is_sparse": True}, v1.Table(name="u")],
        optimizer=v1.Optimizer(sgd=v1.Sgd(learning_rate=0.5)),
        distribute={"custom_dispatcher": v1.Geo(every_steps=3), "delay_compensation": {"lambda": np.float64(0.5)}},
        program=pathlib.Path("p.program"),
    )
    text = """
        name: "a" program: "p.program"
        data { criteo {} shuffle: WINDOW batch_size: 64 train { files: "x" files: "y" } }
        table { name: "t" width: 8 is_sparse: true } table { name: "u" }
        optimizer { sgd { learning_rate: 0.5 } }
        distribute {
          custom_dispatcher { [type.googleapis.com/weir.v1.Geo] { every_steps: 3 } }
          delay_compensation { lambda: 0.5 }
        }"""
    assert job.config == weir.Job.from_text(text).config


def test_one_value_stands_for_a_list_of_one():
    assert weir.Job(data={"train": {"files": "x"}}).data.train.files == ["x"]
    assert weir.Job(table={"name": "t"}).table[0].name == "t"


def test_none_leaves_a_field_as_it_is():
    assert not weir.Job(data={"train": None}, train=None).data.HasField("train")


def test_the_properties_are_the_fields_of_the_message():
    names = [field.name for field in v1.JobConfig.DESCRIPTOR.fields]
    assert [name for name in names if not isinstance(getattr(weir.Job, name, None), property)] == []
    job = linear()
    job.train.epochs = 3
    assert job.config.train.epochs == 3 and job.train is job.config.train


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"train": {"epochs": "three"}}, "train.epochs takes an integer, got 'three' (str)"),
        ({"train": {"epochs": 3.0}}, "train.epochs takes an integer, got 3.0 (float)"),
        ({"train": {"epochs": True}}, "train.epochs takes an integer, got True (bool)"),
        ({"train": {"lanes": 2**31}}, "train.lanes takes an integer from -2147483648 to 2147483647, got 2147483648"),
        ({"train": {"seed": -1}}, "train.seed takes an integer from 0 to 18446744073709551615, got -1 (int)"),
        ({"train": {"log_every_seconds": "5"}}, "train.log_every_seconds takes a number, got '5' (str)"),
        ({"train": {"device": 7}}, "train.device takes one of CPU, CUDA, got 7 (int)"),
        ({"train": {"device": True}}, "train.device takes one of CPU, CUDA, got True (bool)"),
        ({"train": {"device": "GPU"}}, "train.device: 'GPU' is no value of 'device' (did you mean 'CPU'?)"),
        ({"train": 3}, "train takes a dict or a weir.v1.Train, got 3 (int)"),
        ({"train": v1.Data()}, "train takes a dict or a weir.v1.Train, got a weir.v1.Data"),
        ({"train": {"epoch": 3}}, "train: unknown field 'epoch' (did you mean 'epochs'?)"),
        ({"trian": {}}, "unknown field 'trian' (did you mean 'train'?)"),
        ({"train": {3: 4}}, "train: names of fields are strings, got 3 (int)"),
        ({"name": 3}, "name takes a string, got 3 (int)"),
        ({"name": "\ud800"}, "name takes text that UTF-8 can hold, got '\\ud800' (str)"),
        ({"data": {"drop_last": 1}}, "data.drop_last takes True or False, got 1 (int)"),
        ({"data": {"custom": 3}}, "data.custom takes any message, got 3 (int)"),
        ({"data": {"csv": {}, "idx": {}}}, "data: 'idx' excludes 'csv'; only one of them can be set"),
        ({"data": {"train": {"files": ["a", 3]}}}, "data.train.files[1] takes a string, got 3 (int)"),
        ({"data": {"train": {"files": {"a"}}}}, "data.train.files takes a list, whose order counts, got {'a'} (set)"),
        ({"table": [{}, {"cache": {"siez": 1}}]}, "table[1].cache: unknown field 'siez'"),
    ],
)
def test_a_wrong_value_names_its_field(fields, says):
    assert message(weir.Job, **fields).startswith(says)


# Changes.


def test_set_and_override_change_one_field():
    job = weir.Job.from_file(FLIGHTS)
    job.set("train.epochs", 3)
    job.set("table[1].width", 2)
    job.override(" train.seed = 7 ")
    job.override("data.train.files=[\"a\", 'b']")
    job.override("data.eval.files=c d")
    job.override("name='e'")
    job.override("optimizer={ sgd { learning_rate: 0.25 } }")
    assert (job.train.epochs, job.table[1].width, job.train.seed, job.name) == (3, 2, 7, "e")
    assert (job.data.train.files, job.data.eval.files) == (["a", "b"], ["c d"])
    assert job.optimizer.sgd.learning_rate == 0.25
    job.set("train", {"lanes": 4})
    assert not job.train.HasField("epochs")
    job.set("train", None)
    assert not job.config.HasField("train")


@pytest.mark.parametrize(
    "value, text", [(True, "true"), (False, "false"), (np.bool_(True), "true"), ("false", "false"), ("AUTO", "AUTO")]
)
def test_values_that_are_named_true_and_false_are_those_of_python(value, text):
    assert f"merge_hosts: {text}\n" in linear(distribute={"merge_hosts": value}).to_text()
    job = linear()
    job.set("distribute.merge_hosts", value)
    assert f"merge_hosts: {text}\n" in job.to_text()
    overridden = linear()
    overridden.override(f"distribute.merge_hosts={text}")
    assert overridden.config == job.config
    assert weir.Job.from_text(job.to_text()).config == job.config
    assert f"distribute.merge_hosts: {text}\n" in job._ask("--print=agreement")


def test_a_message_inside_an_any_is_changed_by_its_path():
    job = weir.Job(distribute={"custom_dispatcher": v1.Geo(every_steps=3)})
    job.override("distribute.custom_dispatcher.every_steps=4")
    geo = v1.Geo()
    assert job.distribute.custom_dispatcher.Unpack(geo) and geo.every_steps == 4
    assert "unknown field 'steps'" in message(job.override, "distribute.custom_dispatcher.steps=4")


@pytest.mark.parametrize(
    "assignment",
    [
        "train.epochs=three",
        "train.epochs=3.5",
        "train.epochs=99999999999999999999",
        "train.seed=-1",
        "train.log_every_seconds=often",
        "train.device=GPU",
        "data.drop_last=maybe",
        "distribute.merge_hosts=maybe",
        "distribute.merge_hosts=True",
        "train.epoch=3",
        "train=3",
        "train.epochs.more=3",
        "train.epochs[0]=3",
        "table.width=3",
        "table[7].width=3",
        "train.cpu_ops[0]=a",
        "table[x].width=3",
        "train..epochs=3",
        "train.epochs",
    ],
)
def test_a_wrong_override_is_refused_in_the_words_of_the_programs(assignment):
    job = weir.Job.from_file(FLIGHTS)
    before = job.to_text()
    said = message(job.override, assignment)
    assert job.to_text() == before
    done = weir.job._transpile([f"--job={FLIGHTS}", f"--set={assignment}"], ["--print=plan"])
    assert done.returncode == 2
    assert said == done.stderr.strip()


# The checker.


def test_a_right_job_passes_the_check(tmp_path):
    linear(directory=tmp_path).check()
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_a_file_has_the_place_in_the_file(tmp_path):
    path = tmp_path / "job.textproto"
    path.write_text(linear().to_text().replace("0.1", "-0.1"))
    line = 1 + path.read_text().splitlines().index("    learning_rate: -0.1")
    assert message(weir.Job.from_file(path).check) == (
        f"{path}:{line}:5: optimizer.sgd.learning_rate must be positive, got -0.1\n"
        "      learning_rate: -0.1\n"
        "      ^")


def test_an_error_in_a_job_of_python_values_shows_the_line_of_its_text(tmp_path):
    job = linear(directory=tmp_path, optimizer={"sgd": {"learning_rate": -0.1}})
    line = 1 + job.to_text().splitlines().index("    learning_rate: -0.1")
    assert message(job.check) == (
        f"linear.textproto:{line}:5: optimizer.sgd.learning_rate must be positive, got -0.1\n"
        "      learning_rate: -0.1\n"
        "      ^")


def test_the_mark_stands_below_the_column_after_tabs_and_letters_of_several_bytes():
    text = 'name: "é" # comment\n\tname: "é"; trian {}'
    assert message(weir.Job.from_text, text.replace('name: "é" # comment', "")) == (
        "job.textproto:2:21: unknown field 'trian' (did you mean 'train'?)\n"
        '  \tname: "é"; trian {}\n'
        "  \t           ^")


def test_an_error_in_an_override_names_it():
    job = weir.Job.from_file(FLIGHTS, ["data.batch_size=7"])
    assert message(job.check).startswith("--set data.batch_size: data.batch_size must be a multiple of train.lanes")


def test_an_error_after_a_change_shows_the_line_of_the_new_text():
    job = weir.Job.from_file(FLIGHTS)
    job.data.batch_size = 7
    said = message(job.check)
    assert said.startswith("flights_deepfm.textproto:") and said.splitlines()[1].strip() == "batch_size: 7"


def test_text_that_is_no_job_is_refused_with_its_place(tmp_path):
    path = tmp_path / "job.textproto"
    path.write_text("name: 'a'\ntrain { epochs: three }")
    assert message(weir.Job.from_file, path).splitlines() == [
        f"{path}:2:17: 'epochs' takes an integer, got 'three'", "  train { epochs: three }", "                  ^"]


def test_text_that_is_no_job_has_a_place_without_the_programs_too(monkeypatch):
    def missing(name):
        raise weir.ProgramsMissingError(name)

    monkeypatch.setattr(weir.programs, "find", missing)
    assert message(weir.Job.from_text, "name: 'a'\ntrian {}").startswith("job.textproto:2:1: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert message(weir.Job.from_file, tmp_path / "none") == f"{tmp_path}/none: No such file or directory"
    (tmp_path / "latin").write_bytes(b"name: '\xe9'")
    assert "not UTF-8 at byte 7" in message(weir.Job.from_file, tmp_path / "latin")


def test_overrides_are_a_list():
    assert "takes a list" in message(weir.Job.from_file, FLIGHTS, "train.epochs=3")


def test_explain_is_that_of_the_program():
    text = weir.Job.from_file(FLIGHTS).explain()
    assert text.startswith("flights_deepfm: 2 servers, 2 trainers") and "memory" in text


# Files.


def test_programs_get_the_file_itself_while_the_job_is_that_of_the_file():
    job = weir.Job.from_file(FLIGHTS, ["train.epochs=3"])
    job.override("train.seed=7")
    with job.as_file() as file:
        assert file.arguments == [f"--job={FLIGHTS}", "--set=train.epochs=3", "--set=train.seed=7"]
        assert not file.is_temporary


def test_programs_get_a_file_in_the_directory_of_a_changed_job(tmp_path):
    path = linear(directory=tmp_path).save(tmp_path / "job.textproto")
    job = weir.Job.from_file(path)
    job.train.epochs = 3
    with job.as_file() as file:
        assert file.path.parent == tmp_path and file.path != path and file.overrides == ()
        assert file.is_temporary
        assert weir.Job.from_file(file.path) == job
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_has_changed_since_is_not_that_of_the_job(tmp_path):
    path = linear(directory=tmp_path).save(tmp_path / "job.textproto")
    job = weir.Job.from_file(path)
    path.write_text("name: 'other'")
    with job.as_file() as file:
        assert weir.Job.from_file(file.path) == job


def test_a_job_whose_directory_takes_no_file_has_absolute_paths(tmp_path):
    job = linear(directory=tmp_path / "none", program="p", checkpoint={"dir": "/c"},
                 table=[{"name": "t", "load": ["r"], "disk": {"dir": "d"}}])
    with job.as_file() as file:
        config = weir.Job.from_file(file.path).config
    assert config.data.train.files == [f"{tmp_path}/none/train.tsv"]
    assert (config.program, config.checkpoint.dir) == (f"{tmp_path}/none/p", "/c")
    assert (config.table[0].load, config.table[0].disk.dir) == ([f"{tmp_path}/none/r"], f"{tmp_path}/none/d")
    assert job.data.train.files == ["train.tsv"]


def test_a_saved_job_names_the_same_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    job = linear(directory=tmp_path / "a")
    same = weir.Job.from_file(job.save(tmp_path / "a/job.textproto"))
    assert same == job
    other = weir.Job.from_file(job.save(tmp_path / "b/job.textproto"))
    assert other.data.train.files == ["../a/train.tsv"]


def test_a_saved_job_can_be_read_by_others(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    path = linear(directory=tmp_path).save(tmp_path / "job.textproto")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job.textproto", "plain"]


def test_a_job_is_saved_through_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "job.textproto"
    link.symlink_to("far/job.textproto")
    job = linear(directory=tmp_path)
    # Its paths start where it is read, which is beside the link.
    assert weir.Job.from_file(job.save(link)) == job
    assert link.is_symlink() and (tmp_path / "far/job.textproto").is_file()


def test_a_copy_is_a_job_of_its_own():
    job = weir.Job.from_file(FLIGHTS)
    for other in (job.copy(), copy.deepcopy(job), pickle.loads(pickle.dumps(job))):
        assert other == job
        other.train.epochs = 9
        assert other != job
