"""Initial values of rows, by id: framework/runtime/initial_value.h in NumPy, equal to the bit.

A row that a table does not have reads as its initial values.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

import numpy as np
import numpy.typing as npt

from weir.protos import program_pb2
from weir.stable_hash import UInts, hash_bytes

__all__ = ["PHILOX_FACTORS", "PHILOX_ROUNDS", "PHILOX_STEPS", "QUANTILE", "ColumnValues", "columns_of", "initial_rows",
           "is_constant", "key_of"]

# Philox4x32-10 (framework/base/philox.h).
PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10

# Polynomials of the quantile of the normal distribution (Wichura, AS 241): numerator and denominator of the middle, of
# the near and of the far tail; lowest power first.
QUANTILE = (
    ((3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
      4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3),
     (1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3, 2.1213794301586595867e+4,
      3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3)),
    ((1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
      1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
     (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
      1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9)),
    ((6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
      2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
     (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
      1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15)),
)

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class ColumnValues(NamedTuple):
    """Initial values of the columns [begin, end) of a row.

    `kind` is "constant" (a), "uniform" (from a, as wide as b) or "gaussian" (mean a, deviation b). a and b are float32.
    """

    begin: int
    end: int
    kind: str
    a: np.float32
    b: np.float32


def key_of(seed: int, table: str) -> int:
    """Returns the key of a table's random numbers."""
    return hash_bytes(table.encode(), seed)


def columns_of(program: Any, table: Any, zero_columns: Tuple[int, int] = (0, 0)) -> List[ColumnValues]:
    """Returns how rows of a table begin: of its variable, or of its segments, whose updates `program` has.

    Columns [first, end) of `zero_columns`, those of the rows in the checkpoint (Rows.zero_columns), are 0 instead.
    """
    width = table.dims[1]
    parts = []
    for block in program.blocks:
        for op in block.ops:
            if op.role != program_pb2.OPTIMIZE or not any(
                    slot.name == "Param" and list(slot.vars) == [table.name] for slot in op.inputs):
                continue
            attrs = {attr.name: attr for attr in op.attrs}
            # A decay or a bound is no update.
            if not any(slot.name == "LearningRate" for slot in op.inputs):
                continue
            begin, end = attrs["columns"].ints.v if "columns" in attrs else (0, width)
            own = attrs["initializer"].initializer if "initializer" in attrs else table.initializer
            # A segment that begins later is zeros until then.
            later = "after" in attrs and attrs["after"].i > 0
            parts.append(_values(begin, end, program_pb2.Initializer() if later else own))
    return _with_zeros(sorted(parts) or [_values(0, width, table.initializer)], *zero_columns)


def _with_zeros(columns: List[ColumnValues], first: int, end: int) -> List[ColumnValues]:
    if first >= end:
        return columns
    zeros = ColumnValues(first, end, "constant", np.float32(0), np.float32(0))
    left = [each._replace(end=min(each.end, first)) for each in columns if each.begin < first]
    right = [each._replace(begin=max(each.begin, end)) for each in columns if each.end > end]
    return [*left, zeros, *right]


def is_constant(columns: List[ColumnValues]) -> bool:
    """Returns whether all rows begin with the same values."""
    return all(each.kind == "constant" for each in columns)


