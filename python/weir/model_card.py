"""A model card of a checkpoint: what it was trained on, how good it is, what it holds and how to verify it."""

from __future__ import annotations

import math
import os
import re
from typing import Any, Iterator, List, Optional, Sequence

from google.protobuf import text_format

from weir.protos import job_pb2
from weir.saved import Saved
from weir.text_message import parse_text
from weir.version import __version__

__all__ = ["card_of"]


def card_of(checkpoint: Saved, licence_of_data: Optional[str], notes: Optional[str]) -> str:
    """Returns the card as Markdown. See Checkpoint.card."""
    job = _job(checkpoint)
    parts = [f"# {checkpoint.job_name or 'A model'}\n", *_summary(checkpoint, job)]
    if notes:
        parts += ["## Notes\n", notes.strip() + "\n"]
    parts += ["## Data\n", *_data(checkpoint, job, licence_of_data)]
    parts += ["## Figures\n", *_figures(checkpoint)]
    parts += ["## Parameters\n", *_parameters(checkpoint)]
    parts += ["## Verifying\n", *_verifying(checkpoint)]
    return "\n".join(parts)


def _job(checkpoint: Saved) -> Optional[Any]:
    """Returns the job of the checkpoint; None if it has messages that are not known here."""
    try:
        return parse_text(checkpoint.manifest.job_text, job_pb2.JobConfig())
    except text_format.ParseError:
        return None


def _summary(checkpoint: Saved, job: Optional[Any]) -> Iterator[str]:
    manifest = checkpoint.manifest
    dense = sum(math.prod(checkpoint._dense[name][""][0][0].whole_dims) for name in checkpoint.variables)
    rows = sum(len(checkpoint.table(name)) * checkpoint.table(name).width for name in checkpoint.tables)
    yield from _table(["", ""], [
        ["job", f"`{checkpoint.job_name}`"],
        ["training step", f"{checkpoint.step:,}"],
        ["parameters", f"{dense + rows:,}: {dense:,} dense, {rows:,} in rows of tables"],
        ["losses", _code(_losses(job)) or "those of a program in a file"],
        ["layers", _code(_layers(job)) or "those of a program in a file"],
        ["seed, lanes", f"{manifest.seed}, {manifest.lanes}"],
        ["made by", f"Weir, {manifest.build or 'a build without a name'}"],
        ["card by", f"weir {__version__}"],
    ])


def _losses(job: Optional[Any]) -> List[str]:
    return [] if job is None else [each.WhichOneof("kind") or "" for each in job.model.loss]


def _layers(job: Optional[Any]) -> List[str]:
    """Returns the kinds of layers, each once."""
    kinds = [] if job is None else [each.WhichOneof("kind") or "" for each in job.model.layer]
    return list(dict.fromkeys(kinds))


def _data(checkpoint: Saved, job: Optional[Any], licence: Optional[str]) -> Iterator[str]:
    files = [line for line in checkpoint.manifest.train_data.splitlines() if line.strip()]
    if files:
        yield f"Training read {len(files)} {'file' if len(files) == 1 else 'files'}:\n"
        yield from _table(["file", "bytes", "xxh3-64 of a sample"], [_file_row(each) for each in files])
    else:
        yield "The checkpoint does not name the files of the training.\n"
    if job is not None and job.HasField("data"):
        passes = f"{job.train.epochs} {'pass' if job.train.epochs == 1 else 'passes'}"
        yield f"The job asks for {passes} over them; its reader is `{job.data.WhichOneof('reader')}`.\n"
        if job.distribute.sync:
            batch = job.data.batch_size * job.train.accumulate_steps
            yield (f"A step has up to {batch:,} examples, so that {checkpoint.step:,} steps have up to "
                   f"{batch * checkpoint.step:,}.\n")
        if job.data.HasField("eval"):
            yield f"Evaluation reads {_code(job.data.eval.files)}.\n"
    if licence:
        yield f"Licence of the data: {licence.strip()}\n"
    else:
        yield ("The licence of the data was not stated (`--licence_of_data`). It may restrict the use of the model, "
               "too.\n")


def _file_row(line: str) -> Sequence[str]:
    """Returns the cells of a line such as "a.tsv: 120 bytes, xxh3 0123456789abcdef"."""
    found = re.fullmatch(r"(.*): (\d+) bytes, xxh3 ([0-9a-f]{16})", line.strip())
    return [f"`{line.strip()}`", "", ""] if found is None else [f"`{found[1]}`", f"{int(found[2]):,}", f"`{found[3]}`"]


def _figures(checkpoint: Saved) -> Iterator[str]:
    if not checkpoint.figures:
        yield f"There was no evaluation at step {checkpoint.step:,}.\n"
        return
    yield f"Of the evaluation at step {checkpoint.step:,}:\n"
    yield from _table(["figure", "value"], [[name, f"{value:.6g}"] for name, value in checkpoint.figures.items()])


def _parameters(checkpoint: Saved) -> Iterator[str]:
    if checkpoint.tables:
        tables = [checkpoint.table(name) for name in checkpoint.tables]
        yield from _table(["table", "rows", "width", "optimizer state"], [
            [f"`{each.name}`", f"{len(each):,}", str(each.width),
             ", ".join(f"{name} [{width}]" for name, width in each.state_widths.items()) or "none"] for each in tables])
    if checkpoint.variables:
        yield from _table(["dense variable", "shape"], [
            [f"`{name}`", str(list(checkpoint._dense[name][""][0][0].whole_dims))] for name in checkpoint.variables])


def _verifying(checkpoint: Saved) -> Iterator[str]:
    manifest = checkpoint.manifest
    directory = os.path.basename(os.path.normpath(checkpoint.path))
    yield ("`values_digest` covers every value and `state_digest` the state of the optimizers; neither depends on how "
           "many servers wrote the checkpoint. These commands read every byte, compare it with the checksums of "
           "MANIFEST, and compute the digests anew:\n")
    yield f"    checkpoint verify {directory}\n    checkpoint digest {directory}\n"
    yield from _table(["", ""], [
        ["values_digest", f"`{manifest.values_digest:016x}`"], ["state_digest", f"`{manifest.state_digest:016x}`"],
        ["directory", f"`{directory}`"],
        ["files", f"{len(manifest.shards) + len(manifest.extra)}, "
                  f"{sum(each.file.bytes for each in manifest.shards) + sum(e.bytes for e in manifest.extra):,} bytes"],
        ["format", str(manifest.format_version)],
    ])


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table, and an empty line."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    yield "".join(f"| {' | '.join(each)} |\n".replace("|  |", "| |").replace("|  |", "| |") for each in lines)
