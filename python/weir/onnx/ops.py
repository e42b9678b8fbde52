"""Operators of a program as nodes of an ONNX graph: what prediction computes. docs/program.md describes the operators.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from weir.onnx.graph import Graph, type_number
from weir.onnx.rows import Bags
from weir.protos import program_pb2

__all__ = ["CONVERTERS", "OpToConvert", "dtype_of", "needed_inputs", "variables_of"]


class OpToConvert(NamedTuple):
    """An operator, with what its nodes are made of.

    Attributes:
        graph: to add to; its scope is the operator's first output.
        op: of the program.
        value: returns the value of a dense variable, and adds it if it is a parameter or an input of the model.
        dims: of the program's variables; -1 is the batch.
        parameter: returns the values of a dense parameter.
        rows: returns the rows for a look-up, and the ids that it looks up; the flag asks for the ids, too.
        bags: returns the ids of a variable; likewise.
    """

    graph: Graph
    op: Any
    value: Callable[[str], str]
    dims: Dict[str, Tuple[int, ...]]
    parameter: Callable[[str], npt.NDArray[np.float32]]
    rows: Callable[[Any, bool], Tuple[str, Bags]]
    bags: Callable[[str, bool], Bags]

    def variables(self, slot: str) -> List[str]:
        """Returns the variables of an input."""
        return variables_of(self.op.inputs, slot)

    def variable(self, slot: str) -> str:
        return self.variables(slot)[0]

    def has(self, slot: str) -> bool:
        return bool(self.variables(slot))

    def input(self, slot: str) -> str:
        """Returns the value of an input."""
        return self.value(self.variable(slot))

    def shape(self, slot: str) -> Tuple[int, ...]:
        return self.dims[self.variable(slot)]

    def weight(self, slot: str) -> npt.NDArray[np.float32]:
        """Returns the values of an input that is a parameter."""
        return self.parameter(self.variable(slot))

    def output(self, slot: str) -> Optional[str]:
        """Returns the variable of an output; None if the operator does not make it."""
        names = variables_of(self.op.outputs, slot)
        return names[0] if names else None

    def out(self, slot: str = "Out") -> str:
        name = self.output(slot)
        assert name is not None
        return name

    def attr(self, name: str, default: Any) -> Any:
        """Returns an attribute as a bool, int, float, text or list."""
        for attr in self.op.attrs:
            if attr.name == name:
                kind = attr.WhichOneof("value")
                value = getattr(attr, kind)
                return list(value.v) if kind in ("bools", "ints", "floats", "strings") else value
        return default

    def ints(self, value: Sequence[int]) -> str:
        return self.graph.constant(list(value), np.int64)

    def number(self, value: float) -> str:
        return self.graph.constant(value, np.float32)


Converter = Callable[[OpToConvert], Dict[str, str]]

# What makes the outputs of an operator, as {variable: value}, by its type.
CONVERTERS: Dict[str, Converter] = {}

# Inputs that what prediction reads of the operator is made of, where that is not all.
_NEEDED = {"softmax_with_cross_entropy": ("Logits",), "listwise_softmax": ("Scores", "Length"),
           "dropout": ("X",), "fm_interaction": ("X",)}


def needed_inputs(op: Any) -> List[str]:
    """Returns the variables that an operator's nodes read."""
    slots = _NEEDED.get(op.type)
    return [name for slot in op.inputs if slots is None or slot.name in slots for name in slot.vars]


def variables_of(slots: Any, name: str) -> List[str]:
    """Returns the variables of the slot of this name."""
    return [each for slot in slots if slot.name == name for each in slot.vars]


_TYPES: Dict[int, str] = {
    program_pb2.FLOAT32: "float32", program_pb2.FLOAT64: "float64", program_pb2.INT32: "int32",
    program_pb2.INT64: "int64", program_pb2.BOOL: "bool", program_pb2.UINT8: "uint8",
}


def dtype_of(dtype: int) -> str:
    """Returns the name of the type of a variable."""
    return _TYPES[dtype]


