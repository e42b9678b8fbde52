"""Trainings by weir.run: what a run reports, how it ends, and that none of its processes is left."""

from __future__ import annotations

import contextlib
import gc
import io
import math
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from weir import child, programs, progress, v1
from weir.checkpoint import Checkpoint
from weir.ending import Ending, ending_of, meaning_of
from weir.errors import ProgramsMissingError, RunError, StoppedError
from weir.job import Job
from weir.run import Run, train

try:
    programs.find("launch")
except ProgramsMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

SECONDS = 60  # deadline of every wait
FOREVER = ["train.epochs=1000000"]

JOB = """
name: "tiny"
data {
  train { files: "train.csv" }
  eval { files: "eval.csv" }
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
train { epochs: 2 seed: 1 lanes: 2 eval_every_steps: 20 log_every_seconds: 0.001 }
checkpoint { dir: "checkpoints" }
"""


def write_data(path: Path, lines: int, seed: int) -> None:
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        file.write("label,age,user\n")
        for _ in range(lines):
            file.write(f"{draw.randint(0, 1)},{draw.random():.4f},{draw.randint(0, 50)}\n")


@pytest.fixture(name="job")
def fixture_job(tmp_path: Path) -> Path:
    write_data(tmp_path / "train.csv", 2000, seed=1)
    write_data(tmp_path / "eval.csv", 300, seed=2)
    (tmp_path / "job.textproto").write_text(JOB)
    return tmp_path / "job.textproto"


@pytest.fixture(autouse=True)
def fixture_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def as_object(job: Path, text: str = JOB) -> SimpleNamespace:
    """A job as weir.Job has it."""
    return SimpleNamespace(to_text=lambda: text, directory=job.parent)


def checkpoints(job: Path) -> list[str]:
    return sorted(path.name for path in (job.parent / "checkpoints").glob("step-*"))


def start_forever(job: Path, **options) -> Run:
    """A run that has done some steps and would not end by itself."""
    evaluated = threading.Event()
    run = train(job, overrides=FOREVER, progress=False, wait=False, on_evaluation=lambda _: evaluated.set(), **options)
    assert evaluated.wait(SECONDS), run.log
    return run


def test_a_cluster_trains_and_reports(job):
    run = train(job, servers=2, trainers=2, log_dir=job.parent / "logs", progress=False)
    assert run.exit_code == 0 and run.ending is Ending.COMPLETE and not run.running
    assert run.done["steps"] == 63 and run.done["examples"] == 4000
    assert [each["step"] for each in run.evaluations] == [20, 40, 60, 63]
    last = run.evaluations[-1]
    assert last["examples"] == 300
    assert (last["loss"], last["auc"]) == (run.done["loss"], run.done["auc"])
    assert run.progress and all(0 <= each["auc"] <= 1 and each["seconds"] > 0 for each in run.progress)
    assert run.log[-1].startswith("done steps=63 ")
    assert {path.name for path in run.log_dir.iterdir()} == {"pserver.0.log", "pserver.1.log", "trainer.0.log",
                                                             "trainer.1.log"}
    assert checkpoints(job) == ["step-000000000063"]


def test_all_layouts_of_a_sync_job_come_to_the_same_figures(job):
    runs = [train(job, servers=0, trainers=1, progress=False), train(job, local=True, progress=False),
            train(job, servers=0, trainers=2, progress=False, overrides=["distribute.mode=COLLECTIVE"]),
            train(job, servers=1, trainers=1, progress=False)]
    assert len({(run.done["loss"], run.done["auc"]) for run in runs}) == 1
    assert "[" not in runs[1].log[-1]


