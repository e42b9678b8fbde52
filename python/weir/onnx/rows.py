"""Look-ups of rows in an ONNX graph: from ids to places of rows, rows, and what an id without a row gets."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from weir import initial_values
from weir.errors import WeirError
from weir.onnx.graph import Graph, type_number
from weir.protos import program_pb2
from weir.rows import Rows

__all__ = ["Bags", "LOOKUPS", "MAP_BYTES", "Places", "RowSource", "Tables", "UNKNOWN"]

# Ways from an id to the place of its row: a map in the model (LabelEncoder) or buckets of ids in its arrays.
LOOKUPS = ("auto", "map", "buckets")
# What an id without a row gets: the initial values that `--role=predict` gives it, or zeros.
UNKNOWN = ("initial", "zero")

# Most bytes of the ids of all tables in a model, which protobuf limits to 2 GiB as a whole.
MAP_BYTES = 1_900_000_000
# An id in a map: its bytes and those of its place, as varints.
_MAP_BYTES_EACH = 15

# Ids that a bucket holds.
_BUCKET = 16
# Most buckets, for each id. Ids that are spread evenly need 0.4 of 100 million.
_MOST_BUCKETS = 8


class Bags(NamedTuple):
    """Ids of a variable in the graph.

    Attributes:
        ids: int64 [B, S], or with `valid` [B, S, L]. None where rows are inputs.
        lengths: int64 [B, S]: number of ids of each slot, from the first on; None: each slot has one.
        valid: bool [B, S, L]: the ids that are there; None: each slot has one.
        weights: float [B, S, L]; None: all are 1.
    """

    ids: Optional[str]
    lengths: Optional[str] = None
    valid: Optional[str] = None
    weights: Optional[str] = None


class RowSource(NamedTuple):
    """Rows of a table, and how rows begin that it does not have."""

    rows: Rows
    columns: List[initial_values.ColumnValues]
    key: int
    dtype: int


class Places(NamedTuple):
    """Places of rows for the ids of several variables: int64 [n] for all ids one after the other.

    `ids` are those ids, `unknown` [n] says which have no row; their place is behind the last row.
    """

    ids: str
    places: str
    unknown: str


class Tables:
    """Adds look-ups in tables to a graph. Every table is searched once, for all variables that read it.

    Args:
        graph: to add to.
        reads: for each table the variables whose ids are looked up in it, in order.
        lookup, unknown: of LOOKUPS and UNKNOWN.
        map_bytes: most bytes of ids in the model.
    """

    def __init__(self, graph: Graph, reads: Dict[str, List[str]], lookup: str, unknown: str, map_bytes: int):
        self._graph = graph
        self._reads = reads
        self._lookup = lookup
        self._unknown = unknown
        self._map_bytes_left = map_bytes
        # Maps so far, with their variables, ids and tables.
        self._maps: List[Tuple[Tuple[str, ...], npt.NDArray[np.int64], str, Places]] = []
        self._flat: Dict[Tuple[str, ...], Tuple[str, Optional[str]]] = {}
        self._rows: Dict[Tuple[str, str], str] = {}
        # By table: which way its ids are looked up.
        self.chosen: Dict[str, str] = {}

    def rows(self, table: str, source: RowSource, variable: str, bags: Dict[str, Bags]) -> str:
        """Returns the rows of the ids of a variable, of their shape with one more axis.

        Args:
            bags: ids of every variable that reads the table.
        """
        if (table, variable) not in self._rows:
            self._add(table, source, bags)
        return self._rows[table, variable]

    def _add(self, table: str, source: RowSource, bags: Dict[str, Bags]) -> None:
        graph, variables = self._graph, tuple(self._reads[table])
        outer = graph.scope
        graph.scope = table
        found = self._places(table, source.rows, variables, bags)
        rows = self._gather(table, source, found)
        shapes = [graph.op("Shape", _ids(bags[each])) for each in variables]
        parts = [rows]
        if len(variables) > 1:
            sizes = [graph.op("ReduceProd", shape, keepdims=1) for shape in shapes]
            parts = graph.ops("Split", rows, graph.op("Concat", *sizes, axis=0), names=[None] * len(variables), axis=0)
        width = graph.constant([source.rows.width], np.int64)
        for variable, part, shape in zip(variables, parts, shapes):
            whole = graph.op("Concat", shape, width, axis=0)
            self._rows[table, variable] = graph.op("Reshape", part, whole, name=f"{table}/{variable}")
        graph.scope = outer

    def _places(self, table: str, rows: Rows, variables: Tuple[str, ...], bags: Dict[str, Bags]) -> Places:
        ids = rows.ids_in_order_of_file()
        for of, known, other, places in self._maps:
            # Tables that one variable reads have the same ids as a rule, and rows in the same order.
            if of == variables and np.array_equal(known, ids):
                self.chosen[table] = self.chosen[other]
                return places
        flat, valid = self._flat_ids(variables, bags)
        found = self._add_map(table, ids, flat) if self._takes_map(table, ids) else self._add_buckets(table, ids, flat)
        behind = self._graph.constant(len(ids), np.int64)
        if valid is not None:
            # What stands behind the length of a list is no id.
            found = self._graph.op("Where", valid, found, behind)
        unknown = self._graph.op("Equal", found, behind)
        if valid is not None:
            unknown = self._graph.op("And", unknown, valid)
        places = Places(flat, found, unknown)
        self._maps.append((variables, ids, table, places))
        return places

    def _flat_ids(self, variables: Tuple[str, ...], bags: Dict[str, Bags]) -> Tuple[str, Optional[str]]:
        """Returns the ids of the variables, one after the other, and which of them are there."""
        if variables in self._flat:
            return self._flat[variables]
        graph = self._graph
        all_of_them = graph.constant([-1], np.int64)
        parts = [graph.op("Reshape", _ids(bags[each]), all_of_them) for each in variables]
        valid: Optional[str] = None
        if any(bags[each].valid is not None for each in variables):
            flags = []
            for each, part in zip(variables, parts):
                of = bags[each].valid
                flags.append(graph.op("Equal", part, part) if of is None else graph.op("Reshape", of, all_of_them))
            valid = flags[0] if len(flags) == 1 else graph.op("Concat", *flags, axis=0)
        ids = parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=0)
        self._flat[variables] = ids, valid
        return ids, valid

    def _takes_map(self, table: str, ids: npt.NDArray[np.int64]) -> bool:
        needed = len(ids) * _MAP_BYTES_EACH
        if self._lookup == "map" and needed > self._map_bytes_left:
            raise WeirError(
                f"table '{table}' has {len(ids)} ids, which take {needed} bytes in the model, and "
                f"{self._map_bytes_left} are left of what a model can hold: look ids up in buckets "
                "(lookup='buckets'), or export the dense part alone (dense_only=True)")
        takes = self._lookup == "map" or (self._lookup == "auto" and needed <= self._map_bytes_left)
        self._map_bytes_left -= needed if takes else 0
        self.chosen[table] = "map" if takes else "buckets"
        return takes

    def _add_map(self, table: str, ids: npt.NDArray[np.int64], flat: str) -> str:
        if len(ids) == 0:
            # A map without an id is none for onnxruntime.
            return self._graph.op("Mul", flat, self._graph.constant(0, np.int64))
        return self._graph.op("LabelEncoder", flat, domain="ai.onnx.ml", keys_int64s=ids,
                              values_int64s=np.arange(len(ids)), default_int64=len(ids))

    def _add_buckets(self, table: str, ids: npt.NDArray[np.int64], flat: str) -> str:
        """Compares an id with the ids of its bucket: the rest of its division by the number of buckets."""
        graph = self._graph
        keys, numbers = _in_buckets(table, ids)
        bucket = graph.op("Mod", flat, graph.constant(len(keys), np.int64))
        candidates = graph.op("Gather", graph.array(f"{table}.bucket_ids", keys), bucket)
        places = graph.op("Gather", graph.array(f"{table}.bucket_places", numbers), bucket)
        last = graph.constant([-1], np.int64)
        hit = graph.op("Equal", candidates, graph.op("Unsqueeze", flat, last))
        places = graph.op("Where", hit, places, graph.constant(len(ids), numbers.dtype))
        return graph.op("Cast", graph.op("ReduceMin", places, last, keepdims=0), to=type_number("int64"))

    def _gather(self, table: str, source: RowSource, found: Places) -> str:
        """Returns the rows at the places, [n, width]."""
        graph, rows = self._graph, source.rows
        initial = self._unknown == "initial"
        constant = not initial or initial_values.is_constant(source.columns)
        behind = np.zeros((1, rows.width), np.float32)
        if initial and constant:
            behind = initial_values.initial_rows(source.columns, source.key, np.zeros(1, np.int64), source.dtype)

        def pieces() -> Iterator[npt.NDArray[np.float32]]:
            yield from _pieces_of(rows)
            yield behind

        values = graph.rows(f"{table}.rows", (len(rows) + 1, rows.width), "float32", pieces)
        gathered = graph.op("Gather", values, found.places)
        return gathered if constant else self._with_initial_rows(source, found, gathered)

    def _with_initial_rows(self, source: RowSource, found: Places, gathered: str) -> str:
        """Replaces the rows of unknown ids by their initial values, if there are any."""
        graph = self._graph
        places = graph.op("Transpose", graph.op("NonZero", found.unknown), perm=[1, 0])
        count = graph.op("Size", places)
        some = graph.branch("initial_values")
        ids = some.op("GatherND", found.ids, places)
        rows = _InitialRows(some, source).rows(ids)
        some.output(some.unique(f"{graph.scope}/with_initial"),
                    some.op("ScatterND", gathered, places, rows), "float32", ["ids", source.rows.width])
        none = graph.branch("no_initial_values")
        none.output(none.unique(f"{graph.scope}/as_they_are"), gathered, "float32", ["ids", source.rows.width])
        has_some = graph.op("Greater", count, graph.constant(0, np.int64))
        return graph.op("If", has_some, then_branch=some, else_branch=none)


class _InitialRows:
    """Computes initial values in the graph, as weir.initial_values does: Philox on int64 without an overflow."""

    def __init__(self, graph: Graph, source: RowSource):
        self._graph = graph
        self._source = source

    def rows(self, ids: str) -> str:
        """Returns the initial values of rows of these ids [k], [k, width]."""
        graph, columns = self._graph, self._source.columns
        words = self._words(ids, (columns[-1].end + 3) // 4)
        one = graph.constant([1], np.int64)
        parts = []
        for each in columns:
            bits = graph.op("Slice", words, graph.constant([each.begin], np.int64),
                            graph.constant([each.end], np.int64), one)
            if each.kind == "uniform":
                parts.append(self._uniform(bits, each))
            elif each.kind == "gaussian":
                parts.append(self._gaussian(bits, each))
            else:
                zeros = graph.op("Mul", bits, graph.constant(0, np.int64))
                parts.append(graph.op("Add", graph.op("Cast", zeros, to=type_number("float32")),
                                      graph.constant(each.a, np.float32)))
        rows = parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)
        if self._source.dtype == program_pb2.FLOAT32:
            return rows
        stored = "float16" if self._source.dtype == program_pb2.FLOAT16 else "bfloat16"
        return graph.op("Cast", graph.op("Cast", rows, to=type_number(stored)), to=type_number("float32"))

    def _words(self, ids: str, blocks: int) -> str:
        """Returns the random words of each id, int64 [k, 4 blocks]."""
        graph, key = self._graph, self._source.key
        half = graph.constant(2**32, np.int64)
        column = graph.op("Unsqueeze", ids, graph.constant([1], np.int64))
        # The rest of a division has the sign of the divisor: the bits of a negative id, too, are below 2^32.
        low = graph.op("Mod", column, half)
        high = graph.op("Mod", graph.op("Div", graph.op("Sub", column, low), half), half)
        zero = graph.op("Mul", column, graph.constant(np.zeros((1, blocks)), np.int64))
        c0, c1 = graph.op("Add", zero, graph.constant(np.arange(blocks)[None], np.int64)), zero
        c2, c3 = graph.op("Add", zero, low), graph.op("Add", zero, high)
        k0, k1 = key & 0xFFFFFFFF, key >> 32
        for _ in range(initial_values.PHILOX_ROUNDS):
            high0, low0 = self._product(c0, initial_values.PHILOX_FACTORS[0])
            high1, low1 = self._product(c2, initial_values.PHILOX_FACTORS[1])
            c0, c2 = self._xor(high1, c1, k0), self._xor(high0, c3, k1)
            c1, c3 = low1, low0
            k0 = (k0 + initial_values.PHILOX_STEPS[0]) & 0xFFFFFFFF
            k1 = (k1 + initial_values.PHILOX_STEPS[1]) & 0xFFFFFFFF
        last = graph.constant([-1], np.int64)
        words = graph.op("Concat", *(graph.op("Unsqueeze", each, last) for each in (c0, c1, c2, c3)), axis=2)
        return graph.op("Reshape", words, graph.constant([0, 4 * blocks], np.int64))

    def _xor(self, a: str, b: str, key: int) -> str:
        graph = self._graph
        return graph.op("BitwiseXor", graph.op("BitwiseXor", a, b), graph.constant(key, np.int64))

    def _product(self, x: str, factor: int) -> Tuple[str, str]:
        """Returns the upper and the lower half of the product of 32-bit numbers, by 16 bits of x at a time."""
        graph = self._graph
        quarter = graph.constant(2**16, np.int64)
        by = graph.constant(factor, np.int64)
        low = graph.op("Mul", graph.op("Mod", x, quarter), by)
        high = graph.op("Add", graph.op("Mul", graph.op("Div", x, quarter), by), graph.op("Div", low, quarter))
        below = graph.op("Add", graph.op("Mul", graph.op("Mod", high, quarter), quarter),
                         graph.op("Mod", low, quarter))
        return graph.op("Div", high, quarter), below

    def _uniform(self, bits: str, of: initial_values.ColumnValues) -> str:
        graph = self._graph
        fraction = graph.op("Cast", graph.op("Div", bits, graph.constant(256, np.int64)), to=type_number("float32"))
        fraction = graph.op("Mul", fraction, graph.constant(2.0**-24, np.float32))
        values = graph.op("Add", graph.op("Mul", fraction, graph.constant(of.b, np.float32)),
                          graph.constant(of.a, np.float32))
        if of.b == 0:
            return values
        top = np.float32(of.a + of.b)
        below = graph.op("Less", values, graph.constant(top, np.float32))
        return graph.op("Where", below, values, graph.constant(np.nextafter(top, of.a), np.float32))

    def _gaussian(self, bits: str, of: initial_values.ColumnValues) -> str:
        graph = self._graph

        def number(value: float) -> str:
            return graph.constant(value, np.float64)

        def ratio(of: Sequence[Sequence[float]], x: str) -> str:
            parts = []
            for coefficients in of:
                total = number(coefficients[-1])
                for each in reversed(coefficients[:-1]):
                    total = graph.op("Add", graph.op("Mul", total, x), number(each))
                parts.append(total)
            return graph.op("Div", *parts)

        p = graph.op("Mul", graph.op("Add", graph.op("Cast", bits, to=type_number("float64")), number(0.5)),
                     number(2.0**-32))
        q = graph.op("Sub", p, number(0.5))
        middle = graph.op("Mul", q, ratio(initial_values.QUANTILE[0],
                                          graph.op("Sub", number(0.180625), graph.op("Mul", q, q))))
        lower = graph.op("Less", q, number(0.0))
        nearer = graph.op("Where", lower, p, graph.op("Sub", number(1.0), p))
        tail = graph.op("Sqrt", graph.op("Neg", graph.op("Log", nearer)))
        near = ratio(initial_values.QUANTILE[1], graph.op("Sub", tail, number(1.6)))
        far = ratio(initial_values.QUANTILE[2], graph.op("Sub", tail, number(5.0)))
        outer = graph.op("Where", graph.op("LessOrEqual", tail, number(5.0)), near, far)
        outer = graph.op("Where", lower, graph.op("Neg", outer), outer)
        inside = graph.op("LessOrEqual", graph.op("Abs", q), number(0.425))
        quantile = graph.op("Cast", graph.op("Where", inside, middle, outer), to=type_number("float32"))
        return graph.op("Add", graph.op("Mul", quantile, graph.constant(of.b, np.float32)),
                        graph.constant(of.a, np.float32))


def _ids(bags: Bags) -> str:
    assert bags.ids is not None
    return bags.ids


def _pieces_of(rows: Rows) -> Iterator[npt.NDArray[np.float32]]:
    """Yields the values of all rows in the order of the file, in batches of a few MiB."""
    for chunk in rows._chunks:
        step = max(1, (1 << 22) // (4 * max(1, rows.width)))
        for at in range(0, chunk.count, step):
            yield chunk.rows[at:at + step, :rows.width]


def _in_buckets(table: str, ids: npt.NDArray[np.int64]) -> Tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Returns the ids of each bucket and their places, [buckets, 16] each; a place of an id that is none is behind all.

    Raises:
        WeirError: the ids are so uneven that no number of buckets keeps them apart.
    """
    count = _likely_buckets(len(ids))
    while True:
        bucket = np.mod(ids, count)
        sizes = np.bincount(bucket, minlength=count)
        if sizes.max(initial=0) <= _BUCKET:
            break
        if count > max(64, _MOST_BUCKETS * len(ids)):
            raise WeirError(f"table '{table}': {sizes.max()} of its {len(ids)} ids have one rest of a division by "
                            f"{count}, and a bucket holds {_BUCKET}: look ids up in a map (lookup='map'), or export "
                            "the dense part alone (dense_only=True)")
        count = (count + count // 5 + 1) | 1
    # A place that holds no id has one of another bucket.
    keys = np.repeat(np.mod(np.arange(count) + 1, count)[:, None], _BUCKET, axis=1)
    places = np.full((count, _BUCKET), len(ids), np.int32 if len(ids) < 2**31 else np.int64)
    order = np.argsort(bucket, kind="stable")
    first = np.cumsum(sizes) - sizes
    inside = np.arange(len(ids)) - np.repeat(first, sizes)
    keys[bucket[order], inside] = ids[order]
    places[bucket[order], inside] = order
    return keys, places


def _likely_buckets(ids: int) -> int:
    """Returns a number of buckets that is likely to be enough for ids that are spread evenly (their sizes are
    Poisson's)."""
    mean = 8.0
    while mean > 0.5:
        # The probability of a size beyond a bucket's is little more than that of the first such size.
        size = _BUCKET + 1
        beyond = math.exp(size * math.log(mean) - mean - math.lgamma(size + 1)) / (1 - mean / (size + 1))
        if beyond * ids / mean < 0.2:
            break
        mean *= 0.95
    # Odd numbers: ids are often multiples of powers of two.
    return max(2, int(ids / mean)) | 1
