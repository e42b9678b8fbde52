"""Writes checkpoints. docs/checkpoint_format.md describes the format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

import numpy.typing as npt

from weir.checkpoint import Checkpoint
from weir.errors import WeirError
from weir.protos import checkpoint_pb2
from weir.rows import Path, Rows
from weir.writers.batches import Source, TableRows, ids_twice, runs_of
from weir.writers.dense import RATES, Variable, variable_of
from weir.writers.distinct_ids import DistinctIds
from weir.writers.limits import DEFAULT_SHARDS, check_name, check_shards, check_step
from weir.writers.publication import copy_file, new_step, seal, write_manifest
from weir.writers.shard_file import ShardFile

if TYPE_CHECKING:
    from weir.job import Job

__all__ = ["add_variable", "check_width", "raise_if_twice", "set_job", "shards_of",
           "write_checkpoint"]

# The rule by which ids have logical shards (Plan.scheme_version).
_SCHEME = 1
_STATISTICS = "statistics"


def write_checkpoint(path: Path, values: Mapping[str, npt.ArrayLike], *,
                     state: Optional[Mapping[str, Mapping[str, Any]]] = None,
                     tables: Optional[Mapping[str, TableRows]] = None, job: Optional[Job] = None, step: int = 0,
                     statistics: Optional[Checkpoint] = None,
                     logical_shards: Union[int, Mapping[str, int], None] = None, finite: bool = True) -> Checkpoint:
    """Writes a checkpoint, complete or not at all, never in the place of another, and opens it.

        ids = weir.feature_ids(words, "word")
        weir.write_checkpoint("pretrained", {"deep.0.w": w, "deep.0.b": b}, tables={"words": (ids, vectors)})

    16-bit floats are written exactly; float64 and integers are rounded to the nearest float32, ties to even.

    What a cluster does with it is its job's: a run that resumes and a prediction need every variable and table of the
    job, of its dims and width, with the state of its optimizer. edit_checkpoint changes a checkpoint that a run wrote.

    Args:
        path: directory of checkpoints, made if it is missing; the checkpoint is the directory step-<12 digits> in it.
        values: dense variables by name. Their shapes are those of the variables.
        state: optimizer state of variables, as Checkpoint.state returns it: {"deep.0.w": {"moment1": array of the
            variable's shape, "step": 120.0}}. A number is a count or power. "@LR_SCHEDULE" has the state of schedules.
        tables: rows by name of the table: (ids [n], values [n, width]), or (ids, values, {name: state [n, width]}), or
            an iterable of such batches, of which one is in memory at a time, or a weir.RowFile, or a table of a
            weir.Checkpoint (verify() it first). State has the order in which the optimizer has it. "words@candidates"
            and "words@tombstones" are those of the lifecycle.
        job: the job that the checkpoint is of, which is written into it.
        step: number of steps that it is said to hold. A run resumes from 0 alone, as the places of its data are not
            in it.
        statistics: a checkpoint whose data statistics are taken: of standardized columns, counts of values, learned
            vocabularies. Without them a prediction refuses a job that has such, and a run measures its own data.
        logical_shards: of all tables, or by name; default: those of the job, or of a table of a checkpoint, else 4096.
        finite: False writes NaN, infinities, and values beyond float32 as an infinity, instead of refusing them.

    Raises:
        TypeError: ids are no integers, or values no numbers.
        ValueError: shapes or widths that do not fit together; an id that is in a table twice; a value that is not
            finite, with its place.
        FileExistsError: the directory has a checkpoint of this step.
        WeirError: a run has its mark in the directory, or `statistics` has none.
        OSError: the files cannot be written.
    """
    check_step(step)
    tables, state = tables or {}, state or {}
    for what, given in (("values", values), ("state", state), ("tables", tables)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{what} is a dict by name, got {type(given).__name__}")
    variables = {name: variable_of(name, each, state.get(name, {}), finite) for name, each in values.items()}
    for name, states in state.items():
        if name == RATES:
            variables[name] = variable_of(name, (), states, finite)
        elif name not in values:
            raise ValueError(f"state of '{name}', which is not among values")
    for name in tables:
        check_name("table", name)
        if name in variables:
            raise ValueError(f"'{name}' is among values and among tables; a name is that of one")
    if not variables and not tables:
        raise ValueError("neither values nor tables: there is nothing to write")
    for name in logical_shards if isinstance(logical_shards, Mapping) else ():
        if name not in tables:
            raise ValueError(f"logical_shards of '{name}', which is not among tables")
    shards = {name: shards_of(name, rows, logical_shards, job) for name, rows in tables.items()}
    sources: Dict[str, Source] = {}
    for name, rows in tables.items():
        sources[name] = runs_of(name, rows, shards[name], finite)
        check_width(job, name, sources[name].layout.width)
    manifest = checkpoint_pb2.CheckpointManifest(step=step, scheme_version=_SCHEME)
    manifest.trainers.SetInParent()
    set_job(manifest, job)
    if statistics is not None:
        manifest.extra.extend(each for each in statistics.manifest.extra if each.name == _STATISTICS)
        if not manifest.extra:
            raise WeirError(f"{statistics.path} has no data statistics")
        statistics.verify()
    with new_step(path, step) as directory:
        with open(os.path.join(directory, "shard-00000"), "xb") as file:
            shard = ShardFile(file)
            for name, variable in variables.items():
                add_variable(shard, name, variable)
            for name, source in sources.items():
                _add_table(shard, name, shards[name], source, directory, _like(tables[name]))
            described = shard.finish()
        described.file.name = "shard-00000"
        manifest.shards.append(described)
        if statistics is not None:
            copy_file(os.path.join(statistics.path, _STATISTICS), os.path.join(directory, _STATISTICS))
        seal(manifest)
        write_manifest(directory, manifest)
    return Checkpoint(os.path.join(os.fspath(path), f"step-{step:012d}"))


def set_job(manifest: checkpoint_pb2.CheckpointManifest, job: Optional[Job]) -> None:
    """Writes a job into a manifest."""
    if job is not None:
        manifest.job = job.name
        manifest.job_text = job.to_text()


def check_width(job: Optional[Job], table: str, width: int) -> None:
    """Raises ValueError if the job has a table of this name and another width."""
    for each in job.config.table if job is not None else ():
        if each.name == table and each.HasField("width") and each.width != width:
            raise ValueError(f"table '{table}': values have width {width}; the job's table has {each.width}")


def add_variable(shard: ShardFile, name: str, variable: Variable) -> None:
    """Writes a variable and its state as a whole."""
    if variable.values is not None:
        shard.add_dense(name, variable.dims, 0, variable.values)
    for state, floats in variable.states.items():
        shard.add_dense(name, variable.dims, 0, floats, state, scalar=state in variable.scalars)


def raise_if_twice(table: str, seen: DistinctIds) -> None:
    """Raises ValueError if one of the ids of a table was there twice."""
    twice = seen.first_double()
    if twice is not None:
        raise ids_twice(table, *twice)


def _like(rows: TableRows) -> Optional[checkpoint_pb2.TableEntry]:
    """Returns what rows of a checkpoint say of rows that are not there."""
    if not isinstance(rows, Rows) or rows.zero_columns == (0, 0):
        return None
    return checkpoint_pb2.TableEntry(zero_begin=rows.zero_columns[0], zero_end=rows.zero_columns[1])


def _add_table(shard: ShardFile, name: str, shards: int, source: Source, directory: str,
               like: Optional[checkpoint_pb2.TableEntry]) -> None:
    if source.distinct:
        shard.add_table(name, source.layout, shards, source.runs, like=like)
        return
    seen = DistinctIds(directory)
    try:
        shard.add_table(name, source.layout, shards, source.runs, seen, like)
        raise_if_twice(name, seen)
    finally:
        seen.close()


def shards_of(table: str, rows: TableRows, given: Union[int, Mapping[str, int], None], job: Optional[Job]) -> int:
    """Returns the number of logical shards of a table: as given, else that of the job, else of the rows."""
    # Ids that wait for a row are placed as the rows of their table are.
    of = table.partition("@")[0]
    shards = DEFAULT_SHARDS
    named = [each for each in (job.config.table if job is not None else ()) if each.name == of]
    if named:
        shards = named[0].logical_shards
    elif isinstance(rows, Rows):
        shards = rows.logical_shards
    if isinstance(given, Mapping):
        shards = given.get(table, given.get(of, shards))
    elif given is not None:
        shards = given
    check_shards(table, shards)
    return shards