def _converts(*types: str) -> Callable[[Converter], Converter]:
    def register(converter: Converter) -> Converter:
        for each in types:
            CONVERTERS[each] = converter
        return converter

    return register


# Stands for what a softmax or a maximum leaves out.
_LEAST = float(np.finfo(np.float32).min)

_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def _activated(c: OpToConvert, value: Callable[[Optional[str]], str], name: str) -> str:
    """Makes a value, called `name` if no activation follows it, and the activation."""
    activation = c.attr("activation", "identity")
    if activation == "identity":
        return value(name)
    return c.graph.op(_ACTIVATIONS[activation], value(None), name=name)


# ---------------------------------------------------------------------------------------------------------- arithmetic


@_converts("fc")
def _fc(c: OpToConvert) -> Dict[str, str]:
    x, dims, rows = c.input("X"), c.shape("X"), c.attr("row_dims", 1)
    if len(dims) > rows + 1:
        if rows == 1:
            x = c.graph.op("Flatten", x, axis=1)
        else:
            x = c.graph.op("Reshape", x, c.ints([0] * rows + [int(np.prod(dims[rows:]))]))

    def product(name: Optional[str]) -> str:
        if rows == 1:
            bias = [c.input("Bias")] if c.has("Bias") else []
            return c.graph.op("Gemm", x, c.input("W"), *bias, name=name)
        if not c.has("Bias"):
            return c.graph.op("MatMul", x, c.input("W"), name=name)
        return c.graph.op("Add", c.graph.op("MatMul", x, c.input("W")), c.input("Bias"), name=name)

    return {c.out(): _activated(c, product, c.out())}


@_converts("mul")
def _mul(c: OpToConvert) -> Dict[str, str]:
    x = c.graph.op("Flatten", c.input("X"), axis=1) if len(c.shape("X")) > 2 else c.input("X")
    return {c.out(): c.graph.op("MatMul", x, c.input("Y"), name=c.out())}


_ELEMENTWISE = {"elementwise_add": "Add", "elementwise_sub": "Sub", "elementwise_mul": "Mul", "elementwise_div": "Div"}


@_converts(*_ELEMENTWISE)
def _elementwise(c: OpToConvert) -> Dict[str, str]:
    y, axis = c.input("Y"), c.attr("axis", -1)
    behind = 0 if axis == -1 else len(c.shape("X")) - axis - len(c.shape("Y"))
    if behind > 0:
        rank = len(c.shape("Y"))
        y = c.graph.op("Unsqueeze", y, c.ints(range(rank, rank + behind)))
    return {c.out(): c.graph.op(_ELEMENTWISE[c.op.type], c.input("X"), y, name=c.out())}


_UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "dropout": "Identity"}


@_converts(*_UNARY)
def _unary(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op(_UNARY[c.op.type], c.input("X"), name=c.out())}


@_converts("square")
def _square(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op("Mul", c.input("X"), c.input("X"), name=c.out())}


@_converts("softmax")
def _softmax(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op("Softmax", c.input("X"), name=c.out(), axis=-1)}


@_converts("concat")
def _concat(c: OpToConvert) -> Dict[str, str]:
    values = [c.value(each) for each in c.variables("X")]
    return {c.out(): c.graph.op("Concat", *values, name=c.out(), axis=c.attr("axis", 1))}


