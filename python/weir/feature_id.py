"""Ids that tables use for the raw ids of data files: framework/base/feature_id.h in NumPy."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from weir.stable_hash import hash_bytes, hash_texts, mix_ids

__all__ = ["as_ids", "feature_ids", "missing_id", "padding_id", "rare_id", "slot_salt"]


def feature_ids(raw: Union[npt.ArrayLike, Sequence[Union[str, bytes]]], variable: str, slot: Optional[str] = None,
                shared: bool = False) -> npt.NDArray[np.int64]:
    """Returns the ids by which tables know raw ids of the data, as int64 of the shape of `raw`.

        checkpoint = weir.Checkpoint("checkpoints")
        users = checkpoint.table("vectors").rows(weir.feature_ids([17, 4], "user"))
        cities = checkpoint.table("vectors").rows(weir.feature_ids(["Oslo", "Rome"], "city"))
        c7 = checkpoint.table("field_vectors").rows(weir.feature_ids([0x68fd1e64], "cat", "C7"))

    Args:
        raw: integers as the data have them (an unsigned one from 2^63 on stands for the id of the same bits), or texts
            of a column of type TEXT, str or bytes.
        variable: the variable of the program: the `output` of columns or slots that are placed side by side, else the
            name of the column.
        slot: the column or slot in the variable; default: one of the variable's name.
        shared: the job names the variable in data.ids.shared. Its ids are then raw, and the slot has no effect.

    An empty field, a value that min_count leaves out and a padding id have ids of their own: missing_id, rare_id,
    padding_id.

    Raises:
        TypeError: `raw` has neither integers nor texts.
    """
    values: npt.NDArray[Any] = np.asarray(raw)
    ids: npt.NDArray[np.int64]
    if values.dtype.kind in "US" or (values.dtype.kind == "O" and _all_texts(values)):
        flat = values.reshape(-1).tolist() if not isinstance(raw, (list, tuple)) or values.ndim != 1 else list(raw)
        ids = hash_texts(flat).astype(np.int64).reshape(values.shape)
    else:
        ids = as_ids(values)
    if shared:
        return np.array(ids)
    return _salted(ids, slot_salt(variable, slot, shared))


def missing_id(variable: str, slot: Optional[str] = None, shared: bool = False) -> int:
    """Returns the id that stands for an empty field of a slot, unless the job sets data.ids.empty to ZERO."""
    return _signed(hash_bytes(b"missing", slot_salt(variable, slot, shared)))


def rare_id(variable: str, slot: Optional[str] = None, shared: bool = False) -> int:
    """Returns the id that stands for the values of a slot that data.ids.min_count leaves out."""
    return _signed(hash_bytes(b"rare", slot_salt(variable, slot, shared)))


def padding_id(raw: int) -> int:
    """Returns the id of a raw padding id, in every slot of every variable that is not shared."""
    return int(_salted(as_ids([raw]), hash_bytes(b"padding"))[0])


def as_ids(ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Returns integers as int64; unsigned ones keep their bits. TypeError for anything else."""
    array = np.asarray(ids)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise TypeError(f"ids are integers, got {array.dtype} such as {array.reshape(-1)[:1].tolist()[0]!r}")
    return array.astype(np.int64, copy=False)


def slot_salt(variable: str, slot: Optional[str], shared: bool) -> int:
    """Returns the salt of a slot."""
    if shared:
        slot = ""
    elif slot is None:
        slot = variable
    return hash_bytes(f"{variable}\n{slot}".encode())


def _salted(ids: npt.NDArray[np.int64], salt: int) -> npt.NDArray[np.int64]:
    mixed = mix_ids(ids)
    mixed ^= np.uint64(salt)
    salted: npt.NDArray[np.int64] = mix_ids(mixed).astype(np.int64)
    return salted


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _all_texts(values: npt.NDArray[Any]) -> bool:
    return all(isinstance(value, (str, bytes)) for value in values.reshape(-1))
