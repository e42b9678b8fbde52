"""Types of the package, as mypy sees them: in the package itself, and in a program that uses it."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


OLDEST = (1, 11)


def candidates():
    """Returns commands of mypy: of WEIR_MYPY, else of this Python, else of PATH."""
    if os.environ.get("WEIR_MYPY"):
        return [[os.environ["WEIR_MYPY"]]]
    here = [[sys.executable, "-m", "mypy"]] if importlib.util.find_spec("mypy") is not None else []
    in_path = shutil.which("mypy")
    return here + ([[in_path]] if in_path else [])


def why_not(command):
    """Returns why this mypy does not do, "" if it does."""
    version = subprocess.run([*command, "--version"], stdout=subprocess.PIPE, text=True).stdout
    found = re.match(r"mypy (\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < OLDEST:
        return f"{' '.join(command)} is {version.strip() or 'no mypy'}, older than {OLDEST[0]}.{OLDEST[1]}"
    said = subprocess.run([*command, f"--cache-dir={os.devnull}", "-c", "import google.protobuf.message"],
                          stdout=subprocess.PIPE, text=True).stdout
    return "" if "Success" in said else f"{' '.join(command)} has no types of protobuf"


REASONS = {" ".join(each): why_not(each) for each in candidates()}
MYPY = next((each for each in candidates() if not REASONS[" ".join(each)]), None)
if MYPY is None:
    pytest.skip(f"no mypy to check types with ({'; '.join(REASONS.values()) or 'not installed'}): pip install mypy "
                "types-protobuf, or set WEIR_MYPY to the program", allow_module_level=True)

PROGRAM = """
import weir

job = weir.Job("a", train={"epochs": 2})
job.train.epochs = 3
job.train.device = weir.v1.Train.CPU
checkpoint = weir.Checkpoint("checkpoints")
reveal_type(checkpoint.step)
reveal_type(checkpoint.table("vectors").ids)
reveal_type(weir.train(job).done)
reveal_type(weir.Client("127.0.0.1:6170", job).rows("vectors", [1, 2]))
reveal_type(job.table[0].width)
reveal_type(weir.Client("127.0.0.1:6170").status()[0].chief)
weir.write_rows("a.rows", "vectors", [1, 2], [[0.5], [1.5]], {"moment": [[0.5], [1.5]]})
weir.write_rows("a.rows", "vectors", iter([([1], [[0.5]]), ([2], [[0.5]])]))
weir.write_rows("a.rows", "vectors", checkpoint.table("vectors"))
rows = checkpoint.table("vectors")
weir.write_checkpoint("new", {"w": checkpoint.dense("w")}, state={"w": checkpoint.state("w")}, tables={"vectors": rows})
weir.edit_checkpoint(checkpoint, "new", values={"w": [1.0], "v": None}, state={"w": None, "u": {"step": 1.0}}, tables={
    "vectors": lambda rows: rows._replace(values=rows.values * 2), "other": None, "more": ([1], [[1.0]])})
reveal_type(weir.edit_checkpoint("checkpoints", "new").step)
"""

WRONG = """
import weir

job = weir.Job("a", trian={})
job.train.epoch = 3
job.train.epochs = "three"
weir.train(job, servers="two")
weir.Checkpoint("checkpoints").dense(3)
weir.Client("127.0.0.1:6170").rows(7, [1])
weir.write_rows("a.rows", 3, [1], [[0.5]])
weir.write_checkpoint("new", {"w": 1.0}, step="one")
weir.edit_checkpoint("old", "new", tables={"vectors": 3})
"""


def mypy(tmp_path, *arguments):
    done = subprocess.run(
        [*MYPY, f"--config-file={ROOT / 'python/pyproject.toml'}", f"--cache-dir={tmp_path / 'cache'}", *arguments],
        cwd=ROOT / "python", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
        env={**os.environ, "MYPYPATH": str(ROOT / "python")})
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_the_package_has_no_type_errors_under_strict_rules(cache):
    said = mypy(cache, "weir")
    assert said.startswith("Success: no issues found"), said


def test_a_program_that_uses_the_package_sees_its_types(cache, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    said = mypy(cache, str(tmp_path / "program.py"))
    revealed = re.findall(r'Revealed type is "(.*)"', said)
    assert "error" not in said and len(revealed) == 7, said
    step, ids, done, rows, width, chief, edited = (each.replace("builtins.", "") for each in revealed)
    assert step == edited == width == "int" and chief.replace("Union[int, None]", "int | None") == "int | None"
    assert "signedinteger" in ids and "floating" in rows and done.lower().startswith("dict[str")


def test_a_wrong_program_is_found_out(cache, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    said = mypy(cache, str(tmp_path / "wrong.py"))
    lines = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", said)}
    assert lines == set(range(4, 13)), said
