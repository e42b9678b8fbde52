"""Checkpoints as .safetensors files, and model cards of checkpoints."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

import numpy as np
import pytest

from weir import cli
from weir.checkpoint import Checkpoint
from weir.errors import WeirError

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/framework/checkpoint/testdata/golden"
TYPES = {"F32": np.float32, "I64": np.int64, "U32": np.uint32}


def read(path: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads a file by the description of the format alone, and checks what it demands."""
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    assert (8 + size) % 64 == 0
    assert raw[8:9] == b"{"
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__")
    at, arrays = 0, {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert begin == at, "the arrays leave no gaps"
        at = end
        dtype = np.dtype(TYPES[entry["dtype"]])
        assert (8 + size + begin) % dtype.itemsize == 0
        arrays[name] = np.frombuffer(raw[8 + size + begin:8 + size + end], dtype).reshape(entry["shape"])
    assert at == len(raw) - 8 - size
    return arrays, metadata


@pytest.fixture(name="checkpoint", scope="module")
def fixture_checkpoint() -> Checkpoint:
    return Checkpoint(GOLDEN)


def by_id(arrays: dict[str, np.ndarray], table: str, name: str) -> np.ndarray:
    return arrays[f"{table}.{name}"][np.argsort(arrays[f"{table}.ids"])]


def test_all_values_are_there(checkpoint, tmp_path):
    path = tmp_path / "a.safetensors"
    names = checkpoint.save_safetensors(path)
    arrays, metadata = read(path)
    assert list(arrays) == names
    of_tables = [f"{table}.{what}" for table in checkpoint.tables for what in ("ids", "values")]
    assert set(names) == {*checkpoint.variables, *of_tables}
    for name in checkpoint.variables:
        assert np.array_equal(arrays[name], checkpoint.dense(name))
    for name in checkpoint.tables:
        table = checkpoint.table(name)
        assert np.array_equal(by_id(arrays, name, "ids"), table.ids)
        assert np.array_equal(by_id(arrays, name, "values"), table.values)
    assert metadata["weir.job"] == checkpoint.job_name
    assert metadata["weir.step"] == str(checkpoint.step)
    assert metadata["weir.values_digest"] == f"{checkpoint.digest().values:016x}"


def test_state_is_there_if_asked_for(checkpoint, tmp_path):
    path = tmp_path / "a.safetensors"
    checkpoint.save_safetensors(path, state=True)
    arrays, _ = read(path)
    for name in checkpoint.variables:
        for state, value in checkpoint.state(name).items():
            assert np.array_equal(arrays[f"{name}.{state}"], np.float32(value))
    for name in checkpoint.tables:
        for state, value in checkpoint.table(name).state.items():
            assert np.array_equal(by_id(arrays, name, state), value)


def test_tables_are_chosen_by_name(checkpoint, tmp_path):
    path = tmp_path / "a.safetensors"
    assert checkpoint.save_safetensors(path, tables=[]) == checkpoint.variables
    name = checkpoint.tables[0]
    assert f"{name}.ids" in checkpoint.save_safetensors(path, tables=[name])
    with pytest.raises(WeirError, match=f"has no table '{name}x'"):
        checkpoint.save_safetensors(path, tables=[f"{name}x"])
    with pytest.raises(TypeError, match="tables is a list of names, got the text"):
        checkpoint.save_safetensors(path, tables=name)


def test_the_package_safetensors_reads_the_file(checkpoint, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed (pip install safetensors)")
    path = tmp_path / "a.safetensors"
    checkpoint.save_safetensors(path, state=True)
    ours, _ = read(path)
    theirs = numpy.load_file(path)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype
        assert np.array_equal(value, theirs[name])


def test_a_file_that_cannot_be_written_leaves_nothing(checkpoint, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no directory /nowhere for /nowhere/a.safetensors"):
        checkpoint.save_safetensors("/nowhere/a.safetensors")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save_safetensors(tmp_path / "a.safetensors")
    assert os.listdir(tmp_path) == []


def test_links_are_followed_and_pipes_written(checkpoint, tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "latest.safetensors"
    link.symlink_to("far/real.safetensors")
    checkpoint.save_safetensors(link)
    assert link.is_symlink() and os.listdir(tmp_path / "far") == ["real.safetensors"]
    whole = link.read_bytes()
    checkpoint.save_safetensors(link)
    assert link.is_symlink() and link.read_bytes() == whole
    # As /dev/stdout is a link to a descriptor.
    with tempfile.TemporaryFile() as file:
        (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{file.fileno()}")
        checkpoint.save_safetensors(tmp_path / "stdout")
        file.seek(0)
        assert file.read() == whole
    assert (tmp_path / "stdout").is_symlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        checkpoint.save_safetensors(pipe)
        assert reader.communicate()[0] == whole
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError, match="far is a directory"):
        checkpoint.save_safetensors(tmp_path / "far")


def test_the_command_writes_a_file(tmp_path, capsys):
    path = tmp_path / "a.safetensors"
    assert cli.main(["export", str(GOLDEN), str(path), "--tables="]) == 0
    assert capsys.readouterr().out == f"{path}: {len(read(path)[0])} arrays, {path.stat().st_size} bytes\n"
    assert cli.main(["export", str(GOLDEN), str(path), "--step=123456"]) == 2
    assert "has no checkpoint of step 123456" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------- cards


def test_the_card_says_what_the_checkpoint_knows(checkpoint):
    card = checkpoint.card()
    digest = checkpoint.digest()
    assert card.startswith(f"# {checkpoint.job_name}\n")
    for expected in (f"{digest.values:016x}", f"{digest.state:016x}", f"| training step | {checkpoint.step:,} |",
                     "The licence of the data was not stated"):
        assert expected in card
    for name in checkpoint.tables:
        table = checkpoint.table(name)
        assert f"| `{name}` | {len(table):,} | {table.width} |" in card
    for name in checkpoint.variables:
        assert f"| `{name}` | {list(checkpoint.dense(name).shape)} |" in card
    for name, value in checkpoint.figures.items():
        assert f"| {name} | {value:.6g} |" in card


def test_the_card_states_the_licence_that_it_is_told(checkpoint, capsys, tmp_path):
    card = checkpoint.card(licence_of_data="research and teaching only", notes="For tests.")
    assert "Licence of the data: research and teaching only\n" in card
    assert "## Notes\n\nFor tests.\n" in card
    path = tmp_path / "card.md"
    arguments = ["card", str(GOLDEN), "--licence_of_data=research and teaching only", "--notes=For tests."]
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == card
    assert cli.main([*arguments, f"--output={path}"]) == 0
    assert path.read_text("utf-8") == card


def test_every_row_of_a_table_of_the_card_has_its_cells(checkpoint):
    blocks = [block.splitlines() for block in checkpoint.card().split("\n\n") if block.startswith("|")]
    assert len(blocks) >= 3
    for lines in blocks:
        assert len({line.count("|") for line in lines}) == 1, lines
        assert all(line.startswith("| ") and line.endswith(" |") for line in lines)