@_converts("split")
def _split(c: OpToConvert) -> Dict[str, str]:
    names = variables_of(c.op.outputs, "Out")
    axis = c.attr("axis", 1)
    sections = c.attr("sections", []) or [c.shape("X")[axis] // len(names)] * len(names)
    return dict(zip(names, c.graph.ops("Split", c.input("X"), c.ints(sections), names=names, axis=axis)))


@_converts("reshape")
def _reshape(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op("Reshape", c.input("X"), c.ints(c.attr("shape", [])), name=c.out())}


@_converts("sum")
def _sum(c: OpToConvert) -> Dict[str, str]:
    values = [c.value(each) for each in c.variables("X")]
    total = values[0]
    for each in values[1:-1]:
        total = c.graph.op("Add", total, each)
    if len(values) == 1:
        return {c.out(): c.graph.op("Identity", total, name=c.out())}
    return {c.out(): c.graph.op("Add", total, values[-1], name=c.out())}


@_converts("mean")
def _mean(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op("ReduceMean", c.input("X"), name=c.out(), keepdims=0)}


@_converts("scale")
def _scale(c: OpToConvert) -> Dict[str, str]:
    bias = c.attr("bias", 0.0)
    scaled = c.graph.op("Mul", c.input("X"), c.number(c.attr("scale", 1.0)), name=None if bias else c.out())
    return {c.out(): c.graph.op("Add", scaled, c.number(bias), name=c.out()) if bias else scaled}


@_converts("reduce_sum")
def _reduce_sum(c: OpToConvert) -> Dict[str, str]:
    rank = len(c.shape("X"))
    axes = [each % rank for each in c.attr("dims", [])] or list(range(1, rank))
    return {c.out(): c.graph.op("ReduceSum", c.input("X"), c.ints(axes), name=c.out(),
                                keepdims=int(c.attr("keep_dim", False)))}


@_converts("cast")
def _cast(c: OpToConvert) -> Dict[str, str]:
    # Of a number that the new type cannot hold, ONNX leaves the result open.
    to = type_number(dtype_of(c.attr("dtype", program_pb2.FLOAT32)))
    return {c.out(): c.graph.op("Cast", c.input("X"), name=c.out(), to=to)}


@_converts("fill_like_batch")
def _fill_like_batch(c: OpToConvert) -> Dict[str, str]:
    filled = c.graph.op("Expand", c.number(c.attr("value", 0.0)), c.graph.op("Shape", c.input("X")), name=c.out())
    return {c.out(): filled}


# -------------------------------------------------------------------------------------------------------- interactions


@_converts("fm_interaction")
def _fm_interaction(c: OpToConvert) -> Dict[str, str]:
    g, x = c.graph, c.input("X")
    columns = c.attr("columns", [])
    if columns:
        begin, slots, width = columns
        x = g.op("Slice", x, c.ints([begin]), c.ints([begin + slots * width]), c.ints([1]))
        x = g.op("Reshape", x, c.ints([-1, slots, width]))
    total = g.op("ReduceSum", x, c.ints([1]), keepdims=0)
    squares = g.op("ReduceSum", g.op("Mul", x, x), c.ints([1]), keepdims=0)
    pairs = g.op("ReduceSum", g.op("Sub", g.op("Mul", total, total), squares), c.ints([1]), keepdims=1)
    made = {c.out(): g.op("Mul", pairs, c.number(0.5), name=c.out())}
    summed = c.output("Sum")
    return made if summed is None else {**made, summed: total}


@_converts("cross")
def _cross(c: OpToConvert) -> Dict[str, str]:
    product = c.graph.op("Mul", c.input("X0"), c.input("Y"))
    return {c.out(): c.graph.op("Add", product, c.input("X"), name=c.out())}


@_converts("dot_interaction")
def _dot_interaction(c: OpToConvert) -> Dict[str, str]:
    g, parts, count = c.graph, [], 0
    for each in c.variables("X"):
        dims = c.dims[each]
        count += dims[1] if len(dims) == 3 else 1
        parts.append(c.value(each) if len(dims) == 3 else g.op("Unsqueeze", c.value(each), c.ints([1])))
    x = parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=1)
    products = g.op("MatMul", x, g.op("Transpose", x, perm=[0, 2, 1]))
    end = 1 if c.attr("self_interaction", False) else 0
    pairs = [i * count + j for i in range(count) for j in range(i + end)]
    flat = g.op("Reshape", products, c.ints([-1, count * count]))
    return {c.out(): g.op("Gather", flat, c.ints(pairs), name=c.out(), axis=1)}


