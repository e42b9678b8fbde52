"""Weir from Python: jobs, runs, predictions and checkpoints.

    import weir

    job = weir.Job.from_file("job.textproto", overrides=["train.epochs=3"])
    job.check()

Names load their modules on first use, so that `import weir` is quick and never fails for want of an optional package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weir.ending import Ending
from weir.errors import (
    ClientError, DamagedFileError, JobError, ProgramsMissingError, RunError, StoppedError, WeirError)
from weir.version import __version__

if TYPE_CHECKING:
    from weir import columns, programs, v1
    from weir.checkpoint import Checkpoint, RowFile, checkpoints
    from weir.client import Client, ServerStatus
    from weir.feature_id import feature_ids
    from weir.job import Job
    from weir.onnx.export import export_onnx
    from weir.onnx.inputs import onnx_inputs
    from weir.prediction import predict
    from weir.rows import NotFoundError, RowBatch
    from weir.run import Run, train
    from weir.writers.checkpoint import write_checkpoint
    from weir.writers.edit import edit_checkpoint
    from weir.writers.row_file import write_rows

__all__ = [
    "Checkpoint",
    "Client",
    "ClientError",
    "DamagedFileError",
    "Ending",
    "Job",
    "JobError",
    "NotFoundError",
    "ProgramsMissingError",
    "RowBatch",
    "RowFile",
    "Run",
    "RunError",
    "ServerStatus",
    "StoppedError",
    "WeirError",
    "__version__",
    "checkpoints",
    "columns",
    "edit_checkpoint",
    "export_onnx",
    "feature_ids",
    "onnx_inputs",
    "predict",
    "programs",
    "train",
    "v1",
    "write_checkpoint",
    "write_rows",
]

# Module of each name that is loaded on first use.
_MODULES = {
    "Checkpoint": "weir.checkpoint",
    "Client": "weir.client",
    "Job": "weir.job",
    "NotFoundError": "weir.rows",
    "RowBatch": "weir.rows",
    "RowFile": "weir.checkpoint",
    "Run": "weir.run",
    "ServerStatus": "weir.client",
    "checkpoints": "weir.checkpoint",
    "edit_checkpoint": "weir.writers.edit",
    "export_onnx": "weir.onnx.export",
    "feature_ids": "weir.feature_id",
    "onnx_inputs": "weir.onnx.inputs",
    "predict": "weir.prediction",
    "train": "weir.run",
    "write_checkpoint": "weir.writers.checkpoint",
    "write_rows": "weir.writers.row_file",
}


def __getattr__(name: str) -> Any:
    if name in ("columns", "programs", "v1"):
        return importlib.import_module(f"weir.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'weir' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
