"""Decodes the columns format, for tests. It is written after docs/parquet.md, and shares no code with the package."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = {1: "<i1", 2: "<i2", 3: "<i4", 4: "<i8", 5: "<u1", 6: "<u2", 7: "<u4", 8: "<u8", 9: "<f4", 10: "<f8"}
NULLS, TEXT, DICTIONARY, LIST = 0, 11, 12, 13


@dataclass
class Stream:
    """A decoded stream.

    Attributes:
        names: of the columns.
        columns: by name, all values; None is a missing one. Texts are bytes.
        kinds: by name, the kinds that its batches have; of a list (LIST, kind of the elements).
        batches: rows of each.
    """

    names: list[str]
    columns: dict[str, list[Any]]
    kinds: dict[str, set[Any]] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)


class Bytes:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        assert self.at + size <= len(self.data), f"cut at byte {len(self.data)}"
        self.at += size
        return self.data[self.at - size:self.at]

    def u32(self) -> int:
        return struct.unpack("<I", self.take(4))[0]

    def array(self, dtype: str, count: int) -> np.ndarray:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype)

    def offsets(self, rows: int) -> np.ndarray:
        offsets = self.array("<u4", rows + 1).astype(np.int64)
        assert offsets[0] == 0 and (np.diff(offsets) >= 0).all()
        return offsets

    def texts(self, count: int) -> list[bytes]:
        offsets = self.offsets(count)
        data = self.take(int(offsets[-1]))
        return [data[a:b] for a, b in zip(offsets[:-1], offsets[1:])]


def decode(data: bytes) -> Stream:
    source = Bytes(data)
    assert source.take(8) == b"WEIRCOL1"
    names = [source.take(source.u32()).decode("utf-8", "surrogateescape") for _ in range(source.u32())]
    assert names and len(set(names)) == len(names)
    stream = Stream(names, {name: [] for name in names}, {name: set() for name in names})
    while True:
        rows = source.u32()
        if rows == 0:
            break
        assert rows <= 2**24
        stream.batches.append(rows)
        for name in names:
            kind, values = column(source, rows)
            stream.kinds[name].add(kind)
            stream.columns[name] += values
    assert source.at == len(data), "bytes behind the end mark"
    return stream


def column(source: Bytes, rows: int, in_list: bool = False) -> tuple[Any, list[Any]]:
    kind, has_validity = source.take(2)
    assert has_validity in (0, 1)
    there = np.ones(rows, bool)
    if has_validity:
        bits = np.unpackbits(source.array("u1", (rows + 7) // 8), bitorder="little").astype(bool)
        there = bits[:rows]
        assert not bits[rows:].any(), "bits behind the last value are set"
    shown: Any = kind
    if kind == NULLS:
        assert not has_validity
        return kind, [None] * rows
    if kind in DTYPES:
        values = source.array(DTYPES[kind], rows).tolist()
    elif kind == TEXT:
        values = source.texts(rows)
    elif kind == DICTIONARY:
        entries = source.texts(source.u32())
        codes = source.array("<i4", rows)
        assert ((codes[there] >= 0) & (codes[there] < len(entries))).all()
        values = [entries[code] if 0 <= code < len(entries) else None for code in codes.tolist()]
    else:
        assert kind == LIST and not in_list, f"kind {kind}"
        offsets = source.offsets(rows)
        of, elements = column(source, int(offsets[-1]), in_list=True)
        shown = (LIST, of)
        values = [elements[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
    return shown, [value if here else None for value, here in zip(values, there)]