@_converts("bilinear")
def _bilinear(c: OpToConvert) -> Dict[str, str]:
    g, x, count = c.graph, c.input("X"), c.shape("X")[1]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = (c.ints(each) for each in zip(*pairs))
    w = c.shape("W")
    if len(w) == 2:
        left = g.op("Gather", g.op("MatMul", x, c.input("W")), first, axis=1)
    else:
        of_pair = w[0] == len(pairs) and w[0] != count - 1
        vectors = g.op("Gather", x, first if of_pair else c.ints(range(count - 1)), axis=1)
        left = g.op("MatMul", g.op("Transpose", vectors, perm=[1, 0, 2]), c.input("W"))
        left = g.op("Transpose", left, perm=[1, 0, 2])
        left = left if of_pair else g.op("Gather", left, first, axis=1)
    return {c.out(): g.op("Mul", left, g.op("Gather", x, second, axis=1), name=c.out())}


@_converts("cin")
def _cin(c: OpToConvert) -> Dict[str, str]:
    g, summed = c.graph, c.attr("summed", 0)
    vectors, fields, width = c.shape("X")[1], c.shape("X0")[1], c.shape("X")[2]
    products = g.op("Mul", g.op("Unsqueeze", c.input("X"), c.ints([2])), g.op("Unsqueeze", c.input("X0"), c.ints([1])))
    products = g.op("Reshape", products, c.ints([-1, vectors * fields, width]))
    weight, made = c.weight("W"), {}
    total, out = c.output("Sum"), c.output("Out")
    if total is not None:
        of = g.array(f"{c.variable('W')}/of_sums", weight[:, :summed])
        dots = g.op("ReduceSum", products, c.ints([2]), keepdims=0)
        made[total] = g.op("MatMul", dots, of, name=total)
    if out is not None:
        of = g.array(f"{c.variable('W')}/of_vectors", weight[:, summed:].T)
        made[out] = g.op("MatMul", of, products, name=out)
    return made


@_converts("dot")
def _dot(c: OpToConvert) -> Dict[str, str]:
    g = c.graph
    if len(c.shape("Y")) == 2:
        product = g.op("Mul", c.input("X"), c.input("Y"))
        return {c.out(): g.op("ReduceSum", product, c.ints([1]), name=c.out(), keepdims=1)}
    product = g.op("MatMul", c.input("Y"), g.op("Unsqueeze", c.input("X"), c.ints([2])))
    return {c.out(): g.op("Squeeze", product, c.ints([2]), name=c.out())}


@_converts("weighted_sum")
def _weighted_sum(c: OpToConvert) -> Dict[str, str]:
    product = c.graph.op("MatMul", c.graph.op("Unsqueeze", c.input("Weight"), c.ints([1])), c.input("Y"))
    return {c.out(): c.graph.op("Squeeze", product, c.ints([1]), name=c.out())}


# ---------------------------------------------------------------------------------------------- pictures, normalisation


@_converts("conv2d")
def _conv2d(c: OpToConvert) -> Dict[str, str]:
    bias = [c.input("Bias")] if c.has("Bias") else []

    def convolved(name: Optional[str]) -> str:
        return c.graph.op("Conv", c.input("X"), c.input("W"), *bias, name=name, strides=c.attr("stride", [1, 1]),
                          pads=c.attr("padding", [0, 0]) * 2)

    return {c.out(): _activated(c, convolved, c.out())}


@_converts("pool2d")
def _pool2d(c: OpToConvert) -> Dict[str, str]:
    # An average counts no padding, which is ONNX's default, too.
    type_ = "MaxPool" if c.attr("type", "max") == "max" else "AveragePool"
    kernel = c.attr("kernel", [1, 1])
    return {c.out(): c.graph.op(type_, c.input("X"), name=c.out(), kernel_shape=kernel,
                                strides=c.attr("stride", kernel), pads=c.attr("padding", [0, 0]) * 2)}


@_converts("batch_norm")
def _batch_norm(c: OpToConvert) -> Dict[str, str]:
    inputs = [c.input(each) for each in ("X", "Scale", "Shift", "Mean", "Variance")]

    def normal(name: Optional[str]) -> str:
        return c.graph.op("BatchNormalization", *inputs, name=name, epsilon=float(c.attr("epsilon", 1e-5)))

    return {c.out(): _activated(c, normal, c.out())}


