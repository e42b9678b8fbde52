"""Values as they travel between processes: frames, and the wire formats of docs/wire.md, decoded to float32."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np
import numpy.typing as npt

from weir.protos import parameter_server_pb2, table_pb2
from weir.rows import align

__all__ = ["DENSE_GROUP", "decode", "encoded_bytes", "frame", "open_frame"]

# Elements of a dense block that share a scale in WIRE_INT8; of a table the values of a row do.
DENSE_GROUP = 256

_BYTES: Dict[int, int] = {
    table_pb2.WIRE_FLOAT32: 4,
    table_pb2.WIRE_FLOAT16: 2,
    table_pb2.WIRE_BFLOAT16: 2,
    table_pb2.WIRE_INT8: 1,
}


def _scale_bytes(count: int, group: int) -> int:
    """Returns the bytes before the values of WIRE_INT8: a float for each group."""
    return align(4 * ((count + group - 1) // group))


def encoded_bytes(wire: int, count: int, group: int) -> int:
    """Returns the bytes of `count` values in a format (table_pb2.WIRE_...), of which `group` share a scale."""
    return _BYTES[wire] * count + (_scale_bytes(count, group) if wire == table_pb2.WIRE_INT8 else 0)


def decode(wire: int, data: memoryview, count: int, group: int) -> npt.NDArray[np.float32]:
    """Returns `count` values as float32. `data` has encoded_bytes(wire, count, group) bytes."""
    if wire == table_pb2.WIRE_FLOAT32:
        return np.frombuffer(data, "<f4", count).astype(np.float32)
    if wire == table_pb2.WIRE_FLOAT16:
        return np.frombuffer(data, "<f2", count).astype(np.float32)
    if wire == table_pb2.WIRE_BFLOAT16:
        bits = np.frombuffer(data, "<u2", count).astype(np.uint32)
        bits <<= np.uint32(16)
        return bits.view(np.float32)
    scales = np.frombuffer(data, "<f4", (count + group - 1) // group)
    values = np.frombuffer(data, np.int8, count, _scale_bytes(count, group)).astype(np.float32)
    result: npt.NDArray[np.float32] = values * np.repeat(scales, group)[:count].astype(np.float32)
    return result


def frame(header: bytes, payload: bytes) -> bytes:
    """Returns a frame without padding, which a server takes too, at the cost of a copy."""
    message = parameter_server_pb2.Frame(header=header)
    if payload:
        message.payload = payload
    return message.SerializeToString()


def open_frame(data: bytes) -> Tuple[bytes, bytes]:
    """Returns header and payload of a frame. Raises google.protobuf.message.DecodeError if it is none."""
    message = parameter_server_pb2.Frame()
    message.ParseFromString(data)
    return message.header, message.payload
