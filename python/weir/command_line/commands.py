"""The commands of `weir` that are Python's own: export and card."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, List, NoReturn, Optional, Sequence

from weir.errors import DamagedFileError, RunError, WeirError

__all__ = ["COMMANDS", "run"]

# Exit codes, as of the programs (docs/errors.md).
_BAD_INPUT = 2
_DAMAGED = 4

COMMANDS = {
    "export": "writes a model as ONNX, or the values of a checkpoint as safetensors",
    "card": "writes a model card of a checkpoint, as Markdown",
}

_EXPORT = """weir export JOB CHECKPOINT MODEL.onnx [flags]
       weir export CHECKPOINT VALUES.safetensors [flags]

CHECKPOINT is a directory of checkpoints, of which the newest complete one is taken or --step, or a step's
directory."""


def run(command: str, arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code. The message of an error goes to stderr."""
    try:
        return _export(arguments) if command == "export" else _card(arguments)
    except RunError as error:
        return _failed(command, error, error.exit_code)
    except (WeirError, OSError, ValueError) as error:
        return _failed(command, error, _DAMAGED if isinstance(error, DamagedFileError) else _BAD_INPUT)


def _failed(command: str, error: Exception, code: int) -> int:
    text = error.strerror if isinstance(error, OSError) and error.filename is not None else str(error)
    place = f"{error.filename}: " if isinstance(error, OSError) and error.filename is not None else ""
    print(f"weir {command}: {place}{text}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Raises errors instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise WeirError(f"{message}; --help lists the flags")


def _names(text: str) -> List[str]:
    return [each for each in text.split(",") if each]


def _export(arguments: Sequence[str]) -> int:
    parser = _Parser(prog="weir export", usage=_EXPORT, allow_abbrev=False, add_help=True)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, help="the checkpoint of this step instead of the newest")
    onnx = parser.add_argument_group("ONNX (docs/export.md)")
    onnx.add_argument("--outputs", type=_names, metavar="NAME,NAME", help="variables that the model returns; default: "
                      "the predictions of the losses")
    onnx.add_argument("--dense_only", action="store_true", help="leave the tables out: rows are inputs")
    onnx.add_argument("--lookup", default="auto", help="from ids to rows: auto, map or buckets")
    onnx.add_argument("--unknown", default="initial", help="what an id without a row gets: initial or zero")
    onnx.add_argument("--weighted", type=_names, default=[], metavar="NAME,NAME",
                      help="variables of data.multi_slot whose ids have weights")
    onnx.add_argument("--set", action="append", default=[], metavar="path.to.field=value",
                      help="overrides a field of the job; may be given many times")
    onnx.add_argument("--checkpoint_job", action="store_true", help="take the model from the job in the checkpoint, "
                      "and only files, batches and the cluster from JOB")
    onnx.add_argument("--check", action="store_true", help="score data.eval with the model in onnxruntime and with "
                      "--role=predict, and fail if scores differ by more than 1e-6, or 1e-5 of their size")
    values = parser.add_argument_group("safetensors")
    values.add_argument("--tables", type=_names, metavar="NAME,NAME", help="tables to write, '' for none; default: all")
    values.add_argument("--state", action="store_true", help="optimizer state too")
    given = parser.parse_args(list(arguments))
    output = given.paths[-1] if given.paths else ""
    if output.endswith(".onnx") and len(given.paths) == 3:
        return _export_onnx(given)
    if output.endswith(".safetensors") and len(given.paths) == 2:
        names = _open(given.paths[0], given.step).save_safetensors(output, tables=given.tables, state=given.state)
        print(f"{output}: {len(names)} arrays, {os.path.getsize(output)} bytes")
        return 0
    raise WeirError("expected JOB CHECKPOINT MODEL.onnx, or CHECKPOINT VALUES.safetensors, got "
                    f"{' '.join(given.paths) or 'nothing'}")


def _open(path: str, step: Optional[int]) -> Any:
    from weir.checkpoint import Checkpoint

    return Checkpoint(path, step)


def _export_onnx(given: Any) -> int:
    from weir.onnx.export import export_onnx

    job, directory, output = given.paths
    checkpoint = _open(directory, given.step)
    made = export_onnx(job, checkpoint, output, outputs=given.outputs, dense_only=given.dense_only, lookup=given.lookup,
                       unknown=given.unknown, weighted=given.weighted, overrides=given.set,
                       checkpoint_job=given.checkpoint_job)
    for file in made.files:
        print(f"{file}: {os.path.getsize(file)} bytes")
    for kind, values in (("input", made.inputs), ("output", made.outputs)):
        for name, dims in values.items():
            print(f"{kind} {name} [{', '.join(map(str, dims))}]")
    for name, table in made.tables.items():
        print(f"table {name} rows={table['rows']} width={table['width']} lookup={table['lookup']}")
    return _check(given, checkpoint) if given.check else 0


def _check(given: Any, checkpoint: Any) -> int:
    import numpy as np

    from weir.onnx.inputs import onnx_inputs
    from weir.prediction import predict

    try:
        import onnxruntime
    except ImportError:
        raise WeirError("--check needs onnxruntime (pip install onnxruntime)") from None
    job, _, output = given.paths
    if given.outputs is not None:
        raise WeirError("--check compares the prediction, and --outputs names other variables")
    inputs = onnx_inputs(output, job, checkpoint, overrides=given.set, checkpoint_job=given.checkpoint_job)
    scores = predict(job, checkpoint.path, overrides=given.set, checkpoint_job=given.checkpoint_job)
    session = onnxruntime.InferenceSession(output)
    name = session.get_outputs()[0].name
    # As many as fit into memory whatever the model.
    parts = [session.run([name], {key: value[at:at + 1024] for key, value in inputs.items()})[0]
             for at in range(0, len(scores), 1024)]
    made = np.concatenate(parts).reshape(scores.shape)
    there = ~np.isnan(scores)
    difference = np.abs(made - scores)[there]
    print(f"checked examples={len(scores)} most_difference={difference.max(initial=0):.3g} "
          f"onnxruntime={onnxruntime.__version__}")
    return 0 if bool((difference <= np.maximum(1e-6, 1e-5 * np.abs(scores[there]))).all()) else 1


def _card(arguments: Sequence[str]) -> int:
    parser = _Parser(prog="weir card", usage="weir card CHECKPOINT [flags]", allow_abbrev=False)
    parser.add_argument("checkpoint", help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, help="the checkpoint of this step instead of the newest")
    parser.add_argument("--licence_of_data", metavar="TEXT", help="what the licence of the training data allows")
    parser.add_argument("--notes", metavar="TEXT", help="further text, such as the intended use")
    parser.add_argument("--output", metavar="FILE", help="write here instead of to the standard output")
    given = parser.parse_args(list(arguments))
    card = _open(given.checkpoint, given.step).card(given.licence_of_data, given.notes)
    if given.output is None:
        print(card, end="")
        return 0
    with open(given.output, "w", encoding="utf-8") as file:
        file.write(card)
    return 0