@_converts("layer_norm")
def _layer_norm(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op("LayerNormalization", c.input("X"), c.input("Scale"), c.input("Shift"), name=c.out(),
                                axis=-1, epsilon=float(c.attr("epsilon", 1e-5)))}


@_converts("prelu")
def _prelu(c: OpToConvert) -> Dict[str, str]:
    return {c.out(): c.graph.op("PRelu", c.input("X"), c.input("Slope"), name=c.out())}


@_converts("dice")
def _dice(c: OpToConvert) -> Dict[str, str]:
    g, x = c.graph, c.input("X")
    deviation = g.op("Sqrt", g.op("Add", c.input("Variance"), c.number(c.attr("epsilon", 1e-8))))
    p = g.op("Sigmoid", g.op("Div", g.op("Sub", x, c.input("Mean")), deviation))
    rest = g.op("Mul", g.op("Sub", c.number(1.0), p), c.input("Slope"))
    return {c.out(): g.op("Mul", x, g.op("Add", p, rest), name=c.out())}


# ----------------------------------------------------------------------------------------------------------- look-ups


@_converts("lookup_table")
def _lookup_table(c: OpToConvert) -> Dict[str, str]:
    padded = c.attr("has_padding", False)
    rows, bags = c.rows(c.op, padded)
    pooling, per_slot = c.attr("pooling", "none"), c.attr("per_slot", False)
    if c.attr("sequence", 0) > 0:
        return {c.out(): _sequence(c, rows, bags)}
    if bags.valid is None and not padded:
        return {c.out(): _pool_single(c, rows, pooling, per_slot)}
    return {c.out(): _pool_lists(c, rows, bags, pooling, per_slot)}


def _pool_single(c: OpToConvert, rows: str, pooling: str, per_slot: bool) -> str:
    """Pools rows [B, S, W] of one id for each slot."""
    if pooling == "none" or per_slot:
        return c.graph.op("Identity", rows, name=c.out())
    if pooling == "sum":
        return c.graph.op("ReduceSum", rows, c.ints([1]), name=c.out(), keepdims=0)
    slots = c.shape("Ids")[1]
    divisor = slots if pooling == "mean" else float(np.sqrt(np.float32(slots)))
    total = c.graph.op("ReduceSum", rows, c.ints([1]), keepdims=0)
    return c.graph.op("Div", total, c.number(divisor), name=c.out())


def _factors(c: OpToConvert, bags: Bags) -> Tuple[str, Optional[str]]:
    """Returns the weights of ids [B, S, L], 0 for those that do not count, and which count; None: all."""
    g, counts = c.graph, bags.valid
    if c.attr("has_padding", False):
        assert bags.ids is not None
        other = g.op("Not", g.op("Equal", bags.ids, g.constant(c.attr("padding_id", 0), np.int64)))
        counts = other if counts is None else g.op("And", counts, other)
    assert counts is not None
    present = g.op("Cast", counts, to=type_number("float32"))
    return present if bags.weights is None else g.op("Mul", present, bags.weights), counts


def _as_lists(c: OpToConvert, rows: str, bags: Bags) -> Tuple[str, Bags]:
    """Returns rows and ids with an axis for the ids of a slot, which slots of one id lack."""
    if bags.valid is not None:
        return rows, bags
    g, axis = c.graph, c.ints([2])
    ids = None if bags.ids is None else g.op("Unsqueeze", bags.ids, axis)
    return g.op("Unsqueeze", rows, axis), bags._replace(ids=ids)