def test_a_job_of_python_values_comes_to_the_digest_of_the_text_written_by_hand(job):
    of_values = Job(
        "tiny",
        data={
            "train": {"files": "train.csv"},
            "eval": v1.DataSource(files=["eval.csv"]),
            "csv": {"column": [{"name": "label"}, {"name": "age"}, {"name": "user", "type": "ID"}]},
            "batch_size": 64,
        },
        model={
            "layer": [
                {"name": "v", "embedding": {"ids": "user", "table": "t"}},
                {"name": "in", "concat": {"input": ["v", "age"]}},
                v1.Layer(name="logit", fc=v1.Fc(input=["in"], size=1)),
            ],
            "loss": {"sigmoid_cross_entropy": {"logits": "logit", "label": "label"}},
        },
        table={"name": "t", "width": 4, "is_sparse": True, "is_distributed": True},
        optimizer={"sgd": {"learning_rate": 0.1}},
        train={"epochs": 2, "seed": 1, "lanes": 2, "eval_every_steps": 20, "log_every_seconds": 0.001},
        checkpoint={"dir": "of_values"},
        directory=job.parent,
    )
    by_hand = train(job, servers=2, trainers=2, progress=False)
    for layout in ({"servers": 2, "trainers": 2}, {"local": True}):
        run = train(of_values, progress=False, **layout)
        assert (run.done["loss"], run.done["auc"]) == (by_hand.done["loss"], by_hand.done["auc"])
        digests = [Checkpoint(job.parent / each).digest() for each in ("checkpoints", "of_values")]
        assert digests[0] == digests[1] and digests[0].values != 0


def test_the_numbers_of_processes_may_be_those_of_the_job(job):
    with_numbers = as_object(job, JOB + "distribute { servers: 1 trainers: 2 }")
    run = train(with_numbers, servers=None, trainers=None, progress=False)
    assert len(list(run.log_dir.iterdir())) == 3


def test_overrides_change_the_job_of_the_run(job):
    run = train(job, local=True, progress=False, overrides=["train.epochs=1", "train.eval_every_steps=0"])
    assert run.done["steps"] == 31
    assert len(run.evaluations) == 1


@pytest.mark.parametrize("wrong", ["train.epochs=1", ["train.epochs"], [1]])
def test_what_is_no_list_of_overrides_is_refused(job, wrong):
    with pytest.raises((TypeError, ValueError), match="train.epochs=2"):
        train(job, overrides=wrong)


def test_a_run_resumes(job):
    train(job, local=True, progress=False, overrides=["train.epochs=1"])
    run = train(job, servers=1, trainers=1, progress=False, resume=True)
    assert run.done["steps"] == 63
    assert run.evaluations[0]["step"] == 40


def test_a_job_object_leaves_no_file_in_its_directory(job):
    files = {path.name for path in job.parent.iterdir()}
    run = train(as_object(job), local=True, progress=False)
    assert run.exit_code == 0
    assert {path.name for path in job.parent.iterdir()} == files | {"checkpoints"}


def test_a_job_with_a_file_of_its_own_runs_from_it_with_its_overrides(job):
    class WithFile:
        directory = job.parent

        @contextlib.contextmanager
        def as_file(self):
            yield SimpleNamespace(path=job, overrides=["train.epochs=1", "train.lanes=4"])

    run = train(WithFile(), local=True, progress=False, overrides=["train.epochs=2"])
    assert run.done["steps"] == 63
    job.write_text(JOB.replace("learning_rate: 0.1", "learning_rate: -0.1"))
    with pytest.raises(RunError) as caught:
        train(WithFile(), local=True, progress=False)
    assert str(caught.value).startswith(f"{job}:16:19: ")


def test_a_text_is_a_job_of_the_current_directory(job, monkeypatch):
    monkeypatch.chdir(job.parent)
    assert train(JOB, local=True, progress=False).exit_code == 0
    assert train("job.textproto", local=True, progress=False).exit_code == 0


def test_a_job_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no job file .*absent.textproto"):
        train(tmp_path / "absent.textproto")


def test_a_job_in_a_directory_that_cannot_be_written_is_refused(job):
    with pytest.raises(OSError, match="paths in the job are relative.* give its path"):
        train(SimpleNamespace(to_text=lambda: JOB, directory=job.parent / "absent"))


@pytest.mark.parametrize("wrong, message", [
    ("epochs: 2", "job.textproto:17:9: unknown field 'epocs' (did you mean 'epochs'?)"),
    ("learning_rate: 0.1", "job.textproto:16:19: optimizer.sgd.learning_rate must be positive, got -0.1"),
])
def test_a_wrong_job_is_refused_with_the_message_of_the_checker_first(job, wrong, message):
    text = JOB.replace(wrong, {"epochs: 2": "epocs: 2"}.get(wrong, "learning_rate: -0.1"))
    with pytest.raises(RunError) as caught:
        train(as_object(job, text), progress=False)
    lines = str(caught.value).split("\n")
    assert lines[0] == message
    assert "exit code 2" in lines[1] and caught.value.meaning in lines[1]
    assert lines[2] == "The job is in no file: line and column are those of its text."
    assert caught.value.exit_code == 2 and caught.value.ending is Ending.WRONG
    assert any(message in line for line in caught.value.log)
    job.write_text(text)
    with pytest.raises(RunError) as caught:
        train(job, local=True, progress=False)
    assert str(caught.value).startswith(message.replace("job.textproto", str(job)))


