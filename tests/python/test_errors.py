"""Tests of docs/errors.md: it has every exit code, its commands end as it says, and its messages are in the sources."""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import pytest

import weir
from weir import errors, programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
HEADER = (ROOT / "framework/base/exit_code.h").read_text(encoding="utf-8")


def section(title):
    """Returns the text below a heading, up to the next of its level."""
    found = re.search(rf"^(#+) {re.escape(title)}.*?$\n(.*?)(?=^\1 |\Z)", TEXT, re.M | re.S)
    assert found, f"docs/errors.md has no section '{title}'"
    return found[2]


def mistakes():
    """Yields (title, exit code, blocks) of each section of frequent mistakes; a block is a list of lines."""
    for part in re.split(r"^### ", section("Frequent mistakes"), flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        code = re.search(r"^Exit code (\d)\.", body, re.M)
        assert code, f"'{title}' names no exit code"
        lines = re.findall(r"^(?:    (.*)|)$", body, re.M)
        blocks = [block.split("\n") for block in "\n".join(lines).split("\n\n") if block.strip()]
        yield title, int(code[1]), [[line for line in block if line] for block in blocks]


MISTAKES = [(title, code, block) for title, code, blocks in mistakes() for block in blocks]


def test_every_exit_code_has_a_section_with_its_statuses():
    codes = dict(re.findall(r"(kExit\w+) = (\d+),", HEADER))
    assert len(codes) >= 5
    for cases, name in re.findall(r"((?:\s*(?:case [\w:]+|default):)+)\s*return (kExit\w+);", HEADER):
        text = section(f"Exit code {codes[name]}")
        for status in re.findall(r"StatusCode::k(\w+)", cases):
            assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", status).upper() in text, (name, status)
    for number in codes.values():
        assert re.search(rf"^\| \[{number}\]\(#exit-code-{number}-", TEXT, re.M)


def test_every_error_of_the_package_is_described():
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    for name in errors.__all__:
        assert f"`{name}`" in text or f"`weir.{name}`" in text


def test_there_are_enough_mistakes_with_a_way_out():
    found = list(mistakes())
    assert len(found) >= 20 and len({title for title, _, _ in found}) == len(found)
    for title, _, blocks in found:
        assert blocks, title


# --------------------------------------------------------------------------------------------------- commands that run


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A directory with the programs under their names, the job and its data."""
    directory = tmp_path_factory.mktemp("errors")
    (directory / "bin").mkdir()
    for name in ("checkpoint", "convert", "generate_ctr", "launch", "pserver", "trainer", "transpile"):
        (directory / "bin" / name).symlink_to(programs.find(name).resolve())
    command = directory / "bin/weir"
    package = pathlib.Path(weir.__file__).resolve().parent.parent
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{package}' exec '{sys.executable}' -m weir \"$@\"\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    work = directory / "work"
    work.mkdir()
    shutil.copy(ROOT / "examples/synthetic_ctr/job.textproto", work)
    (work / "csv.textproto").write_text("""name: "people"
data { train { files: "people.csv" } csv { column { name: "label" } column { name: "age" } } batch_size: 8 }
model {
  layer { name: "logit" fc { input: "age" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { sgd { learning_rate: 0.1 } }
""")
    subprocess.run(
        [str(directory / "bin/generate_ctr"), "--output=data", "--rows=20000", "--eval_rows=2000", "--files=2"],
        cwd=work, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return directory


def matches(quoted, line):
    """Returns whether a line is the quoted one, whose "..." stand for anything."""
    return re.fullmatch(".*?".join(map(re.escape, quoted.split("..."))), line) is not None


COMMANDS = [each for each in MISTAKES if each[2][0].startswith("$ ")]


@pytest.mark.parametrize("title, code, block", COMMANDS, ids=[f"{title}: {block[0]}" for title, _, block in COMMANDS])
def test_the_command_ends_with_the_code_and_the_message(start, tmp_path, title, code, block):
    work = tmp_path / "work"
    shutil.copytree(start / "work", work)
    path = f"{start / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", block[0][2:]], cwd=work, env={"PATH": path, "HOME": str(tmp_path)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == code, done.stdout
    for quoted in block[1:]:
        assert any(matches(quoted, line) for line in done.stdout.splitlines()), done.stdout


def test_the_comparison_can_fail():
    assert matches("a ... c (...)", "a b c (d e)") and not matches("a ... c", "a b c d") and not matches("a", "a b")


# --------------------------------------------------------------------------------------------------------- the sources

# A fragment is the text of a literal between what is inserted into it.
_SHORTEST = 5
# Part of the fixed text of a message that must come from literals: quoted ones have 0.77 and more, made-up ones 0.6.
_COVERED = 0.7


@pytest.fixture(scope="module")
def fragments():
    """Returns the texts of literals in the sources of programs and of the package, cut at what is inserted."""
    found = set()
    for directory in ("framework", "ops", "proto", "pserver", "python/weir", "tools", "trainer", "transpiler"):
        for path in sorted((ROOT / directory).rglob("*")):
            if path.suffix in (".cc", ".h", ".py") and "protos" not in path.parts:
                for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text(encoding="utf-8")):
                    literal = literal.replace('\\"', '"').replace("\\n", "\n")
                    found.update(re.split(r"\$\d|%[a-z]|\{[^{}]*\}|\n", literal))
    return {each for each in found if len(each.strip()) >= _SHORTEST}


def covered(message, fragments):
    """Returns the part of a message that literals of the sources make."""
    # What a user wrote, numbers and file names are not fixed.
    fixed = re.sub(r"'[^']*'|\.\.\.|[\w.-]*/[\w./-]*|\d+", " ", message)
    marks = [False] * len(message)
    for each in fragments:
        at = message.find(each)
        while at >= 0:
            marks[at:at + len(each)] = [True] * len(each)
            at = message.find(each, at + 1)
    return sum(marks) / max(1, len(fixed.replace(" ", "")))


def test_every_quoted_message_is_made_of_literals_of_the_sources(fragments):
    for title, _, block in MISTAKES:
        for message in block:
            if not message.startswith("$ "):
                assert covered(message, fragments) > _COVERED, (title, message)


def test_a_message_that_nobody_prints_is_found(fragments):
    for made_up in ("trainer: the flux of table 'a' has been inverted; turn the crank at step 3",
                    "launch: pserver.1 went home early: it was tired (Sunday)"):
        assert covered(made_up, fragments) < _COVERED