def initial_rows(columns: List[ColumnValues], key: int, ids: npt.NDArray[np.int64],
                 dtype: int = program_pb2.FLOAT32) -> npt.NDArray[np.float32]:
    """Returns the initial values of rows, float32 [n, width]. `dtype`: FLOAT32, or that of a table of 16 bits."""
    rows = np.empty((len(ids), columns[-1].end), np.float32)
    words = None
    for each in columns:
        if each.kind == "constant":
            rows[:, each.begin:each.end] = each.a
            continue
        if words is None:
            words = _philox(key, np.asarray(ids), (columns[-1].end + 3) // 4)
        bits = words[:, each.begin:each.end]
        rows[:, each.begin:each.end] = (_uniform if each.kind == "uniform" else _gaussian)(bits, each.a, each.b)
    return _rounded(rows, dtype)


def _values(begin: int, end: int, init: Any) -> ColumnValues:
    kind = init.WhichOneof("kind")
    if kind == "uniform":
        low, high = init.uniform.min, init.uniform.max
        return ColumnValues(begin, end, "uniform", np.float32(low), np.float32(high - low))
    if kind == "gaussian":
        return ColumnValues(begin, end, "gaussian", np.float32(init.gaussian.mean), np.float32(init.gaussian.stddev))
    if kind == "xavier" and init.xavier.fan_in > 0 and init.xavier.fan_out > 0:
        fans = float(init.xavier.fan_in + init.xavier.fan_out)
        if init.xavier.uniform:
            limit = np.sqrt(6.0 / fans)
            return ColumnValues(begin, end, "uniform", np.float32(-limit), np.float32(2 * limit))
        return ColumnValues(begin, end, "gaussian", np.float32(0), np.float32(np.sqrt(2.0 / fans)))
    value = init.constant.value if kind == "constant" else 0.0
    return ColumnValues(begin, end, "constant", np.float32(value), np.float32(0))


def _philox(key: int, ids: npt.NDArray[np.int64], blocks: int) -> npt.NDArray[np.uint32]:
    """Returns the words of the first blocks of each id, [n, 4 blocks]."""
    bits = ids.astype(np.uint64)[:, None]
    zero: UInts = np.zeros((len(ids), blocks), np.uint64)
    c0: UInts = zero + np.arange(blocks).astype(np.uint64)
    c1: UInts = zero
    c2: UInts = zero + (bits & _MASK)
    c3: UInts = zero + (bits >> _HALF)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(PHILOX_ROUNDS):
        p0: UInts = c0 * np.uint64(PHILOX_FACTORS[0])
        p1: UInts = c2 * np.uint64(PHILOX_FACTORS[1])
        c0, c2 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), (p0 >> _HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & _MASK, p0 & _MASK
        k0, k1 = (k0 + PHILOX_STEPS[0]) & 0xFFFFFFFF, (k1 + PHILOX_STEPS[1]) & 0xFFFFFFFF
    words: npt.NDArray[np.uint32] = np.stack([c0, c1, c2, c3], axis=-1).reshape(len(ids), 4 * blocks).astype(np.uint32)
    return words


def _uniform(bits: npt.NDArray[np.uint32], a: np.float32, b: np.float32) -> npt.NDArray[np.float32]:
    values = a + (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) * b
    top = a + b
    return values if b == 0 else np.where(values < top, values, np.nextafter(top, a))


def _gaussian(bits: npt.NDArray[np.uint32], mean: np.float32, deviation: np.float32) -> npt.NDArray[np.float32]:
    p = (bits.astype(np.float64) + 0.5) * 2.0**-32
    q = p - 0.5
    middle = 0.180625 - q * q
    tail = np.sqrt(-np.log(np.where(q < 0, p, 1 - p)))
    quantile = [_ratio(QUANTILE[0], middle), _ratio(QUANTILE[1], tail - 1.6), _ratio(QUANTILE[2], tail - 5)]
    far = np.where(tail <= 5, quantile[1], quantile[2])
    values = np.where(np.abs(q) <= 0.425, q * quantile[0], np.where(q < 0, -far, far))
    return mean + deviation * values.astype(np.float32)


def _ratio(of: Any, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    parts = []
    for coefficients in of:
        total = np.full_like(x, coefficients[-1])
        for each in reversed(coefficients[:-1]):
            total = total * x + each
        parts.append(total)
    ratio: npt.NDArray[np.float64] = parts[0] / parts[1]
    return ratio


def _rounded(rows: npt.NDArray[np.float32], dtype: int) -> npt.NDArray[np.float32]:
    if dtype == program_pb2.FLOAT16:
        most = np.float32(65504)
        return np.clip(rows, -most, most).astype(np.float16).astype(np.float32)
    if dtype == program_pb2.BFLOAT16:
        bits = rows.view(np.uint32)
        # To the nearest, ties to even; initial values are finite.
        nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return (nearest & np.uint32(0xFFFF0000)).view(np.float32)
    return rows
