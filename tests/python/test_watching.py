"""A running job as its page, /status.json and /metrics show it: real servers and trainers, asked over HTTP."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from watched_job import write_job

from weir import programs
from weir.errors import ProgramsMissingError, RunError
from weir.run import train

SECONDS = 60  # deadline of every wait
FOREVER = ["train.epochs=1000000"]

try:
    LAUNCH, TRAINER = programs.find("launch"), programs.find("trainer")
except ProgramsMissingError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture
def job(tmp_path):
    write_job(tmp_path)
    return tmp_path / "job.textproto"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read().decode()


def state_of(run, since=""):
    return json.loads(get(f"{run.page}state.json{since}"))


def wait_for(what, condition):
    """Waits until the condition holds, and returns what it returned."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what} has not come within {SECONDS} s")


@contextlib.contextmanager
def running(job, **options):
    with train(job, progress=False, wait=False, page=0, overrides=options.pop("overrides", FOREVER), **options) as run:
        try:
            wait_for("the page's address", lambda: run.page)
            yield run
        finally:
            # The first is for an end in good order, of which a stalled trainer keeps the others.
            run.stop()
            with contextlib.suppress(TimeoutError):
                run.wait(5)
            run.stop()


def test_the_page_shows_processes_curves_evaluations_and_tables(job):
    with running(job) as run:
        assert "<!DOCTYPE html>" in get(run.page)

        # The processes are asked one after the other, each second.
        def whole():
            state = state_of(run)
            processes = state.get("processes", [])
            asked = len(processes) == 4 and all("rss_bytes" in p for p in processes) and "time" in processes[3]
            rows = sum(table["rows"] for table in state.get("tables", []))
            return asked and rows == 50 and state.get("points") and state.get("evaluations") and state

        state = wait_for("a status of every process, and an evaluation", whole)
        assert state["job"]["name"] == "watched" and state["job"]["state"] == "running"
        assert [p["name"] for p in state["processes"]] == ["pserver 0", "pserver 1", "trainer 0", "trainer 1"]
        assert all(p["state"] == "running" and p["rss_bytes"] > 0 and p["pid"] > 0 for p in state["processes"])
        assert {"read", "wait", "border", "compute"} == set(state["processes"][2]["time"])
        point = state["points"][-1]
        assert point["step"] > 0 and 0 < point["loss"] < 2 and point["examples_per_s"] > 0
        assert {"calibration", "normalized_entropy"} <= set(state["evaluations"][-1]["more"])
        [table] = state["tables"]
        assert table["name"] == "users" and table["rows"] == 50 and table["width"] == 4
        assert sum(part["rows"] for part in table["servers"]) == 50
        assert "users" in state["plan"]
        # Only what is new.
        news = state_of(run, f"?since={state['seq']}")
        assert "plan" not in news and all(p["seq"] > state["seq"] for p in news.get("points", []))


def test_the_page_names_who_waits_for_whom(job):
    with running(job, env={"WEIR_FAULT_POINT": "stall:trainer.1:first_part:30"}) as run:
        def waits():
            processes = {p["name"]: p for p in state_of(run)["processes"]}
            server = [w for w in processes.get("pserver 0", {}).get("waits", []) if w["seconds"] > 2]
            trainer = processes.get("trainer 0", {}).get("waits", [])
            return server and trainer and (server, trainer)

        server, trainer = wait_for("waits of two seconds", waits)
        assert server[0]["for"] == "trainer 1" and server[0]["what"] == "step 30, for trainer 0"
        assert [w["for"] for w in trainer] == ["pserver 0", "pserver 1"] and trainer[0]["what"] == "version 31"


