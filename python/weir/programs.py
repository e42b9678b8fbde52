"""Finds the C++ programs: trainer, pserver, launch, transpile, checkpoint, convert, ..."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Optional, Union

from weir.errors import ProgramsMissingError

__all__ = ["find", "set_directory"]

# Where a program stands in a built source tree.
_IN_TREE = {
    "trainer": "bazel-bin/trainer",
    "pserver": "bazel-bin/pserver",
    "transpile": "bazel-bin/transpiler",
    "slurm_job": "tools",
}

_directory: Optional[pathlib.Path] = None


def set_directory(directory: Union[str, "os.PathLike[str]", None]) -> None:
    """Takes the programs from this directory, before any other place; None undoes it."""
    global _directory
    _directory = None if directory is None else pathlib.Path(directory)


def find(name: str) -> pathlib.Path:
    """Returns the path of a program.

    Looks in the directory of set_directory, in WEIR_BIN_DIR, in the wheel weir-bin, in the source tree that this file
    is part of (bazel-bin), and in PATH.

    Raises:
        ProgramsMissingError: it is in none of them.
    """
    places = []
    if _directory is not None:
        places.append(_directory / name)
    if os.environ.get("WEIR_BIN_DIR"):
        places.append(pathlib.Path(os.environ["WEIR_BIN_DIR"]) / name)
    try:
        import weir_bin

        places.append(pathlib.Path(weir_bin.__file__).parent / "bin" / name)
    except ImportError:
        pass
    tree = pathlib.Path(__file__).resolve().parent.parent.parent
    places.append(tree / _IN_TREE.get(name, "bazel-bin/tools") / name)
    for place in places:
        if os.access(place, os.X_OK) and place.is_file():
            return place
    in_path = shutil.which(f"weir-{name}")
    if in_path is not None:
        return pathlib.Path(in_path)
    raise ProgramsMissingError(
        f"Weir's program '{name}' is not installed: looked for {', '.join(map(str, places))}, and for weir-{name} in "
        "PATH. Install the wheel weir-bin, or set WEIR_BIN_DIR to the directory with the programs")
