"""The twenty endings of docs/errors.md, "How a job ends", played by launch on real processes.

launch starts each program in a shell that notes its exit code. What slurm_job, the Job of examples/kubernetes and
weir.train make of these codes is played with stand-ins for the programs, which end with the codes of the table.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, NamedTuple, Optional

import pytest
from test_slurm_job import fixture_fakes as fixture_fakes  # the stand-ins for Slurm
from test_slurm_job import run as run_slurm_job

from weir import programs, train
from weir.errors import ProgramsMissingError, RunError, StoppedError

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60  # deadline of every wait


class Row(NamedTuple):
    number: int
    text: str
    processes: str
    launch: int
    slurm: str
    kubernetes: str
    python: str

    @property
    def codes(self) -> list[int]:
        """Exit codes of the processes: of one, and of the others if they have another."""
        return [int(each) for each in re.findall(r"\d+", self.processes)]


def rows() -> list[Row]:
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    section = text[text.index("\n## How a job ends\n"):]
    found = re.findall(r"^\| (\d+)\. (.*?) \| (.*?) \| (\d+) \| (.*?) \| (.*?) \| (.*?) \|$", section, re.M)
    return [Row(int(number), what, of, int(launch), *others) for number, what, of, launch, *others in found]


ROWS = rows()


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_table_has_twenty_endings():
    assert [row.number for row in ROWS] == list(range(1, 21))


# ------------------------------------------------------------------------------------- what is made of the exit codes

@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_slurm_job_ends_as_the_table_says(fakes, row):
    # One launch on each of two nodes. Where a process was killed, the other node has lost it.
    code, out = run_slurm_job(fakes, ENDS_0=str(row.launch), ENDS_1=str(row.codes[-1]))
    assert f"{'COMPLETED' if code == 0 else 'FAILED'} {code}" == row.slurm, out
    assert ("running again changes nothing" in out) == (row.python == "WRONG"), out


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_a_run_of_python_ends_as_the_table_says(tmp_path, monkeypatch, row):
    write_program(tmp_path / "launch", f"exit {row.launch}")
    monkeypatch.setenv("WEIR_BIN_DIR", str(tmp_path))
    run = train(JOB, log_dir=tmp_path / "logs", progress=False, wait=False)
    if row.python == "COMPLETE":
        run.wait(SECONDS)
    else:
        with pytest.raises(StoppedError if row.python == "STOPPED" else RunError) as caught:
            run.wait(SECONDS)
        assert caught.value.exit_code == row.launch and caught.value.ending.name == row.python
    assert run.ending is not None and run.ending.name == row.python


# A trainer: 0 ends with one code, the others with another one. When it is started again it is done.
ENDS_ONCE = """
[ ! -e {started}.$JOB_COMPLETION_INDEX ] || exit 0
touch {started}.$JOB_COMPLETION_INDEX
[ $JOB_COMPLETION_INDEX -gt 0 ] || exit {first}
exit {others}
"""


def first_rows() -> list[Row]:
    """Returns a row for each code of a trainer."""
    return list({row.codes[0]: row for row in ROWS}.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_rows_with_the_same_code_are_the_same_to_kubernetes(row):
    assert {each.kubernetes for each in ROWS if each.codes[0] == row.codes[0]} == {row.kubernetes}


@pytest.mark.parametrize("row", first_rows(), ids=lambda row: str(row.codes[0]))
def test_kubernetes_does_what_the_table_says(tmp_path, row):
    pytest.importorskip("yaml", reason="the tests of manifests need PyYAML: install python3-yaml")
    sys.path.insert(0, str(ROOT / "tests/dev"))
    import kubernetes_check as manifests
    from kubernetes_play import Player

    for name in ("bin", "checkpoints"):
        (tmp_path / name).mkdir()
    write_program(tmp_path / "bin/pserver", "exec sleep 1000")
    write_program(tmp_path / "bin/trainer",
                  ENDS_ONCE.format(started=tmp_path / "started", first=row.codes[0], others=row.codes[-1]))
    claims = {"weir-data": tmp_path, "weir-checkpoints": tmp_path / "checkpoints"}
    with Player(manifests.build(ROOT / "examples/kubernetes"), tmp_path / "pods", bin_dir=tmp_path / "bin",
                claims=claims, environment={"START_DELAY_S": "0"}) as player:
        player.play(deadline_s=SECONDS)
        ends = [each[1:] for each in player.events if each[0] == "weir-trainer-0" and each[1] != "start"]
        first = player.pod("weir-trainer-0")
    if row.kubernetes == "FailJob":
        assert player.status == "Failed" and row.codes[0] in (2, 4), player.events
        return
    done = [(0, "Done")]
    assert player.status == "Complete", player.events
    assert ends == (done if row.kubernetes == "Done" else [(row.codes[0], row.kubernetes), *done])
    assert first.failures == (1 if row.kubernetes == "Count" else 0)


# -------------------------------------------------------------------------------------------------- playing the endings

JOB = """
name: "endings"
data {
  train { files: "train.csv" }
  csv { column { name: "label" } column { name: "age" } column { name: "user" type: ID } }
  batch_size: 64
}
model {
  layer { name: "v" embedding { ids: "user" table: "t" } }
  layer { name: "in" concat { input: "v" input: "age" } }
  layer { name: "logit" fc { input: "in" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
train { epochs: 1 seed: 1 lanes: 2 threads: 1 log_every_seconds: 0.05 }
checkpoint { dir: "checkpoints" }
deadlines { heartbeat_s: 0.2 lease_s: 2 connect_deadline_s: 30 slow_warning_s: 0.5 }
"""
FOREVER = ["train.epochs=1000000"]
EVAL = ['data.eval={ files: "eval.csv" }']
FOLLOW = ["data.follow={ look_every_s: 0.1 deadline_s: 1000 }"]
NOBODY = "127.0.0.1:9"

# Notes the exit code of a program. launch holds signals back until a program takes them, and the shell does not.
SHELL = """#!/bin/bash
"$REAL/{0}" "$@"
code=$?
for each in "$@"; do
  case $each in --server_id=*) name=pserver.${{each#*=}} ;; --trainer_id=*) name=trainer.${{each#*=}} ;; esac
done
echo $code > "$CODES/$name"
exit $code
"""


class Cluster:
    """A launch of a server and two trainers in a directory with a job and its data."""

    def __init__(self, directory: Path, real: Path):
        self.directory, self.real = directory, real
        (directory / "job.textproto").write_text(JOB)
        for name, lines in (("train.csv", 2000), ("eval.csv", 100)):
            text = "".join(f"{i % 2},{i % 7},{i % 50}\n" for i in range(lines))
            (directory / name).write_text("label,age,user\n" + text)
        for name in ("bin", "codes"):
            (directory / name).mkdir()
        for name in ("pserver", "trainer"):
            (directory / "bin" / name).write_text(SHELL.format(name))
            (directory / "bin" / name).chmod(0o755)
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.output = directory / "output"

    def start(self, settings: list[str], trainer: tuple[str, ...] = (), fault: str = "") -> None:
        for each in (self.directory / "codes").iterdir():
            each.unlink()
        command = [str(self.real / "launch"), f"--job={self.directory / 'job.textproto'}", "--servers=1",
                   "--trainers=2", f"--bin_dir={self.directory / 'bin'}", f"--log_dir={self.directory / 'logs'}",
                   "--allow_pipes", *(f"--set={each}" for each in settings), *(["--", *trainer] if trainer else [])]
        environment = dict(os.environ, REAL=str(self.real), CODES=str(self.directory / "codes"))
        environment.pop("WEIR_FAULT_POINT", None)
        if fault:
            environment["WEIR_FAULT_POINT"] = fault
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output)

    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.process is not None and self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def wait_text(self, pattern: str) -> None:
        self.wait_until(lambda: re.search(pattern, self.text(), re.M) is not None)

    def wait_file(self, name: str) -> None:
        self.wait_until((self.directory / name).exists)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()

    def signal(self, flag: str, number: int) -> None:
        """Sends a signal to the program, not to its shell, that has the flag in its command line."""
        for directory in Path("/proc").iterdir():
            try:
                words = (directory / "cmdline").read_bytes().decode().split("\0") if directory.name.isdigit() else []
            except OSError:
                continue
            ours = f"--job={self.directory / 'job.textproto'}" in words and flag in words
            if ours and Path(words[0]).parent == self.real:
                os.kill(int(directory.name), number)
                return
        raise AssertionError(f"no process has {flag}: {self.text()}")

    def end(self) -> tuple[int, dict[str, int]]:
        """Waits for the end. Returns the code of launch, and those of the processes."""
        assert self.process is not None
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(self.text()) from None
        codes = {each.name: int(each.read_text()) for each in (self.directory / "codes").iterdir()}
        return (128 - code if code < 0 else code), codes


def train_to_a_checkpoint(cluster: Cluster) -> None:
    cluster.start(["train.max_steps=5"])
    assert cluster.end()[0] == 0, cluster.text()


def of_steps(cluster: Cluster) -> None:
    cluster.start([*FOREVER, "train.max_steps=5"])


def of_early_stop(cluster: Cluster) -> None:
    cluster.start([*FOREVER, *EVAL, "train.eval_every_steps=5",
                   'train.early_stop={ metric: "loss" patience: 1 min_delta: 100 }'])


def signal_while_the_last_checkpoint_is_written(cluster: Cluster) -> None:
    # launch lets it go on with the signal.
    cluster.start([*FOREVER, "train.max_steps=5"], fault="stop:server.0:publishing:5")
    cluster.wait_text("this process has reached its fault point")
    cluster.stop()


def signal_in_training(cluster: Cluster) -> None:
    cluster.start(FOREVER)
    cluster.wait_text(r"^\[trainer.0\] step=")
    cluster.stop()


def signal_to_one_process(cluster: Cluster) -> None:
    cluster.start(FOREVER)
    cluster.wait_text(r"^\[trainer.0\] step=")
    cluster.signal("--server_id=0", signal.SIGTERM)


def signal_while_files_are_awaited(cluster: Cluster) -> None:
    cluster.start(FOLLOW)
    cluster.wait_text("data.follow: waits; ")
    cluster.stop()


def signal_while_data_are_measured(cluster: Cluster) -> None:
    # The commands of both trainers say that they have begun, and give nothing.
    cluster.start(["data.dense={ transform: STANDARDIZE }", 'data.pipe="touch begun; sleep 1000; cat {}"'])
    cluster.wait_file("begun")
    cluster.stop()


def signal_in_the_last_evaluation(cluster: Cluster) -> None:
    pipe = "case {} in *eval*) touch begun; sleep 1000;; esac; cat {}"
    cluster.start(["train.max_steps=5", *EVAL, f'data.pipe="{pipe}"'])
    cluster.wait_file("begun")
    cluster.stop()


def signal_while_trainers_join(cluster: Cluster) -> None:
    cluster.start([], trainer=(f"--pservers={NOBODY}",))
    cluster.wait_text("last try: server 0 at 127.0.0.1:9")
    cluster.stop()


def signal_in_a_prediction(cluster: Cluster) -> None:
    train_to_a_checkpoint(cluster)
    cluster.start(['data.pipe="touch begun; sleep 1000; cat {}"'],
                  trainer=("--role=predict", f"--checkpoint={cluster.directory / 'checkpoints'}", "--input=eval.csv",
                           "--output=scores"))
    cluster.wait_file("begun")
    cluster.stop()


def a_second_signal(cluster: Cluster) -> None:
    # Without the other trainer it comes to no step border.
    cluster.start(FOREVER, fault="stop:trainer.1:first_part:10")
    cluster.wait_text("this process has reached its fault point")
    cluster.signal("--trainer_id=0", signal.SIGINT)
    cluster.signal("--trainer_id=0", signal.SIGTERM)


def a_wrong_job(cluster: Cluster) -> None:
    cluster.start(["train.lanes=-1"])


def a_bad_line(cluster: Cluster) -> None:
    with open(cluster.directory / "train.csv", "a", encoding="ascii") as file:
        file.write("1,old,3\n")
    cluster.start([])


def no_place_for_checkpoints(cluster: Cluster) -> None:
    cluster.start(['checkpoint.dir="train.csv/checkpoints"'])


def no_whole_checkpoint(cluster: Cluster) -> None:
    train_to_a_checkpoint(cluster)
    step, = (cluster.directory / "checkpoints").glob("step-*")
    os.truncate(step / "shard-00000", 100)
    cluster.start(FOREVER, trainer=("--resume",))


def a_full_table(cluster: Cluster) -> None:
    cluster.start(["table[0].dict_size=10"])


def a_killed_process(cluster: Cluster) -> None:
    cluster.start(FOREVER, fault="kill:trainer.1:last_part:10")


def a_server_that_is_not_reached(cluster: Cluster) -> None:
    cluster.start(["deadlines.connect_deadline_s=6"], trainer=(f"--pservers={NOBODY}",))


def no_file_comes(cluster: Cluster) -> None:
    cluster.start(["data.follow={ look_every_s: 0.1 deadline_s: 0.5 }"])


# By the numbers of the table.
PLAYS: dict[int, Callable[[Cluster], None]] = {
    1: lambda cluster: cluster.start([]),
    2: of_steps,
    3: of_early_stop,
    4: signal_while_the_last_checkpoint_is_written,
    5: signal_in_training,
    6: signal_to_one_process,
    7: signal_while_files_are_awaited,
    8: signal_while_data_are_measured,
    9: signal_in_the_last_evaluation,
    10: signal_while_trainers_join,
    11: signal_in_a_prediction,
    12: a_second_signal,
    13: a_wrong_job,
    14: a_bad_line,
    15: no_place_for_checkpoints,
    16: no_whole_checkpoint,
    17: a_full_table,
    18: a_killed_process,
    19: a_server_that_is_not_reached,
    20: no_file_comes,
}


@pytest.fixture(name="real", scope="module")
def fixture_real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the programs under their names."""
    directory = tmp_path_factory.mktemp("real")
    for name in ("launch", "pserver", "trainer"):
        try:
            (directory / name).symlink_to(programs.find(name).resolve())
        except ProgramsMissingError as error:
            pytest.skip(str(error))
    return directory


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_launch_and_its_processes_end_as_the_table_says(real, tmp_path, row):
    cluster = Cluster(tmp_path, real)
    try:
        PLAYS[row.number](cluster)
        code, codes = cluster.end()
    finally:
        if cluster.process is not None and cluster.process.poll() is None:
            cluster.process.kill()
    assert code == row.launch, cluster.text()
    assert codes, cluster.text()
    expected = set(row.codes)
    if len(expected) == 1:
        assert set(codes.values()) == expected, (codes, cluster.text())
    else:
        # The others have lost it, or were killed because they did not end.
        assert row.codes[0] in codes.values() and set(codes.values()) <= expected | {128 + signal.SIGKILL}, codes
