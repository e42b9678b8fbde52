"""Runs docs/tutorial.md word for word in a fresh directory, and compares what is printed with what it shows."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import weir
from weir import programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
PROGRAMS = ("launch", "trainer", "pserver", "transpile", "checkpoint")
SECONDS = 300

# Runs blocks in one session. Prints what each has printed, as JSON, when all are done.
SESSION = """
import contextlib, io, json, subprocess, sys
names, said = {"__name__": "__main__"}, []
for kind, text in json.load(open(sys.argv[1])):
    out = io.StringIO()
    if kind == "python":
        with contextlib.redirect_stdout(out):
            exec(compile(text, "docs/tutorial.md", "exec"), names)
    else:
        out.write(subprocess.run(["bash", "-e", "-c", text], check=True, stdout=subprocess.PIPE, text=True).stdout)
    said.append(out.getvalue())
json.dump(said, open(sys.argv[2], "w"))
"""


def blocks_of(text):
    """Returns (language, text, output shown or None) of every block that is to be run, in order."""
    fences = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    blocks = []
    for language, inside in fences:
        if language == "text":
            blocks[-1] = (*blocks[-1][:2], inside)
        else:
            blocks.append((language, inside, None))
    return blocks


BLOCKS = blocks_of(TUTORIAL)


def site_packages():
    """Returns the directories in which this Python has NumPy and protobuf."""
    found = [pathlib.Path(importlib.util.find_spec(name).origin).parent.parent for name in ("numpy", "google.protobuf")]
    return os.pathsep.join(map(str, dict.fromkeys([found[0], found[1].parent])))


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each block has printed. Nothing is downloaded: NumPy and protobuf are those of this Python."""
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("this Python makes no environments: install python3-venv")
    try:
        built = [str(programs.find(name)) for name in PROGRAMS]
    except weir.ProgramsMissingError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("tutorial")
    subprocess.run([str(ROOT / "tools/package"), "--wheel", f"--output={directory / 'dist'}", *built], check=True,
                   stdout=subprocess.DEVNULL, timeout=SECONDS)
    commands = directory / "bin"
    commands.mkdir()
    (commands / "python3").symlink_to(sys.executable)
    environment = {"PATH": f"{commands}:{os.environ['PATH']}", "HOME": str(directory), "PIP_NO_DEPS": "1",
                   "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    assert BLOCKS[0][0] == "sh" and "pip install" in BLOCKS[0][1]
    install = subprocess.run(["bash", "-e", "-c", BLOCKS[0][1]], cwd=directory, env=environment, timeout=SECONDS,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert install.returncode == 0, install.stdout
    (directory / "blocks.json").write_text(json.dumps([block[:2] for block in BLOCKS[1:]]))
    environment["PYTHONPATH"] = site_packages()
    done = subprocess.run([directory / "env/bin/python", "-c", SESSION, "blocks.json", "said.json"], cwd=directory,
                          env=environment, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return [install.stdout, *json.loads((directory / "said.json").read_text())]


def test_the_installed_package_is_that_of_the_wheels(said):
    assert said[0].splitlines()[-1] == f"weir {weir.__version__}"


@pytest.mark.parametrize("number", [i for i, block in enumerate(BLOCKS) if block[2] is not None])
def test_a_block_prints_what_the_tutorial_shows(said, number):
    assert said[number].rstrip("\n") == BLOCKS[number][2].rstrip("\n")


def test_the_stated_auc_is_reached_and_near_the_possible_one(said):
    pattern = r"^AUC (0\.\d+) of (0\.\d+) possible$"
    reached, possible = map(float, re.search(pattern, "".join(said), re.M).groups())
    assert (reached, possible) == tuple(map(float, re.search(pattern, TUTORIAL, re.M).groups()))
    assert possible - 0.03 < reached <= possible


def test_the_shell_goes_on_from_the_checkpoint(said):
    steps = [int(step) for step in re.findall(r"^step-\S+ step=(\d+) ", said[-1], re.M)]
    done = re.search(r"^done steps=(\d+) .* auc=(\S+)", said[-1], re.M)
    assert done is not None and int(done[1]) == max(steps) == -(-6 * 200_000 // 512)


def test_blocks_are_found():
    assert len(BLOCKS) > 10 and {block[0] for block in BLOCKS} == {"sh", "python"}
