"""Jobs on files that appear while they run (data.follow): real processes, a directory and objects of S3."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from test_objects import fixture_s3  # noqa: F401

import weir
from weir import programs
from weir.errors import ProgramsMissingError, RunError

PACKAGE = Path(weir.__file__).resolve().parent.parent
WEIR = f"{sys.executable} -m weir"
SECONDS = 60

try:
    programs.find("trainer")
except ProgramsMissingError as missing:
    pytest.skip(str(missing), allow_module_level=True)

JOB = """
name: "following"
data {
  train { files: "in/part-*.csv" }
  follow { until: "in/DONE" look_every_s: 0.1 }
  csv { column { name: "label" } column { name: "price" } column { name: "user" type: ID } }
  batch_size: 64
}
model {
  layer { name: "v" embedding { ids: "user" table: "t" pooling: SUM } }
  layer { name: "in" concat { input: "v" input: "price" } }
  layer { name: "logit" fc { input: "in" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
train { seed: 1 lanes: 4 log_every_seconds: 0.1 }
checkpoint { dir: "checkpoints" every_steps: 5 }
"""


def text_of(part: int) -> str:
    draw = random.Random(part)
    lines = [f"{draw.randint(0, 1)},{draw.randint(0, 640) / 64},{draw.randint(0, 500)}"
             for _ in range(draw.randint(1, 400))]
    return "label,price,user\n" + "\n".join(lines) + "\n"


class Inbox:
    """A job of its own, and the directory in which its files appear."""

    def __init__(self, directory: Path) -> None:
        self.job = directory / "job.textproto"
        self.inbox = directory / "in"
        self.inbox.mkdir(parents=True)
        self.job.write_text(JOB)

    def put(self, *parts: int) -> None:
        for part in parts:
            (self.inbox / "new").write_text(text_of(part))
            (self.inbox / "new").rename(self.inbox / f"part-{part:02d}.csv")

    def done(self) -> None:
        (self.inbox / "DONE").touch()

    def follow(self):
        return weir.Checkpoint(self.job.parent / "checkpoints").manifest.trainers.follow

    def digest(self):
        return weir.Checkpoint(self.job.parent / "checkpoints").digest()


@pytest.fixture(name="wanted", scope="module")
def fixture_wanted(tmp_path_factory):
    """The digest of a run that finds all files at its start."""
    inbox = Inbox(tmp_path_factory.mktemp("wanted"))
    inbox.put(*range(8))
    inbox.done()
    weir.train(inbox.job, local=True, progress=False)
    return inbox.digest()


def log_of(run: weir.Run, name: str = "trainer.0.log") -> str:
    path = Path(run.log_dir) / name
    return path.read_text(errors="replace") if path.exists() else ""


def await_text(run: weir.Run, pattern: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not re.search(pattern, log_of(run)):
        assert run.running and time.monotonic() < deadline, log_of(run)
        time.sleep(0.05)


def test_a_cluster_follows_files_is_stopped_and_goes_on(tmp_path, wanted):
    inbox = Inbox(tmp_path)
    with weir.train(inbox.job, servers=2, trainers=2, progress=False, wait=False) as run:
        await_text(run, "has joined|connected|data")
        inbox.put(0)
        await_text(run, "takes 'in/part-00.csv', group 1")
        inbox.put(1, 2, 3)
        await_text(run, "takes 'in/part-03.csv', group 4")
        time.sleep(0.5)
        asked = time.monotonic()
        run.stop()
        run.wait(timeout=SECONDS)
        assert time.monotonic() - asked < 20, "it waited for a file, and no longer"
    assert "stopped=1" in log_of(run)
    needed = {file.name for group in inbox.follow().groups for file in group.files}
    for part in range(4):
        if f"in/part-{part:02d}.csv" not in needed:
            (inbox.inbox / f"part-{part:02d}.csv").unlink()
    with weir.train(inbox.job, servers=1, trainers=3, progress=False, wait=False, resume=True) as run:
        inbox.put(4, 5, 6, 7)
        inbox.done()
        run.wait(timeout=SECONDS)
    assert inbox.digest() == wanted


def test_trainers_with_servers_of_their_own_follow_files(tmp_path, wanted):
    inbox = Inbox(tmp_path)
    with weir.train(inbox.job, servers=0, trainers=2, progress=False, wait=False) as run:
        for part in range(8):
            inbox.put(part)
            time.sleep(0.15)
        inbox.done()
        run.wait(timeout=SECONDS)
    assert inbox.digest() == wanted


def test_the_page_names_what_a_trainer_waits_for(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.put(0)
    with weir.train(inbox.job, servers=1, trainers=2, progress=False, wait=False, page=0) as run:
        await_text(run, "takes 'in/part-00.csv'")
        launched = ""
        deadline = time.monotonic() + SECONDS
        while "new files of data.train" not in launched:
            assert run.running and time.monotonic() < deadline, launched
            with urllib.request.urlopen(f"{run.page}state.json", timeout=SECONDS) as answer:
                launched = json.dumps(json.load(answer))
            time.sleep(0.1)
        inbox.done()
        run.wait(timeout=SECONDS)


def test_a_job_without_a_new_file_ends_in_time(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.put(0)
    with pytest.raises(RunError, match=r"no new file of data\.train behind 'in/part-00\.csv' for") as raised:
        weir.train(inbox.job, servers=1, trainers=2, progress=False, overrides=["data.follow.deadline_s=1"])
    assert raised.value.exit_code == 3


def test_objects_of_s3_are_followed(tmp_path, s3, monkeypatch, wanted):
    env, client = s3
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    inbox = Inbox(tmp_path)
    inbox.job.write_text(JOB.replace("csv {", f'pipe: "{WEIR} cat {{}}" pipe_list: "{WEIR} list {{}}"\n  csv {{', 1))
    overrides = ["data.train.files=s3://weir/following/part-*.csv", "data.follow.until=s3://weir/following/DONE"]

    def put(*parts):
        for part in parts:
            client.put_object(Bucket="weir", Key=f"following/part-{part:02d}.csv", Body=text_of(part).encode())

    put(0, 1, 2)
    with weir.train(inbox.job, servers=1, trainers=2, progress=False, wait=False, allow_pipes=True,
                    overrides=overrides) as run:
        await_text(run, "takes 's3://weir/following/part-02.csv'")
        put(3, 4, 5, 6, 7)
        client.put_object(Bucket="weir", Key="following/DONE", Body=b"")
        run.wait(timeout=3 * SECONDS)
    assert inbox.digest() == wanted


def test_what_a_job_says_that_cannot_follow(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.put(0)
    found = subprocess.run([programs.find("trainer"), f"--job={inbox.job}", "--role=local", "--set=train.epochs=2"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    assert found.returncode == 2
    assert "data.follow reads each file once: train.epochs must be 1, got 2" in found.stdout
