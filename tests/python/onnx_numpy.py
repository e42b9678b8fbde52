"""Runs an exported ONNX model in NumPy, so that tests need no ONNX library: the operators that the export writes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from weir.protos import onnx_subset_pb2 as onnx

_TYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64, onnx.TensorProto.INT32: np.int32,
          onnx.TensorProto.INT64: np.int64, onnx.TensorProto.BOOL: np.bool_, onnx.TensorProto.FLOAT16: np.float16}


def read_model(path: Any) -> Any:
    model = onnx.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    return model


def array_of(tensor: Any, directory: Any) -> np.ndarray:
    raw = tensor.raw_data
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        where = {each.key: each.value for each in tensor.external_data}
        with open(os.path.join(directory, where["location"]), "rb") as file:
            file.seek(int(where["offset"]))
            raw = file.read(int(where["length"]))
    return np.frombuffer(raw, _TYPES[tensor.data_type]).reshape(list(tensor.dims))


def run(path: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns all outputs of a model."""
    graph = read_model(path).graph
    values = {each.name: array_of(each, os.path.dirname(path)) for each in graph.initializer}
    for each in graph.input:
        dims = each.type.tensor_type.shape.dim
        given = inputs[each.name]
        assert given.dtype == _TYPES[each.type.tensor_type.elem_type], each.name
        assert given.ndim == len(dims), each.name
        assert all(dim.WhichOneof("value") != "dim_value" or dim.dim_value == size
                   for dim, size in zip(dims, given.shape)), each.name
        values[each.name] = given
    return run_graph(graph, values)


def run_graph(graph: Any, values: dict[str, Any]) -> dict[str, np.ndarray]:
    values = dict(values)
    for node in graph.node:
        attributes = {each.name: each for each in node.attribute}
        taken = [values[name] for name in node.input]
        if node.op_type == "If":
            branch = attributes["then_branch" if taken[0] else "else_branch"].g
            made = list(run_graph(branch, values).values())
        else:
            made = globals()[f"_{node.op_type}"](attributes, *taken)
            made = made if isinstance(made, list) else [made]
        values.update(zip(node.output, made))
    return {each.name: values[each.name] for each in graph.output}


def _i(attributes: Any, name: str, default: int = 0) -> int:
    return attributes[name].i if name in attributes else default


def _axes(axes: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in axes)


def _binary(function: Any) -> Any:
    return lambda attributes, x, y: function(x, y)


def _unary(function: Any) -> Any:
    return lambda attributes, x: function(x)


_Add, _Sub, _Mul = _binary(np.add), _binary(np.subtract), _binary(np.multiply)
_Mod, _Max, _Min = _binary(np.mod), _binary(np.maximum), _binary(np.minimum)
_Less, _LessOrEqual, _Greater = _binary(np.less), _binary(np.less_equal), _binary(np.greater)
_Equal, _And, _BitwiseXor = _binary(np.equal), _binary(np.logical_and), _binary(np.bitwise_xor)
_MatMul = _binary(np.matmul)
_Identity, _Relu = _unary(lambda x: x), _unary(lambda x: np.where(x < 0, np.float32(0), x))
_Tanh, _Exp, _Sqrt, _Log, _Abs, _Neg, _Not = map(_unary, (
    np.tanh, np.exp, np.sqrt, np.log, np.abs, np.negative, np.logical_not))
_Sigmoid = _unary(lambda x: (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32))
_Shape = _unary(lambda x: np.array(x.shape, np.int64))
_Size = _unary(lambda x: np.int64(x.size))
_NonZero = _unary(lambda x: np.array(np.nonzero(x), np.int64))


def _Div(attributes: Any, x: Any, y: Any) -> Any:
    return x // y if np.issubdtype(np.asarray(x).dtype, np.integer) else x / y


def _Where(attributes: Any, condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


def _Cast(attributes: Any, x: Any) -> Any:
    if attributes["to"].i == onnx.TensorProto.BFLOAT16:
        bits = x.view(np.uint32)
        return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(
            np.float32)
    return np.asarray(x).astype(_TYPES[attributes["to"].i])


def _Gemm(attributes: Any, x: Any, w: Any, bias: Any = np.float32(0)) -> Any:
    return x @ w + bias


def _Softmax(attributes: Any, x: Any) -> Any:
    axis = _i(attributes, "axis", -1)
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _Concat(attributes: Any, *x: Any) -> Any:
    return np.concatenate(x, _i(attributes, "axis"))


def _Split(attributes: Any, x: Any, sizes: Any) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], _i(attributes, "axis"))


def _Reshape(attributes: Any, x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[i] if size == 0 else int(size) for i, size in enumerate(shape)])


def _Flatten(attributes: Any, x: Any) -> Any:
    return x.reshape(len(x), int(np.prod(x.shape[1:])))


def _Transpose(attributes: Any, x: Any) -> Any:
    return x.transpose(list(attributes["perm"].ints))


def _Unsqueeze(attributes: Any, x: Any, axes: Any) -> Any:
    return np.expand_dims(x, _axes(axes))


def _Squeeze(attributes: Any, x: Any, axes: Any) -> Any:
    return np.squeeze(x, _axes(axes))


def _Expand(attributes: Any, x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, _axes(shape)))