def _pool_lists(c: OpToConvert, rows: str, bags: Bags, pooling: str, per_slot: bool) -> str:
    """Pools rows [B, S, L, W] of any number of ids for each slot."""
    g = c.graph
    rows, bags = _as_lists(c, rows, bags)
    factors, _ = _factors(c, bags)
    axes = [2] if pooling == "none" or per_slot else [1, 2]
    weighted = g.op("Mul", rows, g.op("Unsqueeze", factors, c.ints([3])))
    if pooling in ("none", "sum"):
        return g.op("ReduceSum", weighted, c.ints(axes), name=c.out(), keepdims=0)
    total = g.op("ReduceSum", weighted, c.ints(axes), keepdims=0)
    if pooling == "mean":
        divisor = g.op("ReduceSum", factors, c.ints(axes), keepdims=0)
    else:
        divisor = g.op("Sqrt", g.op("ReduceSum", g.op("Mul", factors, factors), c.ints(axes), keepdims=0))
    divisor = g.op("Unsqueeze", divisor, c.ints([-1]))
    nothing = g.op("Equal", divisor, c.number(0.0))
    quotient = g.op("Div", total, g.op("Where", nothing, c.number(1.0), divisor))
    return g.op("Where", nothing, c.number(0.0), quotient, name=c.out())


def _counts(c: OpToConvert, bags: Bags) -> Tuple[str, Optional[str]]:
    """Returns the number of ids of each example that count, int64 [B, 1], and which count [B, L]; None: the first."""
    g = c.graph
    if not c.attr("has_padding", False):
        if bags.lengths is not None:
            return bags.lengths, None
        assert bags.ids is not None
        return g.op("Expand", g.constant([[1]], np.int64), g.op("Shape", bags.ids)), None
    _, bags = _as_lists(c, bags.ids or "", bags)
    _, counts = _factors(c, bags)
    assert counts is not None
    flags = g.op("Squeeze", counts, c.ints([1]))
    return g.op("ReduceSum", g.op("Cast", flags, to=type_number("int64")), c.ints([1]), keepdims=1), flags


def _sequence(c: OpToConvert, rows: str, bags: Bags) -> str:
    """Returns the rows of the last T ids that count, from the left, and zeros behind them, [B, T, W]."""
    g, most = c.graph, c.attr("sequence", 0)
    count, flags = _counts(c, bags)
    rows, bags = _as_lists(c, rows, bags)
    rows = g.op("Squeeze", rows, c.ints([1]))
    longest = g.op("Gather", g.op("Shape", rows), g.constant(1, np.int64))
    place = g.constant(np.arange(most)[None], np.int64)
    behind = g.op("Max", g.op("Sub", count, g.constant(most, np.int64)), g.constant(0, np.int64))
    at = g.op("Min", g.op("Add", place, behind), g.op("Sub", longest, g.constant(1, np.int64)))
    if flags is not None:
        # Brings the ids that count to the front, in their order.
        indexes = g.op("Range", g.constant(0, np.int64), longest, g.constant(1, np.int64))
        keys = g.op("Where", flags, indexes, g.op("Add", indexes, longest))
        size = g.op("Reshape", longest, c.ints([1]))
        order = g.ops("TopK", keys, size, names=[None, None], axis=1, largest=0, sorted=1)[1]
        at = g.op("GatherElements", order, at, axis=1)
    taken = g.op("GatherND", rows, g.op("Unsqueeze", at, c.ints([2])), batch_dims=1)
    if bags.weights is not None:
        weights = g.op("GatherElements", g.op("Squeeze", bags.weights, c.ints([1])), at, axis=1)
        taken = g.op("Mul", taken, g.op("Unsqueeze", weights, c.ints([2])))
    there = g.op("Unsqueeze", g.op("Less", place, count), c.ints([2]))
    return g.op("Where", there, taken, c.number(0.0), name=c.out())


@_converts("sequence_length")
def _sequence_length(c: OpToConvert) -> Dict[str, str]:
    g = c.graph
    bags = c.bags(c.variable("Ids"), c.attr("has_padding", False))
    if bags.ids is None and bags.lengths is None:
        # One id each: the ids say how many examples there are.
        bags = c.bags(c.variable("Ids"), True)
    count, _ = _counts(c, bags)
    count = g.op("Min", count, g.constant(c.attr("sequence", 0), np.int64))
    return {c.out(): g.op("Cast", count, name=c.out(), to=type_number("float32"))}


