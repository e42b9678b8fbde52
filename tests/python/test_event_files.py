"""Event files of a training with two servers and two trainers (--tensorboard), read by TensorBoard itself."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="event files are read by the Python package tensorboard: install it, with "
                                          "setuptools below 81")

from tensorboard import context  # noqa: E402
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader  # noqa: E402
from tensorboard.plugins import base_plugin  # noqa: E402
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups  # noqa: E402

from watched_job import programs_with, write_job  # noqa: E402

SECONDS = 120
SCALARS = {"train/loss", "train/auc", "train/examples_per_s", "eval/loss", "eval/auc", "eval/calibration",
           "eval/normalized_entropy", "wait/data_share", "wait/servers_share", "wait/border_share"}

# A job without tables, on the data of watched_job.
DENSE = """
name: "dense"
data {
  train { files: "train.csv" }
  csv { column { name: "label" } column { name: "age" } column { name: "user" } }
  batch_size: 64
}
model {
  layer { name: "logit" fc { input: "age" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { sgd { learning_rate: 0.1 } }
train { seed: 1 lanes: 2 }
"""


@pytest.fixture(name="runs", scope="module")
def fixture_runs(tmp_path_factory):
    """Directory of the event files of a training with two servers and two trainers."""
    launch = programs_with("launch", "--tensorboard")
    directory = tmp_path_factory.mktemp("watched")
    write_job(directory)
    command = [launch, "--job=job.textproto", "--servers=2", "--trainers=2", "--log_dir=logs"]
    flags = ["--tensorboard=runs", "--tensorboard_histograms=20"]
    subprocess.run([*command, *flags], cwd=directory, check=True, timeout=SECONDS)
    return directory / "runs"


def event_files(runs: Path) -> list[Path]:
    return sorted(runs.rglob("events.out.tfevents.*"))


def records_in(path: Path) -> int:
    """Counts the records by their lengths alone."""
    data, at, count = path.read_bytes(), 0, 0
    while at < len(data):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
        count += 1
    assert at == len(data), f"{path} ends in a part of a record"
    return count


def of(runs: Path, process: str) -> EventAccumulator:
    """What a process says."""
    events = EventAccumulator(str(runs / process), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    return events


def test_each_process_has_a_directory_with_one_file(runs):
    directories = [path.parent.relative_to(runs).as_posix() for path in event_files(runs)]
    assert directories == ["pserver.0", "pserver.1", "trainer.0", "trainer.1"]


def test_tensorboard_reads_every_record(runs):
    for path in event_files(runs):
        # The reader ends at a damaged record without a message.
        assert sum(1 for _ in LegacyEventFileLoader(str(path)).Load()) == records_in(path) > 1


def test_trainers_write_the_figures_of_the_training(runs):
    events = of(runs, "trainer.0")
    assert set(events.Tags()["scalars"]) >= SCALARS
    for tag, most in ("train/loss", 63), ("eval/loss", 63):
        steps = [each.step for each in events.Scalars(tag)]
        assert steps == sorted(set(steps)) and 0 < steps[-1] <= most
        assert all(0 < each.value < 10 for each in events.Scalars(tag))
    assert all(0 <= each.value <= 1 for tag in ("train/auc", "eval/auc") for each in events.Scalars(tag))
    # Evaluations are those of one trainer.
    others = set(of(runs, "trainer.1").Tags()["scalars"])
    assert "train/loss" in others and not any(tag.startswith("eval/") for tag in others)


def test_waits_are_shares(runs):
    for trainer in "trainer.0", "trainer.1":
        events = of(runs, trainer)
        for what in "data", "servers", "border":
            assert all(0 <= each.value <= 1.01 for each in events.Scalars(f"wait/{what}_share"))


def test_servers_write_rows_and_memory(runs):
    rows = 0.0
    for server in "pserver.0", "pserver.1":
        events = of(runs, server)
        last = {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
        assert set(last) == {"rows/users", "table_bytes/users", "wait/longest_s", "process/rss_bytes"}
        assert last["table_bytes/users"] > 4 * 4 * last["rows/users"] and last["process/rss_bytes"] > 1 << 20
        rows += last["rows/users"]
    assert rows == 50


def test_a_local_run_writes_the_rows_that_it_has(tmp_path):
    trainer = programs_with("trainer", "--tensorboard")
    write_job(tmp_path)
    command = [trainer, "--job=job.textproto", "--role=local", "--set", "train.max_steps=5"]
    subprocess.run([*command, "--tensorboard=rows"], cwd=tmp_path, check=True, timeout=SECONDS)
    assert "rows/users" in of(tmp_path / "rows", "pserver.0").Tags()["scalars"]
    (tmp_path / "dense.textproto").write_text(DENSE)
    command[1] = "--job=dense.textproto"
    subprocess.run([*command, "--tensorboard=dense"], cwd=tmp_path, check=True, timeout=SECONDS)
    assert [path.parent.name for path in event_files(tmp_path / "dense")] == ["trainer.0"]


def test_histograms_count_parameters_and_gradients(runs):
    events = of(runs, "trainer.0")
    tags = events.Tags()["histograms"]
    assert {tag.partition("/")[0] for tag in tags} == {"parameters", "tables", "gradients"}
    assert {"tables/users", "gradients/users@GRAD"} < set(tags)
    for tag in tags:
        each = events.Histograms(tag)
        assert [one.step for one in each] == [20, 40, 60]
        value = each[-1].histogram_value
        assert sum(value.bucket) == value.num > 0
        assert value.min <= value.max and list(value.bucket_limit) == sorted(value.bucket_limit)


def test_the_graph_is_the_program(runs):
    nodes = of(runs, "trainer.0").Graph().node
    assert len({node.name for node in nodes}) == len(nodes) > 5
    assert any(node.op for node in nodes)


def test_hparams_show_the_run_with_its_metrics(runs):
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(runs))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(runs))
    backend = backend_context.Context(base_plugin.TBContext(data_provider=provider, logdir=str(runs),
                                                            multiplexer=multiplexer))
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS], col_params=[])
    groups = list_session_groups.Handler(context.RequestContext(), backend, "", request).run().session_groups
    group = {each.name: each for each in groups}["trainer.0"]
    assert group.hparams["train.seed"].number_value == 1
    assert {each.name.tag for each in group.metric_values} >= {"eval/loss", "eval/auc"}