def _reduction(function: Any) -> Any:
    def reduce(attributes: Any, x: Any, axes: Any = None) -> Any:
        return np.asarray(function(x, axis=None if axes is None else _axes(axes),
                                   keepdims=bool(_i(attributes, "keepdims", 1)))).astype(x.dtype)

    return reduce


_ReduceSum, _ReduceMean, _ReduceMax, _ReduceMin = map(_reduction, (np.sum, np.mean, np.max, np.min))


def _ReduceProd(attributes: Any, x: Any) -> Any:
    return np.array([np.prod(x)], x.dtype)


def _Slice(attributes: Any, x: Any, begins: Any, ends: Any, axes: Any) -> Any:
    parts = [slice(None)] * x.ndim
    for begin, end, axis in zip(begins, ends, axes):
        parts[axis] = slice(begin, end)
    return x[tuple(parts)]


def _Gather(attributes: Any, x: Any, at: Any) -> Any:
    assert at.size == 0 or (at.min() >= 0 and at.max() < x.shape[_i(attributes, "axis")])
    return np.take(x, at, _i(attributes, "axis"))


def _GatherElements(attributes: Any, x: Any, at: Any) -> Any:
    return np.take_along_axis(x, at, _i(attributes, "axis"))


def _GatherND(attributes: Any, x: Any, at: Any) -> Any:
    if _i(attributes, "batch_dims") == 0:
        return x[tuple(np.moveaxis(at, -1, 0))]
    return np.stack([of[tuple(np.moveaxis(where, -1, 0))] for of, where in zip(x, at)])


def _ScatterND(attributes: Any, x: Any, at: Any, updates: Any) -> Any:
    x = x.copy()
    x[tuple(np.moveaxis(at, -1, 0))] = updates
    return x


def _Range(attributes: Any, begin: Any, end: Any, step: Any) -> Any:
    return np.arange(begin, end, step)


def _TopK(attributes: Any, x: Any, count: Any) -> Any:
    assert not _i(attributes, "largest", 1)
    order = np.argsort(x, axis=_i(attributes, "axis", -1), kind="stable")[:, :int(count[0])]
    return [np.take_along_axis(x, order, 1), order]


def _LabelEncoder(attributes: Any, x: Any) -> Any:
    places = dict(zip(attributes["keys_int64s"].ints, attributes["values_int64s"].ints))
    found = [places.get(each, attributes["default_int64"].i) for each in x.reshape(-1).tolist()]
    return np.array(found, np.int64).reshape(x.shape)


def _PRelu(attributes: Any, x: Any, slope: Any) -> Any:
    return np.where(x < 0, slope * x, x)


def _LayerNormalization(attributes: Any, x: Any, scale: Any, shift: Any) -> Any:
    middle = x - x.mean(-1, keepdims=True)
    variance = np.square(middle).mean(-1, keepdims=True)
    return middle / np.sqrt(variance + np.float32(attributes["epsilon"].f)) * scale + shift


def _BatchNormalization(attributes: Any, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
    shape = [1, -1] + [1] * (x.ndim - 2)
    deviation = np.sqrt(variance + np.float32(attributes["epsilon"].f))
    return (x - mean.reshape(shape)) / deviation.reshape(shape) * scale.reshape(shape) + shift.reshape(shape)


def _GRU(attributes: Any, x: Any, w: Any, u: Any, b: Any, length: Any) -> Any:
    assert _i(attributes, "linear_before_reset") == 1
    size = _i(attributes, "hidden_size")
    state = np.zeros((x.shape[1], size), np.float32)
    states = np.zeros((x.shape[0], 1, x.shape[1], size), np.float32)
    for t, element in enumerate(x):
        of_x = np.split(element @ w[0].T + b[0, :3 * size], 3, axis=1)
        of_state = np.split(state @ u[0].T + b[0, 3 * size:], 3, axis=1)
        z, r = (_Sigmoid(attributes, of_x[i] + of_state[i]) for i in (0, 1))
        new = (1 - z) * np.tanh(of_x[2] + r * of_state[2]) + z * state
        there = (t < length)[:, None]
        state = np.where(there, new, state)
        states[t, 0] = np.where(there, new, np.float32(0))
    return [states, state[None]]


def _windows(x: Any, kernel: Any, attributes: Any, fill: float) -> Any:
    """Returns the elements of each window, [B, C, H', W', kernel]."""
    top, left, bottom, right = attributes["pads"].ints
    padded = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
    down, across = attributes["strides"].ints
    return windows[:, :, ::down, ::across]


def _Conv(attributes: Any, x: Any, w: Any, bias: Any = np.zeros(1, np.float32)) -> Any:
    products = np.einsum("bcijkl,fckl->bfij", _windows(x, w.shape[2:], attributes, 0), w)
    return (products + bias[:, None, None]).astype(np.float32)


def _MaxPool(attributes: Any, x: Any) -> Any:
    return _windows(x, tuple(attributes["kernel_shape"].ints), attributes, -np.inf).max((-1, -2))


def _AveragePool(attributes: Any, x: Any) -> Any:
    assert _i(attributes, "count_include_pad") == 0
    return np.nanmean(_windows(x, tuple(attributes["kernel_shape"].ints), attributes, np.nan), (-1, -2))