# ----------------------------------------------------------------------------------------------------------- sequences


def _inside(c: OpToConvert, most: int, rank: int) -> str:
    """Returns which elements of a sequence are there, [B, T], with more axes of size 1 up to `rank`."""
    place = c.graph.constant(np.arange(most)[None], np.float32)
    inside = c.graph.op("Less", place, c.input("Length"))
    return inside if rank == 2 else c.graph.op("Unsqueeze", inside, c.ints(range(2, rank)))


def _not_empty(c: OpToConvert) -> str:
    return c.graph.op("Greater", c.input("Length"), c.number(0.0))


@_converts("sequence_pool")
def _sequence_pool(c: OpToConvert) -> Dict[str, str]:
    g, x, type_ = c.graph, c.input("X"), c.attr("type", "mean")
    most = c.shape("X")[1]
    if type_ in ("first", "last"):
        place = g.op("Cast", c.input("Length"), to=type_number("int64"))
        place = g.op("Max", g.op("Sub", place, g.constant(1, np.int64)), g.constant(0, np.int64))
        if type_ == "first":
            place = g.op("Mul", place, g.constant(0, np.int64))
        pooled = g.op("GatherND", x, place, batch_dims=1)
    elif type_ == "max":
        there = g.op("Where", _inside(c, most, 3), x, c.number(_LEAST))
        pooled = g.op("ReduceMax", there, c.ints([1]), keepdims=0)
    else:
        pooled = g.op("ReduceSum", g.op("Where", _inside(c, most, 3), x, c.number(0.0)), c.ints([1]), keepdims=0)
        if type_ != "sum":
            length = g.op("Max", c.input("Length"), c.number(1.0))
            pooled = g.op("Div", pooled, length if type_ == "mean" else g.op("Sqrt", length))
    return {c.out(): g.op("Where", _not_empty(c), pooled, c.number(0.0), name=c.out())}


@_converts("attention_pairs")
def _attention_pairs(c: OpToConvert) -> Dict[str, str]:
    g, keys = c.graph, c.input("Sequence")
    query = g.op("Expand", g.op("Unsqueeze", c.input("Query"), c.ints([1])), g.op("Shape", keys))
    rows = g.op("Concat", query, keys, g.op("Sub", query, keys), g.op("Mul", query, keys), axis=2)
    inside = _inside(c, c.shape("Sequence")[1], 3)
    return {c.out(): g.op("Where", inside, rows, c.number(0.0), name=c.out())}


@_converts("attention_pool")
def _attention_pool(c: OpToConvert) -> Dict[str, str]:
    g, score = c.graph, c.input("Score")
    inside = _inside(c, c.shape("Sequence")[1], 3)
    if c.attr("softmax", False):
        score = g.op("Softmax", g.op("Where", inside, score, c.number(_LEAST)), axis=1)
    weight = g.op("Where", inside, score, c.number(0.0))
    pooled = g.op("MatMul", g.op("Transpose", weight, perm=[0, 2, 1]), c.input("Sequence"))
    return {c.out(): g.op("Squeeze", pooled, c.ints([1]), name=c.out())}


@_converts("add_positions")
def _add_positions(c: OpToConvert) -> Dict[str, str]:
    g, most, vectors = c.graph, c.shape("X")[1], c.input("W")
    if c.attr("from_end", False):
        length = g.op("Cast", c.input("Length"), to=type_number("int64"))
        place = g.op("Sub", length, g.constant(np.arange(1, most + 1)[None], np.int64))
        vectors = g.op("Gather", vectors, g.op("Max", place, g.constant(0, np.int64)))
    inside = _inside(c, most, 3)
    return {c.out(): g.op("Where", inside, g.op("Add", c.input("X"), vectors), c.number(0.0), name=c.out())}


