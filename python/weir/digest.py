"""Digests of parameters, equal to those of the programs: framework/checkpoint/digest.h (scheme version 1) in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weir.rows import Floats, Rows
from weir.stable_hash import hash_bytes, hash_rows, mix_ids

__all__ = ["Digest", "elements_digest", "rows_digest", "some_rows_digest"]

_INDEX_FACTOR = 0x9E3779B97F4A7C15
_BITS_FACTOR = 0xC2B2AE3D27D4EB4F
# Elements that are digested at a time: they and the intermediate results stay in a core's cache.
_RUN_ELEMENTS = 1 << 15


class Digest(NamedTuple):
    """Digests of a checkpoint or of one variable, which `checkpoint digest` prints in hexadecimal."""

    values: int
    state: int


def elements_digest(name: str, begin: int, values: Floats) -> int:
    """Returns the digest of the elements of a dense variable from element `begin` on."""
    seed = hash_bytes(name.encode())
    digest = 0
    for at in range(0, len(values), _RUN_ELEMENTS):
        bits = np.ascontiguousarray(values[at:at + _RUN_ELEMENTS]).view("<u4").astype(np.uint64)
        bits *= np.uint64(_BITS_FACTOR)
        keys = np.arange(len(bits), dtype=np.uint64)
        keys *= np.uint64(_INDEX_FACTOR)
        keys += np.uint64((seed + (begin + at) * _INDEX_FACTOR) % 2**64)
        keys ^= bits
        digest += int(mix_ids(keys).sum(dtype=np.uint64))
    return digest % 2**64


def rows_digest(rows: Rows) -> Digest:
    """Returns the digest of all rows of a table or row file."""
    values = state = 0
    for chunk in rows._chunks:
        digest = some_rows_digest(rows.name, rows.width, chunk.ids, chunk.rows)
        values += digest.values
        state += digest.state
    return Digest(values % 2**64, state % 2**64)


def some_rows_digest(table: str, width: int, ids: npt.NDArray[np.int64], rows: Floats) -> Digest:
    """Returns the digest of rows [n, width + state]. Those of all rows of a table add up to that of the table."""
    seed = hash_bytes(table.encode())
    state = _sum_of_rows(seed, ids, rows[:, width:]) if rows.shape[1] > width else 0
    return Digest(_sum_of_rows(seed, ids, rows[:, :width]), state)


def _sum_of_rows(seed: int, ids: npt.NDArray[np.int64], rows: Floats) -> int:
    keys = ids.astype(np.uint64)
    keys += np.uint64(seed)
    keys = mix_ids(keys)
    keys ^= hash_rows(rows)
    return int(mix_ids(keys).sum(dtype=np.uint64))
