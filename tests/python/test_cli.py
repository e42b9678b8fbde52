"""Tests of the command `weir`: it becomes the program, and says what is wrong where it cannot."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import weir
from weir import cli

PACKAGE = pathlib.Path(weir.__file__).resolve().parent.parent


def run(directory, *arguments):
    """Runs `weir` with the programs of a directory."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE), "WEIR_BIN_DIR": str(directory)}
    return subprocess.run(
        [sys.executable, "-m", "weir", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=60)


@pytest.fixture
def program(tmp_path):
    """Makes a program of lines of shell."""

    def make(name, lines):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return tmp_path

    return make


@pytest.mark.parametrize("name", sorted(cli._PROGRAMS))
def test_every_program_gets_its_arguments_as_they_are(program, name):
    done = run(program(name, 'printf "%s\\n" "$0" "$@"'), name, "--set", "a=b c", "--", "-x", "")
    assert done.stdout.split("\n")[1:] == ["--set", "a=b c", "--", "-x", "", ""]
    assert pathlib.Path(done.stdout.split("\n")[0]).name == name


def test_train_is_launch_with_the_job(program):
    directory = program("launch", 'printf "%s\\n" "$@"')
    assert run(directory, "train", "job.textproto", "--servers=2", "--", "--resume").stdout.split() == [
        "--job=job.textproto", "--servers=2", "--", "--resume"]
    for named in ("--job=x", "-job", "--help"):
        assert run(directory, "train", "--servers=2", named).stdout.split() == ["--servers=2", named]


@pytest.mark.parametrize("arguments", [[], ["--servers=2", "job.textproto"], ["--", "--job=x"]])
def test_train_without_a_job_says_where_it_stands(program, arguments):
    done = run(program("launch", "echo started"), "train", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the job file comes first" in done.stderr


def test_exit_codes_and_signals_are_those_of_the_program(program):
    for code in (0, 1, 2, 3, 4, 5):
        assert run(program("doctor", f"exit {code}"), "doctor").returncode == code
    assert run(program("doctor", "kill -TERM $$"), "doctor").returncode == -signal.SIGTERM


def test_the_program_is_the_process_itself(program):
    directory = program("doctor", "echo $$; exec sleep 60")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "WEIR_BIN_DIR": str(directory)}
    with subprocess.Popen([sys.executable, "-m", "weir", "doctor"], env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert int(process.stdout.readline()) == process.pid
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == -signal.SIGINT
        finally:
            process.kill()


def test_the_program_ignores_no_signal_that_python_ignores(program):
    done = run(program("doctor", "grep SigIgn /proc/self/status"), "doctor")
    ignored = int(done.stdout.split()[1], 16)
    assert ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0


def test_an_unknown_command_names_the_nearest(tmp_path):
    done = run(tmp_path, "trian", "job.textproto")
    assert (done.returncode, done.stderr) == (
        2, "weir: unknown command 'trian' (did you mean 'train'?); --help lists the commands\n")


def test_a_program_that_is_not_installed_is_named_in_one_line(tmp_path):
    done = run(tmp_path, "merge_traces_of_none")
    assert done.returncode == 2
    done = subprocess.run(
        [sys.executable, "-c", "import weir.programs as p; p.find('nothing')"], stderr=subprocess.PIPE, text=True,
        env={"PATH": "/nowhere", "PYTHONPATH": str(PACKAGE)})
    last = done.stderr.splitlines()[-1]
    assert "ProgramsMissingError" in last and "'nothing' is not installed" in last and "WEIR_BIN_DIR" in last


def test_a_program_that_does_not_start_is_named(program):
    directory = program("doctor", "")
    (directory / "doctor").write_bytes(b"\x7fELF no program")
    done = run(directory, "doctor")
    assert done.returncode == 1
    assert "doctor does not start" in done.stderr


def test_help_and_version_need_no_program(tmp_path):
    assert run(tmp_path, "--version").stdout == f"weir {weir.__version__}\n"
    for name in cli._PROGRAMS:
        assert f"  {name} " in run(tmp_path, "--help").stdout
    done = run(tmp_path)
    assert done.returncode == 2 and "Programs:" in done.stderr