@_converts("self_attention")
def _self_attention(c: OpToConvert) -> Dict[str, str]:
    g, heads = c.graph, c.attr("heads", 1)
    most, size = c.shape("Q")[1:]
    width = size // heads

    def by_head(slot: str, perm: Sequence[int]) -> str:
        return g.op("Transpose", g.op("Reshape", c.input(slot), c.ints([0, most, heads, width])), perm=perm)

    scores = g.op("MatMul", by_head("Q", [0, 2, 1, 3]), by_head("K", [0, 2, 3, 1]))
    scores = g.op("Mul", scores, c.number(float(1 / np.sqrt(np.float32(width)))))
    attended: Optional[str] = None
    inside: Optional[str] = None
    if c.attr("causal", False):
        attended = g.constant(np.tril(np.ones((1, 1, most, most), bool)))
    if c.has("Length"):
        inside = _inside(c, most, 3)
        there = g.op("Unsqueeze", g.op("Squeeze", inside, c.ints([2])), c.ints([1, 2]))
        attended = there if attended is None else g.op("And", attended, there)
    if attended is not None:
        scores = g.op("Where", attended, scores, c.number(_LEAST))
    out = g.op("MatMul", g.op("Softmax", scores, axis=-1), by_head("V", [0, 2, 1, 3]))
    out = g.op("Reshape", g.op("Transpose", out, perm=[0, 2, 1, 3]), c.ints([0, most, size]),
               name=None if inside else c.out())
    return {c.out(): g.op("Where", inside, out, c.number(0.0), name=c.out()) if inside else out}


@_converts("gru")
def _gru(c: OpToConvert) -> Dict[str, str]:
    g, most = c.graph, c.shape("X")[1]
    size = c.weight("U").shape[0]

    def in_order(slot: str) -> npt.NDArray[np.float32]:
        # ONNX has the gates z, r, h, in rows.
        r, z, n = np.split(c.weight(slot), 3, axis=-1)
        return np.concatenate([z, r, n], axis=-1)

    w = g.array(f"{c.variable('W')}/of_gates", in_order("W").T[None])
    u = g.array(f"{c.variable('U')}/of_gates", in_order("U").T[None])
    b = g.array(f"{c.variable('B')}/of_gates", np.concatenate([in_order("B"), in_order("C")])[None])
    # A length of 0 is none for ONNX.
    length = g.op("Max", g.op("Squeeze", c.input("Length"), c.ints([1])), c.number(1.0))
    length = g.op("Cast", length, to=type_number("int32"))
    x = g.op("Transpose", c.input("X"), perm=[1, 0, 2])
    states, last = g.ops("GRU", x, w, u, b, length, names=[None, None], hidden_size=size, linear_before_reset=1)
    made = {}
    hidden = c.output("Hidden")
    if hidden is not None:
        states = g.op("Transpose", g.op("Squeeze", states, c.ints([1])), perm=[1, 0, 2])
        made[hidden] = g.op("Where", _inside(c, most, 3), states, c.number(0.0), name=hidden)
    end = c.output("Last")
    if end is not None:
        last = g.op("Squeeze", last, c.ints([0]))
        made[end] = g.op("Where", _not_empty(c), last, c.number(0.0), name=end)
    return made


# ------------------------------------------------------------------------------------- losses that make the prediction


@_converts("softmax_with_cross_entropy")
def _softmax_of_logits(c: OpToConvert) -> Dict[str, str]:
    return {c.out("Softmax"): c.graph.op("Softmax", c.input("Logits"), name=c.out("Softmax"), axis=-1)}


@_converts("listwise_softmax")
def _listwise_softmax(c: OpToConvert) -> Dict[str, str]:
    g, scores, out = c.graph, c.input("Scores"), c.out("Softmax")
    if not c.has("Length"):
        return {out: g.op("Softmax", scores, name=out, axis=-1)}
    inside = _inside(c, c.shape("Scores")[1], 2)
    part = g.op("Softmax", g.op("Where", inside, scores, c.number(_LEAST)), axis=-1)
    return {out: g.op("Where", inside, part, c.number(0.0), name=out)}