def test_a_bad_line_of_the_data_is_named_first(job):
    with open(job.parent / "train.csv", "a", encoding="utf-8") as file:
        file.write("1,old,3\n")
    with pytest.raises(RunError, match=r"\A.*train.csv:2002: field 2 \(age\): 'old' is not a finite number") as caught:
        train(job, progress=False)
    assert caught.value.exit_code == 2


def test_a_killed_server_is_named_with_its_signal(job):
    with pytest.raises(RunError, match=r"\Apserver.1 failed: killed by signal 9") as caught:
        train(job, progress=False, env={"WEIR_FAULT_POINT": "kill:server.1:last_part:20"},
              overrides=["deadlines.lease_s=1", "deadlines.heartbeat_s=0.2"])
    assert caught.value.exit_code == 128 + signal.SIGKILL and caught.value.ending is Ending.BROKEN
    assert caught.value.meaning == "ended by SIGKILL"
    assert "Last lines:\n  " in str(caught.value)
    logs = Path(str(caught.value).rsplit("Log files: ", 1)[1])
    del caught
    gc.collect()
    assert (logs / "pserver.1.log").exists()


def test_temporary_logs_go_with_the_run(job):
    run = train(job, local=True, progress=False)
    logs = run.log_dir
    assert (logs / "trainer.0.log").read_text().rstrip().endswith(run.log[-1])
    del run
    assert not logs.exists()


def test_logs_of_bad_input_are_kept_where_the_user_wants_them(job):
    for log_dir in (None, job.parent / "logs"):
        with pytest.raises(RunError) as caught:
            train(job, progress=False, log_dir=log_dir, overrides=["train.lanes=-1"])
        assert ("Log files: " in str(caught.value)) == (log_dir is not None)
    assert (log_dir / "pserver.0.log").exists()


def test_stop_ends_a_run_in_good_order_with_a_checkpoint(job):
    run = start_forever(job)
    assert run.running and run.exit_code is None and run.ending is None and run.done == {}
    run.stop()
    assert run.wait(SECONDS) is run
    assert run.exit_code == 5 and run.ending is Ending.STOPPED
    assert run.done["stopped"] == 1
    assert checkpoints(job) == [f"step-{run.done['steps']:012}"]
    run.stop()


def test_a_run_with_restarts_goes_on_after_a_death(job):
    whole = train(job, progress=False, overrides=["train.epochs=60"]).done
    killed = []

    def kill_once(line):
        if not killed and line.startswith("[trainer.0] checkpoint step="):
            launch = run._process.pid  # pylint: disable=protected-access
            found = subprocess.check_output(["pgrep", "-P", str(launch), "-f", "--", "--trainer_id=1"])
            killed.append(int(found.split()[0]))
            os.kill(killed[0], signal.SIGKILL)

    run = train(job, progress=False, wait=False, restarts=3, on_line=kill_once,
                overrides=["train.epochs=60", "checkpoint.every_steps=50"])
    run.wait(SECONDS)
    assert killed and run.exit_code == 0
    assert run.done["restarts"] == 1 and run.done["lost_s"] > 0 and run.done["repeated_steps"] >= 0
    assert run.done["loss"] == whole["loss"]


def test_restarts_in_one_process_are_refused(job):
    with pytest.raises(ValueError, match="leave out local"):
        train(job, local=True, restarts=1)


def test_stop_ends_a_run_in_one_process_too(job):
    run = start_forever(job, local=True)
    run.stop()
    assert run.wait(SECONDS).done["stopped"] == 1
    assert run.exit_code == 5 and run.ending is Ending.STOPPED


