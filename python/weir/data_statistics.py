"""Statistics of the training data that a checkpoint holds: trainer/data/data_statistics.h in Python."""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from weir.checkpoint import Checkpoint
from weir.errors import DamagedFileError
from weir.rows import map_file
from weir.stable_hash import hash_bytes

__all__ = ["DataStatistics", "read_statistics"]

_FILE = "statistics"
_MAGICS = (0x31545357, 0x32545357)  # "WST1", and "WST2" with what has been learned behind the rest


class DataStatistics(NamedTuple):
    """Statistics of the data.

    Attributes:
        means, deviations: of the columns of all float variables side by side, float64; empty if none is standardised.
        min_count: how often an id must occur; up to 1: every id is kept.
        kept: the salted ids that do, ascending, uint64.
    """

    means: npt.NDArray[np.float64]
    deviations: npt.NDArray[np.float64]
    min_count: int
    kept: npt.NDArray[np.uint64]


def read_statistics(checkpoint: Checkpoint) -> Optional[DataStatistics]:
    """Returns the statistics in a checkpoint; None if the job needs none. DamagedFileError if they are damaged."""
    if not any(file.name == _FILE for file in checkpoint.manifest.extra):
        return None
    path = os.path.join(checkpoint.path, _FILE)
    raw = map_file(path).tobytes()
    try:
        is_whole = hash_bytes(raw[:-8]) == int.from_bytes(raw[-8:], "little")
        if not is_whole or struct.unpack_from("<I", raw)[0] not in _MAGICS:
            raise DamagedFileError(f"{path}: the bytes are cut or damaged")
        columns = struct.unpack_from("<Q", raw, 4)[0]
        moments: Any = np.frombuffer(raw, [("count", "<i8"), ("mean", "<f8"), ("m2", "<f8")], columns, 12)
        at = 12 + moments.nbytes
        min_count, kept = struct.unpack_from("<qQ", raw, at)
        ids = np.frombuffer(raw, "<u8", kept, at + 16)
    except (struct.error, ValueError):
        raise DamagedFileError(f"{path}: the bytes are cut or damaged") from None
    with np.errstate(invalid="ignore", divide="ignore"):
        deviations = np.sqrt(moments["m2"] / moments["count"])
    return DataStatistics(moments["mean"].copy(), np.where(deviations > 0, deviations, 1.0), min_count, ids)
