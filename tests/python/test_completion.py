"""Tests of `weir completion`: the words for a command line, and the scripts in the shells that are here."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

import weir
from weir import cli, programs
from weir.command_line import completion

PACKAGE = pathlib.Path(weir.__file__).resolve().parent.parent

HELP = """demo --job=FILE [--format=F]

Prints things.

Flags:
  --format  text, textproto (one a line) or json; with --x more (default: text)
  --job  the job file; required
  --log_dir  directory for one log file per process (default: ./mylog)
  --resume  go on from the newest checkpoint (default: false)
  --servers  parameter servers to start (default: -1)
  --set  path.to.field=value: overrides a field of the job; may be given many times
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Programs that print HELP, and the environment to find them."""
    for name in cli._PROGRAMS:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n[ \"$*\" = --help ] && cat <<'END'\n{HELP.replace('demo', name)}END\n")
        path.chmod(0o755)
    monkeypatch.setenv("WEIR_BIN_DIR", str(tmp_path / "bin"))
    return tmp_path


def words(*line):
    return [each.text for each in completion.complete(line, cli._PROGRAMS).words]


def test_commands_are_completed(directory):
    assert words("weir", "tr") == ["train", "trainer", "transpile"]
    assert set(words("weir", "")) == {"train", *cli._PROGRAMS, "completion", "--help", "--version"}
    assert words("weir", "completion", "") == ["bash", "zsh", "fish"]
    assert words("weir", "nothing", "--f") == []


@pytest.mark.parametrize("command", [["weir", "transpile"], ["weir-transpile"], ["weir", "train", "job.textproto"]])
def test_flags_come_from_the_help_of_the_program(directory, command):
    assert words(*command, "--") == ["--format=", "--job=", "--log_dir=", "--resume", "--servers=", "--set"]
    assert words(*command, "--log-") == ["--log_dir="]
    assert words(*command, "-re") == ["-resume"]
    assert words(*command, "--format=") == ["--format=text", "--format=textproto", "--format=json"]
    assert words(*command, "--format", "j") == ["json"]
    assert words(*command, "--resume=") == ["--resume=true", "--resume=false"]


def test_a_program_that_is_named_by_its_path_is_the_one_that_is_asked(directory):
    path = directory / "other" / "launch"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho; echo 'Flags:'; echo '  --only_here  something (default: 1)'\n")
    path.chmod(0o755)
    assert words(str(path), "--o") == ["--only_here="]


def test_files_are_completed_where_a_flag_takes_one(directory):
    def files(*line):
        return completion.complete(line, cli._PROGRAMS).files

    assert files("weir", "train", "") == ""
    assert files("weir", "transpile", "--job=") == "--job="
    assert files("weir", "transpile", "--job", "") == ""
    assert files("weir", "transpile", "--log_dir=") == "--log_dir="
    assert files("weir", "transpile", "--servers=") is None
    assert files("weir", "transpile", "") == ""


def test_arguments_of_trainers_are_those_of_the_trainer(directory):
    (directory / "bin/trainer").write_text("#!/bin/sh\necho; echo 'Flags:'; echo '  --checkpoint  a directory'\n")
    assert words("weir", "train", "job.textproto", "--servers=2", "--", "--c") == ["--checkpoint="]
    assert words("weir", "launch", "--", "--c") == ["--checkpoint="]


@pytest.mark.parametrize("text, found", [
    ("train.ep", ["train.epochs="]),
    ("distribute.dense=", ["distribute.dense=SERVERS", "distribute.dense=ALL_REDUCE"]),
    ("distribute.dense=A", ["distribute.dense=ALL_REDUCE"]),
    ("distribute.sync=", ["distribute.sync=true", "distribute.sync=false"]),
    ("table", ["table[0]."]),
    ("table[1].wid", ["table[1].width="]),
    ("data.ids.min", ["data.ids.min_count="]),
    ("train.epochs=", []),
    ("nothing.at", []),
    ("train.epochs.x", []),
    ("optim", ["optimizer."]),
])
def test_fields_of_the_job_are_completed_behind_set(directory, text, found):
    assert words("weir", "transpile", "--set", text) == found
    assert words("weir", "transpile", f"--set={text}") == [f"--set={each}" for each in found]


# slurm_job is a script whose flags are those of launch.
@pytest.mark.parametrize("name", sorted(set(cli._PROGRAMS) - {"slurm_job"}))
def test_every_flag_of_the_real_programs_is_known(name):
    path = programs.find(name)
    text = subprocess.run([str(path), "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    printed = set(re.findall(r"^ +--(\w+)", text, re.M))
    assert printed
    known = {each.name: each for each in completion._help_of(str(path), name).flags}
    assert set(known) == printed
    if name == "checkpoint":
        assert {"list", "verify", "export"} <= set(words("weir-checkpoint", ""))
    if name == "trainer":
        assert known["role"].choices == ["pserver", "trainer", "local", "predict"]
        assert known["resume"].is_boolean and known["job"].takes_file and not known["threads"].takes_file
    if name == "generate_ctr":
        assert known["format"].choices == ["criteo", "libsvm"] and known["rows"].default == "300000"


def test_a_program_that_is_not_there_or_fails_gives_nothing(directory):
    (directory / "bin/doctor").write_text("#!/bin/sh\nexit 3\n")
    assert words("weir", "doctor", "--") == []
    (directory / "bin/doctor").write_bytes(b"\x7fELF no program")
    assert words("weir", "doctor", "--") == []
    assert words("weir-nothing", "--") == []
    assert words() == [] and words("weir") == []


# -------------------------------------------------------------------------------------------------------------- shells


def run(directory, *arguments):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE), "WEIR_BIN_DIR": str(directory / "bin")}
    return subprocess.run(
        [sys.executable, "-m", "weir", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=60)


@pytest.mark.parametrize("arguments", [[], ["tcsh"]])
def test_completion_names_the_shells(directory, arguments):
    done = run(directory, "completion", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a shell: bash, zsh or fish" in done.stderr


@pytest.fixture
def script(directory):
    """Makes the script for a shell in a file; `weir` in it is that of this Python."""

    def make(shell, *names):
        done = run(directory, "completion", shell, *names)
        assert done.returncode == 0, done.stderr
        path = directory / f"weir.{shell}"
        path.write_text(done.stdout)
        return path

    return make


def shell(*command, cwd, home):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "WEIR_BIN_DIR": str(home / "bin"), "TERM": "dumb"})


def bash(path, line, cwd, home):
    """Returns COMPREPLY for a line whose end is the cursor, with words as bash breaks them."""
    broken = [part for word in re.split(r"[ ]+", line) for part in re.findall(r"[=:]+|[^=:]+", word) or [""]]
    if line.endswith(("=", ":")):
        broken.append("")
    quoted = " ".join("'" + each + "'" for each in broken)
    done = shell(
        "bash", "--norc", "-c",
        f"source {path}; COMP_LINE='{line}'; COMP_POINT={len(line)}; COMP_WORDS=({quoted}); "
        f"COMP_CWORD={len(broken) - 1}; _weir_complete; printf '%s\\n' \"${{COMPREPLY[@]}}\"", cwd=cwd, home=home)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [each for each in done.stdout.split("\n") if each]


@pytest.mark.parametrize("line, found", [
    ("weir tra", ["train", "trainer", "transpile"]),
    ("weir transpile --fo", ["--format="]),
    ("weir transpile --format=", ["text", "textproto", "json"]),
    ("weir transpile --format=j", ["json"]),
    ("weir transpile  --set  train.ep", ["train.epochs="]),
    ("weir transpile --set=train.ep", ["train.epochs="]),
    ("weir transpile --set distribute.sync=t", ["true"]),
    ("weir transpile --set table[0].wid", ["table[0].width="]),
    ("weir train my_", ["my_job.textproto"]),
    ("weir train my_job.textproto --job=my_", ["my_job.textproto"]),
    ("weir-trainer --res", ["--resume"]),
    ("weir nothing --", []),
])
def test_bash_completes(script, directory, tmp_path, line, found):
    (tmp_path / "my_job.textproto").write_text("")
    assert bash(script("bash"), line, tmp_path, directory) == found


def test_bash_completes_in_a_terminal(script, directory, tmp_path):
    """Types into a real bash: readline breaks the words and inserts what is found."""
    (tmp_path / "my job.textproto").write_text("")
    path = script("bash", "launch")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WEIR_BIN_DIR": str(directory / "bin"),
                   "TERM": "dumb", "INPUTRC": "/dev/null", "PS1": "$ "}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(shutil.which("bash"), ["bash", "--norc", "--noprofile", "-i"], environment)
    seen = b""

    def wait_for(text, at_least=0):
        nonlocal seen
        end = time.monotonic() + 30
        while text not in seen[at_least:]:
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096)
        return len(seen)

    try:
        wait_for(b"$ ")
        os.write(terminal, f"source {path}; stty cols 200; echo rea''dy\n".encode())
        at = wait_for(b"ready\r\n")
        for typed, shown in (
                (b"weir transp\t--set train.ep\t", b"weir transpile --set train.epochs="),
                (b"3 --form\tj\t", b"3 --format=json "),
                (b"--job=my\t", b"--job=my\\ job.textproto "),
                (b"\x15launch --lo\t", b"launch --log_dir=")):
            os.write(terminal, typed)
            at = wait_for(shown, at - 40)
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_fish_completes(script, directory, tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("no fish here (apt-get install fish)")
    (tmp_path / "my_job.textproto").write_text("")
    path = script("fish")
    assert shell("fish", "--no-execute", str(path), cwd=tmp_path, home=directory).stderr == ""
    for line, found in (
            ("weir transpile --fo", ["--format="]),
            ("weir transpile --format=te", ["--format=text", "--format=textproto"]),
            ("weir transpile --set train.ep", ["train.epochs="]),
            ("weir train my_", ["my_job.textproto"]),
            ("weir-trainer --job=my_", ["--job=my_job.textproto"])):
        done = shell("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'", cwd=tmp_path, home=directory)
        assert [each.split("\t")[0] for each in done.stdout.splitlines()] == found, done.stderr


def test_the_script_for_zsh_parses(script, directory, tmp_path):
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here (apt-get install zsh)")
    done = shell("zsh", "-n", str(script("zsh")), cwd=tmp_path, home=directory)
    assert (done.returncode, done.stderr) == (0, "")


def test_zsh_completes(script, directory, tmp_path):
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here (apt-get install zsh)")
    (tmp_path / "my_job.textproto").write_text("")
    path = script("zsh")
    typed = (("weir transpile --fo", "weir transpile --format="),
             ("weir transpile --set train.ep", "weir transpile --set train.epochs="),
             ("weir train my_", "weir train my_job.textproto"),
             ("weir-trainer --job=my_", "weir-trainer --job=my_job.textproto"))
    commands = "".join(
        f"zpty -w z $'\\x15'; zpty -n -w z {before!r}$'\\t'; zpty -r -m z got '*{after}*' || exit 1; "
        f"print -r -- {after!r}\n" for before, after in typed)
    (directory / "drive.zsh").write_text(
        "zmodload zsh/zpty\nzpty z zsh -f -i\n"
        f"zpty -w z 'PS1=; autoload -Uz compinit; compinit -D -u; source {path}; print rea''dy'\n"
        f"zpty -r -m z got '*ready*' || exit 1\n{commands}zpty -d z\n")
    done = shell("timeout", "50", "zsh", "-f", str(directory / "drive.zsh"), cwd=tmp_path, home=directory)
    assert done.stdout.splitlines() == [after for _, after in typed], done.stderr