@pytest.mark.parametrize("local", [False, True])
def test_a_stop_that_comes_from_elsewhere_is_an_error(job, local):
    run = start_forever(job, local=local)
    assert run._process is not None
    run._process.terminate()  # as a scheduler does
    with pytest.raises(StoppedError, match="^(launch|trainer) was stopped before its work was complete\n") as caught:
        run.wait(SECONDS)
    assert caught.value.exit_code == run.exit_code == 5
    assert caught.value.ending is run.ending is Ending.STOPPED
    assert run.done["stopped"] == 1
    # Started again, it goes on.
    again = train(job, progress=False, local=local, resume=True, overrides=[f"train.max_steps={run.done['steps'] + 3}"])
    assert again.ending is Ending.COMPLETE and again.done["steps"] == run.done["steps"] + 3


def test_a_second_stop_ends_a_run_at_once(job):
    # A frozen trainer keeps the others from a common border.
    evaluated, passed_on = threading.Event(), threading.Event()
    run = train(job, progress=False, wait=False, overrides=FOREVER,
                env={"WEIR_FAULT_POINT": "stop:server.1:last_part:30"},
                on_line=lambda line: passed_on.set() if "is passed on to" in line else None,
                on_evaluation=lambda _: evaluated.set())
    assert evaluated.wait(SECONDS), run.log
    run.stop()
    assert passed_on.wait(SECONDS), run.log
    run.stop()
    assert run.wait(SECONDS).exit_code == 128 + signal.SIGTERM
    assert run.ending is Ending.BROKEN
    assert run.done == {}


def test_a_wait_with_a_timeout_leaves_the_run_going(job):
    with start_forever(job, local=True) as run:
        with pytest.raises(TimeoutError, match="still runs after 0.01 s"):
            run.wait(0.01)
        assert run.running


def test_leaving_the_block_stops_the_run(job):
    with start_forever(job) as run:
        pass
    assert not run.running
    assert run.done["stopped"] == 1


def test_leaving_the_block_reports_a_failure_but_hides_no_other_error(job):
    with pytest.raises(RunError):
        with train(job, local=True, progress=False, wait=False, overrides=["train.lanes=-1"]) as run:
            assert run._ended.wait(SECONDS)
    with pytest.raises(KeyError):
        with train(job, local=True, progress=False, wait=False, overrides=["train.lanes=-1"]):
            raise KeyError