def test_a_trainer_that_dies_is_shown_and_the_page_shows_the_end(job):
    run = train(job, progress=False, wait=False, page=0, overrides=FOREVER,
                env={"WEIR_FAULT_POINT": "kill:trainer.1:first_part:30"})
    wait_for("the page's address", lambda: run.page)
    seen = []

    def ended():
        with contextlib.suppress(OSError, urllib.error.URLError):
            seen.append(state_of(run))
        return not run.running

    wait_for("the end", ended)
    assert {p["name"]: p for p in seen[-1]["processes"]}["trainer 1"]["exit_code"] == 128 + 9
    # launch waits for one more look of somebody who looks.
    assert seen[-1]["job"]["state"] == "failed" and "trainer.1" in seen[-1]["job"]["message"]
    with pytest.raises(RunError):
        run.wait(SECONDS)


def test_paths_outside_and_other_methods_are_refused(job):
    with running(job) as run:
        host, port = re.fullmatch(r"http://(.*):(\d+)/", run.page).groups()
        for head, code in (("GET /../../etc/passwd", 404), ("GET /%2e%2e/job.textproto", 404),
                           ("GET /job.textproto", 404), ("POST /state.json", 405), ("DELETE /", 405)):
            with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
                connection.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                assert connection.recv(100).split()[1] == str(code).encode(), head
        # A page of another site whose name was made to lead here.
        with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
            connection.sendall(b"GET /state.json HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert connection.recv(100).split()[1] == b"403"


def test_a_second_job_on_one_port_is_told_so(job, tmp_path):
    with running(job) as run:
        port = re.search(r":(\d+)/", run.page)[1]
        command = [LAUNCH, f"--job={job}", "--servers=1", "--trainers=1", f"--page={port}",
                   f"--log_dir={tmp_path / 'second'}"]
        second = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        assert second.returncode == 2
        assert f"--page: cannot serve http://127.0.0.1:{port}: the port is in use; give another one" in second.stderr


def test_metrics_of_every_process(job):
    with running(job, metrics_port=0) as run:
        wait_for("a point", lambda: state_of(run).get("points"))

        def addresses():
            found = re.findall(r"metrics (http://\S+)", "\n".join(run.log))
            return len(found) == 4 and found

        urls = wait_for("four addresses", addresses)
        texts = [get(url) for url in urls]
        servers = [t for t in texts if 'role="server"' in t]
        trainers = [t for t in texts if 'role="trainer"' in t]
        assert len(servers) == len(trainers) == 2
        assert all(re.search(r'^weir_table_rows\{.*table="users"\} \d', t, re.M) for t in servers)
        assert all(re.search(r"^weir_step_time_seconds_count\{.*\} [1-9]", t, re.M) for t in trainers)
        assert all('job_name="watched"' in t and "process_resident_memory_bytes" in t for t in texts)
        status = json.loads(get(urls[0].replace("/metrics", "/status.json")))
        assert status["role"] in ("pserver", "trainer") and status["rss_bytes"] > 0


@pytest.mark.parametrize("flags, code", [([], 5), (["--stop_code=75"], 75), (["--stop_code=0"], 0)])
def test_a_job_that_was_stopped_ends_with_the_code_that_was_asked_for(job, tmp_path, flags, code):
    process = subprocess.Popen([LAUNCH, f"--job={job}", "--servers=1", "--trainers=2", *flags,
                                f"--log_dir={tmp_path / 'log'}", "--set=train.epochs=1000000",
                                f"--set=checkpoint.dir=\"{tmp_path / 'saved'}\""], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "eval step=" in line:
            break
    process.terminate()
    process.terminate()  # schedulers may send it twice
    rest = process.stdout.read()
    assert process.wait(SECONDS) == code
    assert rest.splitlines()[-1].startswith("done ") and " stopped=1" in rest
    assert list(Path(tmp_path / "saved").glob("step-*"))


def test_a_wrong_stop_code_is_refused(job):
    for program in ([LAUNCH], [TRAINER, "--role=local"]):
        done = subprocess.run([*program, f"--job={job}", "--stop_code=3"], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        assert "--stop_code=3: must be 0, or 5 to 125" in done.stderr
