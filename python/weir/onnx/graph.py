"""Builds an ONNX model (proto/onnx_subset.proto) node by node, and writes it with its large arrays in a file beside it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, IO, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from weir.errors import WeirError
from weir.output_file import target_of, whole_file
from weir.protos import onnx_subset_pb2 as onnx

__all__ = ["IR_VERSION", "MOST_MODEL_BYTES", "OPSETS", "Dim", "Graph", "type_number", "write_model"]

IR_VERSION = 8
# Operator sets by domain. 17 has LayerNormalization, 18 bitwise operators.
OPSETS = {"": 18, "ai.onnx.ml": 2}

# protobuf holds no more.
MOST_MODEL_BYTES = 2**31 - 1
# Arrays from this size on are in the file beside the model.
_LARGE = 1 << 16
# Arrays in that file begin at multiples of it, so that a runtime can map them.
_PAGE = 4096

_TYPES = {
    "float32": onnx.TensorProto.FLOAT, "float64": onnx.TensorProto.DOUBLE, "int32": onnx.TensorProto.INT32,
    "int64": onnx.TensorProto.INT64, "bool": onnx.TensorProto.BOOL, "float16": onnx.TensorProto.FLOAT16,
    "uint8": onnx.TensorProto.UINT8, "bfloat16": onnx.TensorProto.BFLOAT16,
}

# A size, or the name of one.
Dim = Union[int, str]


class _Large(NamedTuple):
    """An array for the file beside the model. `pieces` yields its rows in order."""

    tensor: Any
    bytes: int
    pieces: Callable[[], Iterable[npt.NDArray[Any]]]


class Graph:
    """A graph that grows node by node. Methods that add a node return the names of its outputs.

    Attributes:
        proto: the graph.
        scope: begins the names of values that get none.
        domains: of operators that the graph uses.
    """

    def __init__(self, name: str, outer: Optional[Graph] = None):
        self.proto = onnx.GraphProto(name=name)
        self.scope = name
        self.domains: set[str] = {""} if outer is None else outer.domains
        self.large: List[_Large] = [] if outer is None else outer.large
        self._outer = outer
        self._names: set[str] = set() if outer is None else outer._names
        self._constants: Dict[Tuple[str, Tuple[int, ...], bytes], str] = {}

    def input(self, name: str, dtype: str, dims: Sequence[Dim], doc: str = "") -> str:
        """Adds an input of the graph."""
        self._names.add(name)
        self._describe(self.proto.input.add(), name, dtype, dims, doc)
        return name

    def output(self, name: str, value: str, dtype: str, dims: Sequence[Dim], doc: str = "") -> None:
        """Makes a value an output of the graph, under a name."""
        if name != value:
            self._node("Identity", [value], [name], "", {})
        self._describe(self.proto.output.add(), name, dtype, dims, doc)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Returns the name of a small constant; equal ones are one."""
        array = np.asarray(value, dtype)
        # A constant of an enclosing graph can be read inside.
        if self._outer is not None:
            return self._outer.constant(array)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.array(self.unique("constant"), array)
        return self._constants[key]

    def array(self, name: str, value: npt.NDArray[Any]) -> str:
        """Adds an array under a name."""
        array = np.ascontiguousarray(value).reshape(value.shape)
        if array.nbytes >= _LARGE:
            return self.rows(name, array.shape, array.dtype.name, lambda: [array])
        tensor = self._initializer(name, array.shape, array.dtype.name)
        tensor.raw_data = array.tobytes()
        return str(tensor.name)

    def rows(self, name: str, dims: Sequence[int], dtype: str,
             pieces: Callable[[], Iterable[npt.NDArray[Any]]]) -> str:
        """Adds an array that is not in memory as a whole: `pieces` yields its rows when the model is written."""
        size = int(np.prod(np.asarray(dims, object))) * np.dtype(dtype).itemsize
        tensor = self._initializer(name, dims, dtype)
        if size < _LARGE:
            tensor.raw_data = b"".join(np.ascontiguousarray(piece).tobytes() for piece in pieces())
        else:
            self.large.append(_Large(tensor, size, pieces))
        return str(tensor.name)

    def op(self, type_: str, *inputs: str, name: Optional[str] = None, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output. Returns the output's name, which begins with `name` if that is given."""
        return self.ops(type_, *inputs, names=[name], domain=domain, **attributes)[0]

    def ops(self, type_: str, *inputs: str, names: Sequence[Optional[str]], domain: str = "",
            **attributes: Any) -> List[str]:
        """Adds a node with an output for each of `names`."""
        outputs = [self.unique(f"{self.scope}/{type_}") if name is None else self.unique(name) for name in names]
        self._node(type_, inputs, outputs, domain, attributes)
        return outputs

    def branch(self, name: str) -> Graph:
        """Returns a graph for an attribute of a node; it reads the values of this one."""
        inner = Graph(name, outer=self)
        inner.scope = self.scope
        return inner

    def _node(self, type_: str, inputs: Sequence[str], outputs: Sequence[str], domain: str,
              attributes: Dict[str, Any]) -> None:
        self.domains.add(domain)
        node = self.proto.node.add(op_type=type_, name=outputs[0])
        if domain:
            node.domain = domain
        node.input.extend(inputs)
        node.output.extend(outputs)
        for name, value in attributes.items():
            _set_attribute(node.attribute.add(name=name), value)

    def _initializer(self, name: str, dims: Sequence[int], dtype: str) -> Any:
        return self.proto.initializer.add(name=self.unique(name), dims=dims, data_type=_TYPES[dtype])

    def _describe(self, value: Any, name: str, dtype: str, dims: Sequence[Dim], doc: str) -> None:
        value.name = name
        if doc:
            value.doc_string = doc
        value.type.tensor_type.elem_type = _TYPES[dtype]
        value.type.tensor_type.shape.SetInParent()
        for dim in dims:
            added = value.type.tensor_type.shape.dim.add()
            if isinstance(dim, str):
                added.dim_param = dim
            else:
                added.dim_value = dim

    def unique(self, name: str) -> str:
        """Returns the name, or with a number behind it if it is taken, and takes it."""
        found = name
        number = 1
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found


def type_number(dtype: str) -> int:
    """Returns ONNX's number of a type of elements."""
    return int(_TYPES[dtype])


def _set_attribute(attribute: Any, value: Any) -> None:
    kinds = onnx.AttributeProto
    if isinstance(value, Graph):
        attribute.type = kinds.GRAPH
        attribute.g.CopyFrom(value.proto)
    elif isinstance(value, np.ndarray):
        # In pieces: the list of all has four times the memory.
        attribute.type = kinds.INTS
        for at in range(0, len(value), 1 << 16):
            attribute.ints.extend(value[at:at + (1 << 16)].tolist())
    elif isinstance(value, bool) or isinstance(value, (int, np.integer)):
        attribute.type, attribute.i = kinds.INT, int(value)
    elif isinstance(value, float):
        attribute.type, attribute.f = kinds.FLOAT, value
    elif isinstance(value, str):
        attribute.type, attribute.s = kinds.STRING, value.encode()
    else:
        attribute.type = kinds.INTS
        attribute.ints.extend(int(each) for each in value)


def write_model(graph: Graph, path: str, doc: str, metadata: Dict[str, str], producer_version: str) -> List[str]:
    """Writes the model, and its large arrays into `path`.data. Returns the paths of the files.

    Both files appear as a whole: an older model is removed before its arrays are replaced, so that no model stands
    beside the arrays of another.

    Raises:
        WeirError: the model is larger than protobuf's limit of 2 GiB.
        OSError: a file cannot be written.
    """
    target = target_of(path)
    if target.direct and graph.large:
        raise WeirError(f"{path} is no regular file, and this model has arrays in a file beside it; name a file")
    path = target.path
    model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="weir", producer_version=producer_version,
                            doc_string=doc)
    for domain in sorted(graph.domains):
        model.opset_import.add(domain=domain, version=OPSETS[domain])
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    beside = f"{os.path.basename(path)}.data"
    at = 0
    for each in graph.large:
        each.tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", beside), ("offset", str(at)), ("length", str(each.bytes))):
            each.tensor.external_data.add(key=key, value=value)
        at = -(-(at + each.bytes) // _PAGE) * _PAGE
    # The graph may be large, and is not copied into the model: its bytes are the last field.
    head = model.SerializeToString(deterministic=True)
    size = graph.proto.ByteSize() + len(head) + 16
    if size > MOST_MODEL_BYTES:
        raise WeirError(f"the model without its arrays has {size} bytes, and protobuf holds {MOST_MODEL_BYTES}: look "
                        "ids up in buckets (lookup='buckets')")
    with contextlib.ExitStack() as stack:
        arrays = stack.enter_context(_new_file(f"{path}.data")) if graph.large else None
        if arrays is not None:
            _write_arrays(graph.large, arrays)
        file = stack.enter_context(whole_file(path) if target.direct else _new_file(path))
        body = graph.proto.SerializeToString(deterministic=True)
        file.write(head + _field(onnx.ModelProto.GRAPH_FIELD_NUMBER, len(body)))
        file.write(body)
        file.flush()
        if target.direct:
            return [path]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if arrays is not None:
            os.replace(arrays.name, f"{path}.data")
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}.data")
        os.replace(file.name, path)
    return [path, f"{path}.data"] if graph.large else [path]


def _field(number: int, size: int) -> bytes:
    """Returns what precedes the bytes of a message that is a field."""
    head = bytearray([number << 3 | 2])
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(head + bytearray([size]))


def _write_arrays(large: Sequence[_Large], file: IO[bytes]) -> None:
    for each in large:
        file.write(b"\0" * (-file.tell() % _PAGE))
        begin = file.tell()
        for piece in each.pieces():
            file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        if file.tell() - begin != each.bytes:
            raise WeirError(f"{each.tensor.name} has {file.tell() - begin} bytes, and {each.bytes} were expected")
    file.flush()


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path`, which the caller renames. Removes it if that has not happened."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
