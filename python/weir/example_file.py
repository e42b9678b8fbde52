"""Example files as NumPy arrays, read without the C++ programs. docs/example_files.md describes the format."""

from __future__ import annotations

import os
import struct
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import numpy.typing as npt
from google.protobuf import message

from weir.errors import DamagedFileError
from weir.protos import example_file_pb2
from weir.rows import Bytes, Path, check_header, map_file
from weir.stable_hash import hash_bytes

__all__ = ["Examples", "read_examples"]

FORMAT = 1
_TRAILER = 24
_END = b"WEIREXME"
_HEAD = struct.Struct("<IBBH")


class Examples(NamedTuple):
    """All examples of a file.

    Attributes:
        variables: as the file describes them (weir.v1.ExampleFile.Variable).
        floats: float32 [n, floats], the float variables side by side; NaN is missing.
        counts: int64 [n, slots], the number of ids of each slot.
        ids: int64 [ids], raw: example by example, and slot by slot.
        weights: float32 [ids]; None if no id has one.
    """

    variables: List[Any]
    floats: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    weights: Optional[npt.NDArray[np.float32]]


def read_examples(path: Path) -> Examples:
    """Reads a file. DamagedFileError if it is cut, damaged, of a newer format or no example file."""
    path = os.fspath(path)
    data = map_file(path)
    check_header(path, data, b"WEIREXMP", "example file", FORMAT)
    about = _read_description(path, data)
    floats = sum(each.width for each in about.variable if not each.ids)
    slots = sum(each.width for each in about.variable if each.ids)
    parts = [_read_block(path, block, count, floats, slots) for block, count in _blocks(path, data, about)]
    if not parts:
        parts = [_read_block(path, data[:0], 0, floats, slots)]
    weights = None
    if any(part[3] is not None for part in parts):
        weights = np.concatenate([np.ones(len(part[2]), np.float32) if part[3] is None else part[3] for part in parts])
    return Examples(list(about.variable), np.concatenate([part[0] for part in parts]),
                    np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts]), weights)


def _read_description(path: str, data: Bytes) -> Any:
    trailer = data[-_TRAILER:].tobytes()
    size = int.from_bytes(trailer[:8], "little")
    if trailer[16:] != _END or size > len(data) - 64 - _TRAILER:
        raise DamagedFileError(f"{path} has no end: it was cut, or is still being written")
    text = data[len(data) - _TRAILER - size:len(data) - _TRAILER].tobytes()
    about = example_file_pb2.ExampleFile()
    try:
        sane = hash_bytes(text) == int.from_bytes(trailer[8:16], "little") and about.ParseFromString(text) == len(text)
    except message.DecodeError:
        sane = False
    sane = sane and min((each.width for each in about.variable), default=0) >= 0
    if not sane or not len(about.block_bytes) == len(about.block_examples) == len(about.block_checksum):
        raise DamagedFileError(f"{path}: its description is damaged")
    if about.format_version != FORMAT:
        raise DamagedFileError(f"{path} has format {about.format_version}; this package reads {FORMAT}")
    return about


def _blocks(path: str, data: Bytes, about: Any) -> Iterator[Tuple[Bytes, int]]:
    at = 64
    for i, (size, count, checksum) in enumerate(zip(about.block_bytes, about.block_examples, about.block_checksum)):
        block = data[at:at + size]
        if len(block) != size or hash_bytes(np.ascontiguousarray(block)) != checksum:
            raise DamagedFileError(f"{path}: block {i} at byte {at} is damaged")
        yield block, count
        at += size


def _read_block(path: str, block: Bytes, count: int, floats: int, slots: int) -> Tuple[
        npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64], Optional[npt.NDArray[np.float32]]]:
    # Sizes differ, so that where an example begins is known behind the one before it.
    heads = []
    at = 0
    raw = block.tobytes()
    for _ in range(count):
        if at + _HEAD.size > len(raw):
            raise DamagedFileError(f"{path}: an example does not lie in its block")
        n, wide, one_each, weighted = _HEAD.unpack_from(raw, at)
        heads.append((at + _HEAD.size, n, 8 if wide else 4, one_each, weighted))
        at += _HEAD.size + 4 * floats + (0 if one_each else 2 * slots) + n * ((8 if wide else 4) + 4 * weighted)
    if at != len(raw):
        raise DamagedFileError(f"{path}: examples do not add up to their block")
    head = np.array(heads, np.int64).reshape(-1, 5)
    begin, n, size, one_each, weighted = head.T
    values = _gather(block, begin, 4 * floats).view("<f4").reshape(count, floats)
    counts = np.ones((count, slots), np.int64)
    listed = np.flatnonzero(one_each == 0)
    counts[listed] = _gather(block, begin[listed] + 4 * floats, 2 * slots).view("<u2").reshape(len(listed), slots)
    if not np.array_equal(counts.sum(axis=1), n):
        raise DamagedFileError(f"{path}: numbers of ids do not add up")
    first = begin + 4 * floats + np.where(one_each == 0, 2 * slots, 0)
    inside = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
    places, sizes = np.repeat(first, n) + inside * np.repeat(size, n), np.repeat(size, n)
    ids = np.empty(len(places), np.int64)
    ids[sizes == 8] = _gather(block, places[sizes == 8], 8).view("<i8").reshape(-1)
    ids[sizes == 4] = _gather(block, places[sizes == 4], 4).view("<u4").reshape(-1)
    weights = None
    if weighted.any():
        weights = np.ones(len(places), np.float32)
        at_weights = np.repeat(first + n * size, n) + 4 * inside
        has = np.repeat(weighted, n) > 0
        weights[has] = _gather(block, at_weights[has], 4).view("<f4").reshape(-1)
    return values.astype(np.float32), counts, ids, weights


def _gather(block: Bytes, places: npt.NDArray[np.int64], size: int) -> Bytes:
    """Returns `size` bytes from each place on, [places, size], contiguous."""
    return np.ascontiguousarray(block[places[:, None] + np.arange(size)])
