"""What a checkpoint gives to those that write it in another form."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Protocol, Union

from weir.protos import checkpoint_pb2
from weir.rows import Floats, Rows

__all__ = ["Saved"]


class Saved(Protocol):
    """The part of weir.Checkpoint that they need, with its meanings."""

    path: str
    step: int
    job_name: str
    figures: Dict[str, float]
    manifest: checkpoint_pb2.CheckpointManifest
    _dense: Any

    @property
    def variables(self) -> List[str]: ...

    @property
    def tables(self) -> List[str]: ...

    def dense(self, name: str) -> Floats: ...

    def state(self, name: str) -> Mapping[str, Union[Floats, int, float]]: ...

    def table(self, name: str) -> Rows: ...