def test_ctrl_c_ends_the_run_in_good_order(job):
    runs = []
    run = train(job, overrides=FOREVER, progress=False, wait=False,
                on_evaluation=lambda _: runs or (runs.append(1), os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        run.wait(SECONDS)
    assert not run.running
    assert run.done["stopped"] == 1
    assert checkpoints(job) == [f"step-{run.done['steps']:012}"]


def test_callbacks_get_lines_and_evaluations(job):
    lines, evaluations = [], []
    run = train(job, progress=False, on_line=lines.append, on_evaluation=evaluations.append)
    assert evaluations == run.evaluations
    assert lines[-len(run.log):] == run.log
    assert any(line.startswith("[pserver.1] ready ") for line in lines)


def test_an_exception_of_a_callback_stops_the_run_and_is_raised(job):
    def fail(figures):
        raise ZeroDivisionError(figures["step"])

    with pytest.raises(ZeroDivisionError, match="20"):
        train(job, overrides=FOREVER, progress=False, on_evaluation=fail)


def test_a_callback_cannot_wait_for_its_run(job):
    with pytest.raises(RuntimeError, match="would wait for itself"):
        made = []
        started = threading.Event()

        def wait(_):
            assert started.wait(SECONDS)
            made[0].wait()

        made.append(train(job, local=True, overrides=FOREVER, progress=False, wait=False, on_evaluation=wait))
        started.set()
        made[0].wait(SECONDS)


# Prints the id of each process whose command line names the directory in argv[2].
SCRIPT = """
import os, sys, threading
from weir.run import train
evaluated = threading.Event()
run = train(sys.argv[1], overrides=["train.epochs=1000000"], progress=False, wait=False,
            log_dir=os.path.join(sys.argv[2], "logs"), on_evaluation=lambda _: evaluated.set())
assert evaluated.wait(60), run.log
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().decode()
    except OSError:
        continue
    if sys.argv[2] in command and int(pid) != os.getpid():
        print(pid)
print("end", flush=True)
"""


def await_ends(processes: list[int], seconds: float) -> list[int]:
    """Waits for the ends of processes that may not be children. Returns those that are still there."""
    deadline = time.monotonic() + seconds
    left = []
    for process in processes:
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(max(0, 1000 * (deadline - time.monotonic()))):
            left.append(process)
        os.close(handle)
    return left


def test_no_process_is_left_when_python_is_killed(job):
    script = subprocess.Popen([sys.executable, "-c", SCRIPT + "run.wait()", str(job), str(job.parent)],
                              stdout=subprocess.PIPE, text=True)
    processes = [int(line) for line in iter(script.stdout.readline, "end\n")]
    assert len(processes) == 5  # launch, servers, trainers
    script.kill()
    script.wait(SECONDS)
    assert await_ends(processes, SECONDS) == []
    # launch is asked to end in good order.
    assert len(checkpoints(job)) == 1


def test_no_process_is_left_when_python_ends(job):
    script = subprocess.run([sys.executable, "-c", SCRIPT, str(job), str(job.parent)], stdout=subprocess.PIPE,
                            text=True, timeout=SECONDS, check=True)
    processes = [int(line) for line in script.stdout.split("\n")[:-2]]
    assert len(processes) == 5
    assert await_ends(processes, 0) == []
    assert len(checkpoints(job)) == 1


def test_an_end_of_the_parent_that_came_before_is_noticed():
    # No process has the parent 0 that is given here.
    code = subprocess.run([sys.executable, "-I", "-S", "-c", child._END_WITH_PARENT, "0", "/bin/true"],
                          timeout=SECONDS, check=False).returncode
    assert code == 128 + signal.SIGHUP


def test_metrics_are_a_frame_of_all_figures(job):
    pandas = pytest.importorskip("pandas", reason="Run.metrics needs pandas")
    run = train(job, local=True, progress=False)
    frame = run.metrics
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == len(run.progress) + len(run.evaluations)
    assert frame["step"].is_monotonic_increasing
    assert frame[frame["of"] == "eval"]["auc"].tolist() == [each["auc"] for each in run.evaluations]


def test_metrics_without_pandas_say_what_to_do(job, monkeypatch):
    run = train(job, local=True, progress=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas.*Run.evaluations have the same"):
        run.metrics


def test_progress_is_shown_as_lines_where_there_is_no_terminal(job, capfd):
    train(job, local=True)
    shown = capfd.readouterr().err.strip().split("\n")
    assert shown[0].startswith("step=")
    assert len([line for line in shown if line.startswith("eval step=")]) == 4
    assert shown[-1].startswith("done steps=63 ")
    train(job, local=True, progress=False)
    assert capfd.readouterr() == ("", "")


def test_lines_of_progress_are_at_most_one_every_few_seconds():
    out, now = io.StringIO(), [0.0]
    lines = progress.Lines(out, interval=5, clock=lambda: now[0])
    for step, now[0] in enumerate([0.0, 1.0, 4.9, 5.0, 9.0]):
        lines.progress({"step": step, "loss": 0.5, "seconds": now[0]})
        lines.evaluation({"step": step, "auc": math.nan, "notes": ["auc is undefined: no example has label 1"]})
    shown = out.getvalue().split("\n")
    assert [line for line in shown if line.startswith("step")] == ["step=0 loss=0.5", "step=3 loss=0.5"]
    assert shown[1] == "eval step=0 (auc is undefined: no example has label 1)"
    assert shown.count("eval step=4 (auc is undefined: no example has label 1)") == 1


def test_a_bar_shows_the_part_that_is_done():
    tqdm = pytest.importorskip("tqdm", reason="the bar needs tqdm")
    out = io.StringIO()
    bar = progress.Bar(tqdm.tqdm, out)
    bar.progress({"step": 10, "loss": 0.61234, "auc": 0.7, "seconds": 2.0, "left_s": 6})
    assert " 25%|" in out.getvalue()
    assert "step=10, loss=0.6123, auc=0.7000" in out.getvalue()
    bar.progress({"step": 11, "loss": 0.6, "seconds": 3.0, "left_s": 27})
    assert bar._bar.n == 0.25
    bar.evaluation({"step": 11, "loss": 0.5, "auc": 0.75})
    assert "eval_auc=0.7500" in out.getvalue()
    bar.done({"steps": 40, "loss": 0.5})
    bar.close()
    assert "100%|" in out.getvalue().split("\r")[-1]


def test_figures_are_read_from_every_kind_of_line():
    assert progress.parse("step=20 examples=1280 examples_per_s=25385 loss=0.7 auc=0.47 skipped_steps=2 left_s=5") == (
        "progress", {"step": 20, "examples": 1280, "examples_per_s": 25385, "loss": 0.7, "auc": 0.47,
                     "skipped_steps": 2, "left_s": 5})
    assert progress.parse("eval step=5 examples=3 loss=0.5 auc[country=DE]=0.25 ndcg@10=1.0 confusion.tp=7 "
                          "auc_error=2.2e-05 live=1 (parameters moved while it ran: async; without trainer 1)") == (
        "evaluation", {"step": 5, "examples": 3, "loss": 0.5, "auc[country=DE]": 0.25, "ndcg@10": 1.0,
                       "confusion.tp": 7, "auc_error": 2.2e-05, "live": 1,
                       "notes": ["parameters moved while it ran: async; without trainer 1"]})
    assert progress.parse("done steps=3 examples=9 seconds=0.08 examples_per_s=1 loss=-0.5 early_stop=1") == (
        "done", {"steps": 3, "examples": 9, "seconds": 0.08, "examples_per_s": 1, "loss": -0.5, "early_stop": 1})
    for line in ["", "checkpoint step=63 path=x", "I2026 eval step=1", "evaluated"]:
        assert progress.parse(line) is None


def test_an_undefined_figure_is_nan_with_its_reason():
    kind, figures = progress.parse("eval step=5 examples=3 loss=nan (auc is undefined: no example has label 1) "
                                   "(gauc[of=a] is undefined: no group has both classes)")
    assert kind == "evaluation"
    assert all(math.isnan(figures[name]) for name in ("loss", "auc", "gauc[of=a]"))
    assert figures["notes"] == ["auc is undefined: no example has label 1",
                                "gauc[of=a] is undefined: no group has both classes"]


def test_exit_codes_have_a_meaning():
    assert "running again changes nothing" in meaning_of(2)
    assert "resume=True" in meaning_of(3) and "resume=True" in meaning_of(5)
    assert meaning_of(139) == "ended by SIGSEGV"


def test_exit_codes_tell_four_endings_apart():
    endings = {code: ending_of(code) for code in (0, 1, 2, 3, 4, 5, 130, 137, 143)}
    assert [code for code, ending in endings.items() if ending is Ending.COMPLETE] == [0]
    assert [code for code, ending in endings.items() if ending is Ending.STOPPED] == [5]
    assert [code for code, ending in endings.items() if ending is Ending.WRONG] == [2, 4]
    assert [code for code, ending in endings.items() if ending is Ending.BROKEN] == [1, 3, 130, 137, 143]


def test_the_error_of_a_stop_says_nothing_of_a_failure():
    passed_on = "launch: Terminated is passed on to pserver.0, trainer.0; a second signal stops them at once"
    error = child.error_of("launch", 5, ["[trainer.0] SIGTERM: the job ends", passed_on], [])
    assert isinstance(error, StoppedError)
    assert str(error) == ("launch was stopped before its work was complete\n"
                          f"launch ended with exit code 5: {meaning_of(5)}.")
    said = "the prediction was asked to stop and is not complete (asked to stop): nothing was written to scores"
    assert str(child.error_of("trainer", 5, [f"trainer: {said}"], [])).startswith(said)
    assert type(child.error_of("launch", 3, [passed_on], [])) is RunError


@pytest.mark.parametrize("local", [True, False])
def test_commands_of_a_job_are_allowed_where_the_caller_says_so(job, monkeypatch, local):
    directory = job.parent / "programs"
    directory.mkdir()
    for name in ("launch", "trainer"):
        (directory / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {job.parent}/arguments\n')
        (directory / name).chmod(0o755)
    monkeypatch.setattr(programs, "_directory", directory)
    for allowed in (True, False):
        train(job, local=local, progress=False, allow_pipes=allowed, resume=True)
        arguments = (job.parent / "arguments").read_text().split("\n")
        assert ("--allow_pipes" in arguments) == allowed
        if allowed and not local:
            assert arguments.index("--allow_pipes") < arguments.index("--")
