"""Writes a checkpoint as a .safetensors file: a length in 8 bytes, a header as JSON, and the arrays without gaps."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from weir.errors import WeirError
from weir.nearest import did_you_mean
from weir.output_file import whole_file
from weir.rows import Path
from weir.saved import Saved

__all__ = ["write_checkpoint"]

# The arrays begin at a multiple of it, so that they are aligned in a mapped file.
_ALIGN = 64
_TYPES = {"float32": "F32", "int64": "I64", "uint32": "U32"}
# Floats of rows that are copied at a time.
_PIECE = 1 << 20


class _Array(NamedTuple):
    name: str
    dtype: str
    dims: Tuple[int, ...]
    pieces: Callable[[], Iterable[npt.NDArray[Any]]]

    @property
    def bytes(self) -> int:
        count = 1
        for dim in self.dims:
            count *= dim
        return count * np.dtype(self.dtype).itemsize


def write_checkpoint(checkpoint: Saved, path: Path, tables: Optional[Sequence[str]], state: bool) -> List[str]:
    """Writes the file, as a whole or not at all, table by table in pieces. Returns the names of the arrays, in order.

    Raises:
        WeirError: there is no such table.
        OSError: the file cannot be written.
    """
    path = os.fspath(path)
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise FileNotFoundError(f"there is no directory {directory} for {path}")
    # int64 first: what follows is then aligned to its own size, whatever the sizes.
    arrays = sorted(_arrays(checkpoint, _chosen(checkpoint, tables), state),
                    key=lambda each: (-np.dtype(each.dtype).itemsize, each.name))
    metadata = {
        "weir.job": checkpoint.job_name, "weir.step": str(checkpoint.step),
        "weir.values_digest": f"{checkpoint.manifest.values_digest:016x}",
        "weir.state_digest": f"{checkpoint.manifest.state_digest:016x}",
    }
    with whole_file(path) as file:
        file.write(_header(arrays, metadata))
        for each in arrays:
            written = 0  # a pipe has no tell()
            for piece in each.pieces():
                written += file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
            if written != each.bytes:
                raise WeirError(f"'{each.name}' has {written} bytes, and {each.bytes} were expected")
    return [each.name for each in arrays]


def _chosen(checkpoint: Saved, tables: Optional[Sequence[str]]) -> Sequence[str]:
    if tables is None:
        return checkpoint.tables
    if isinstance(tables, str):
        raise TypeError(f"tables is a list of names, got the text {tables!r}")
    for each in tables:
        if each not in checkpoint.tables:
            raise WeirError(f"{checkpoint.path} has no table '{each}'{did_you_mean(each, checkpoint.tables)}")
    return tables


def _arrays(checkpoint: Saved, tables: Sequence[str], state: bool) -> Iterator[_Array]:
    for name in checkpoint.variables:
        yield _whole(name, checkpoint.dense(name))
        if state:
            for of, value in checkpoint.state(name).items():
                yield _whole(f"{name}.{of}", np.asarray(value, np.float32))
    for name in tables:
        rows = checkpoint.table(name)
        chunks, width = rows._chunks, rows.width
        yield _Array(f"{name}.ids", "int64", (len(rows),), _ids(rows))
        yield _Array(f"{name}.values", "float32", (len(rows), width), _columns(chunks, 0, width))
        begin = width
        for of, columns in rows.state_widths.items() if state else ():
            dtype = "uint32" if of in ("lifecycle.count", "lifecycle.step", "lifecycle.second") else "float32"
            yield _Array(f"{name}.{of}", dtype, (len(rows), columns), _columns(chunks, begin, begin + columns))
            begin += columns


def _whole(name: str, value: npt.NDArray[np.float32]) -> _Array:
    return _Array(name, "float32", value.shape, lambda: [value])


def _ids(rows: Any) -> Callable[[], List[npt.NDArray[np.int64]]]:
    """Returns what returns the ids of all rows."""
    return lambda: [rows.ids_in_order_of_file()]


def _columns(chunks: Any, begin: int, end: int) -> Callable[[], Iterator[npt.NDArray[Any]]]:
    """Returns what yields columns of all rows in the order of the ids. Integers have their bits already."""

    def pieces() -> Iterator[npt.NDArray[Any]]:
        for chunk in chunks:
            step = max(1, _PIECE // max(1, end - begin))
            for at in range(0, chunk.count, step):
                yield chunk.rows[at:at + step, begin:end]

    return pieces


def _header(arrays: Sequence[_Array], metadata: Dict[str, str]) -> bytes:
    described: Dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for each in arrays:
        described[each.name] = {"dtype": _TYPES[each.dtype], "shape": list(each.dims),
                                "data_offsets": [at, at + each.bytes]}
        at += each.bytes
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % _ALIGN)
    return len(text).to_bytes(8, "little") + text
