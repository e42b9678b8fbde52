"""Event files of a training (--tensorboard), read by TensorBoard itself."""

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
SCALARS = {"loss", "auc", "calibration", "normalized_entropy", "examples_per_s"}


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


def chief(runs: Path) -> EventAccumulator:
    """What the trainer says that judges the training."""
    for path in event_files(runs):
        events = EventAccumulator(str(path.parent), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
        events.Reload()
        if "loss" in events.Tags()["scalars"]:
            return events
    raise AssertionError(f"no event file in {runs} has the scalar loss")


def test_each_process_has_a_directory_with_one_file(runs):
    directories = [path.parent for path in event_files(runs)]
    assert directories and len(directories) == len(set(directories))


def test_tensorboard_reads_every_record(runs):
    for path in event_files(runs):
        # The reader ends at a damaged record without a message.
        assert sum(1 for _ in LegacyEventFileLoader(str(path)).Load()) == records_in(path) > 1


def test_the_chief_writes_the_figures_of_the_training(runs):
    events = chief(runs)
    assert SCALARS <= set(events.Tags()["scalars"])
    loss = events.Scalars("loss")
    steps = [each.step for each in loss]
    assert steps == sorted(set(steps)) and steps[-1] <= 63
    assert all(0 < each.value < 10 for each in loss)
    assert all(0 <= each.value <= 1 for each in events.Scalars("auc"))


def test_waits_are_shares_and_tables_have_rows(runs):
    tags: dict[str, float] = {}
    for path in event_files(runs):
        events = EventAccumulator(str(path.parent))
        events.Reload()
        tags.update({tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]})
    waits = {tag: value for tag, value in tags.items() if tag.startswith("wait/") and tag.endswith("_share")}
    assert waits and all(0 <= value <= 1 for value in waits.values())
    assert 0 < tags["rows/users"] <= 50


def test_histograms_count_the_parameters(runs):
    events = chief(runs)
    assert events.Tags()["histograms"]
    for tag in events.Tags()["histograms"]:
        value = events.Histograms(tag)[-1].histogram_value
        assert sum(value.bucket) == value.num > 0
        assert value.min <= value.max and list(value.bucket_limit) == sorted(value.bucket_limit)


def test_the_graph_is_the_program(runs):
    nodes = chief(runs).Graph().node
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
    assert len(groups) == 1 and groups[0].hparams
    assert "loss" in {each.name.tag for each in groups[0].metric_values}
