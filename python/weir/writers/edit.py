"""Copies checkpoints with changes."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Union

import numpy.typing as npt

from weir.checkpoint import Checkpoint, Table, floats_of, table_of
from weir.errors import WeirError
from weir.nearest import did_you_mean
from weir.protos import checkpoint_pb2
from weir.rows import Bytes, Floats, NotFoundError, Path, RowBatch
from weir.writers.batches import Batch, Layout, TableRows, as_floats, runs_of
from weir.writers.checkpoint import add_variable, check_width, raise_if_twice, set_job, shards_of
from weir.writers.dense import RATES, RATES_DIMS, Variable, check_states, state_of
from weir.writers.distinct_ids import DistinctIds
from weir.writers.limits import check_name
from weir.writers.publication import copy_file, new_step, seal, write_manifest
from weir.writers.shard_file import ShardFile

if TYPE_CHECKING:
    from weir.job import Job

__all__ = ["edit_checkpoint"]

TableEdit = Union[Callable[[RowBatch], Batch], TableRows, None]
States = Mapping[str, Any]


def edit_checkpoint(checkpoint: Union[Checkpoint, Path], path: Path, *,
                    values: Optional[Mapping[str, Optional[npt.ArrayLike]]] = None,
                    state: Optional[Mapping[str, Optional[States]]] = None,
                    tables: Optional[Mapping[str, TableEdit]] = None, job: Optional[Job] = None,
                    finite: bool = True) -> Checkpoint:
    """Copies a checkpoint with changes into another directory, complete or not at all, and opens the copy.

        old = weir.Checkpoint("checkpoints")
        w = old.dense("deep.0.w")
        w[16:24] = 0                                             # what the third feature of width 8 brings
        weir.edit_checkpoint(old, "silent", values={"deep.0.w": w})

        def cut(rows):                                           # batches of a weir.RowBatch: ids, values, state
            return rows.ids, rows.values[:, :8], {name: each[:, :8] for name, each in rows.state.items()}

        weir.edit_checkpoint(old, "narrow", tables={"vectors": cut}, job=narrow)

    All that is not named stays as it is to the bit: values, state, the division into shard files, statistics and other
    files of the trainers, places of the data. A run goes on from the copy as it would from the original. The figures
    of the evaluation, which are those of the original, are left out if values or tables change.

    Every byte of the original is compared with its checksum first. One batch of rows is in memory at a time.

    Args:
        checkpoint: the original; a path stands for weir.Checkpoint(path).
        path: directory of checkpoints, made if it is missing, that has none of this step.
        values: arrays by name of the variable. One of another shape needs state of that shape, or no state. A name
            that the original does not have is a new variable; None removes one, with its state.
        state: states by name of the variable, as write_checkpoint takes them. Those that are not named stay; None in
            the place of a state removes it, None in the place of the dict all of a variable.
        tables: by name, a function from a weir.RowBatch to rows (ids, values, state), which is called with batches of
            some MiB, and with one of no rows for a server that has none; or new rows, as write_checkpoint takes them;
            None removes the table, with what its lifecycle keeps. Whether a table has state is for the function to
            say: of a table with state it returns three things, {} for no state.
        job: the job that the copy is of; default: that of the original.
        finite: False writes NaN, infinities, and values beyond float32 as an infinity, where values, states or tables
            are named here, instead of refusing them.

    Raises:
        TypeError, ValueError: as write_checkpoint.
        NotFoundError: the original does not have what is to be removed, or a table that a function is given for.
        DamagedFileError: bytes of the original have changed.
        FileExistsError: the directory has a checkpoint of this step.
        WeirError: a run has its mark in the directory.
        OSError: the files cannot be written.
    """
    old = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    for what, given in (("values", values), ("state", state), ("tables", tables)):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{what} is a dict by name, got {type(given).__name__}")
    dense = _DenseEdits(old, values or {}, state or {}, finite)
    rows = _TableEdits(old, tables or {}, job, finite)
    for name in sorted(dense.names & rows.names):
        raise ValueError(f"'{name}' would be a variable and a table; a name is that of one")
    if not old.manifest.shards:
        raise WeirError(f"{old.path} has no files with parameters; there is nothing to edit")
    old.verify()
    manifest = checkpoint_pb2.CheckpointManifest()
    manifest.CopyFrom(old.manifest)
    set_job(manifest, job)
    if values or tables:
        for field in ("eval_auc", "eval_loss", "eval_figure", "eval_rank", "eval_ranked_by"):
            manifest.ClearField(field)
    with new_step(path, old.step) as directory:
        del manifest.shards[:]
        with rows.ids_in(directory):
            for i, shard in enumerate(old.manifest.shards):
                with open(os.path.join(directory, shard.file.name), "xb") as file:
                    writer = ShardFile(file)
                    dense.write(writer, shard, old._files[shard.file.name], is_first=i == 0)
                    rows.write(writer, shard, old._files[shard.file.name], is_first=i == 0)
                    manifest.shards.append(_described(writer, shard))
            rows.check()
        for extra in manifest.extra:
            copy_file(os.path.join(old.path, extra.name), os.path.join(directory, extra.name))
        seal(manifest)
        write_manifest(directory, manifest)
    return Checkpoint(os.path.join(os.fspath(path), f"step-{old.step:012d}"))


def _described(writer: ShardFile, old: checkpoint_pb2.CheckpointShard) -> checkpoint_pb2.CheckpointShard:
    """Ends a file. Returns its description, with what the original's says of its server."""
    shard = writer.finish()
    shard.file.name = old.file.name
    shard.trainer_steps[:] = old.trainer_steps
    if old.HasField("table_steps"):
        shard.table_steps = old.table_steps
    return shard


class _Edit(NamedTuple):
    """A variable that is edited.

    Attributes:
        variable: as it becomes.
        changed: names of its parts that do not keep their bits: "" for values, or names of states.
        whole: its shape or the names of its states change, so that its division into blocks does not fit any more.
    """

    variable: Variable
    changed: Set[str]
    whole: bool


class _DenseEdits:
    """Changes of dense variables and their state.

    A variable that keeps its shape and the names of its states keeps its division into blocks. Any other is written as
    a whole into the file that has its first element, or into the first file if it is new.
    """

    def __init__(self, old: Checkpoint, values: Mapping[str, Optional[npt.ArrayLike]],
                 state: Mapping[str, Optional[States]], finite: bool):
        self._edits: Dict[str, _Edit] = {}
        self._removed: Set[str] = set()
        self._written: Set[str] = set()
        for name in {**values, **state}:
            check_name("variable", name)
            is_new = values.get(name) is not None or name == RATES and state.get(name) is not None
            if name not in old._dense and not is_new:
                raise NotFoundError(f"{old.path} has no variable '{name}'{did_you_mean(name, old.variables)}")
            if name in values and values[name] is None:
                if state.get(name) is not None:
                    raise ValueError(f"state of '{name}', which is to be removed")
                self._removed.add(name)
            else:
                self._edits[name] = _edit_of(old, name, values.get(name), state.get(name, {}), finite)
        self._new = [name for name in self._edits if name not in old._dense]
        self.names = {*old._dense, *self._new} - self._removed

    def write(self, writer: ShardFile, shard: checkpoint_pb2.CheckpointShard, data: Bytes, is_first: bool) -> None:
        """Writes what one file of the original becomes; new variables into the first."""
        for entry in shard.dense:
            name = entry.state_of if entry.HasField("state_of") else entry.variable
            edit = self._edits.get(name)
            if name in self._removed:
                continue
            if edit is not None and edit.whole:
                if entry.element_begin == 0 and name not in self._written:
                    self._written.add(name)
                    add_variable(writer, name, edit.variable)
                continue
            floats = floats_of(entry, data)
            if edit is not None and entry.state_name in edit.changed:
                floats = _part(edit.variable, entry)
            writer.add_dense(name, entry.whole_dims, entry.element_begin, floats, entry.state_name, entry.scalar)
        for name in self._new if is_first else ():
            add_variable(writer, name, self._edits[name].variable)


def _part(variable: Variable, entry: checkpoint_pb2.DenseEntry) -> Floats:
    """Returns the new elements of an entry."""
    whole = variable.states[entry.state_name] if entry.state_name else variable.values
    assert whole is not None
    return whole if entry.scalar else whole[entry.element_begin:entry.element_begin + entry.element_count]


def _edit_of(old: Checkpoint, name: str, values: Optional[npt.ArrayLike], given: Optional[States],
             finite: bool) -> _Edit:
    """Returns the edit of a variable. `values`: None to keep them; `given`: None to drop all state."""
    if given is not None:
        check_states(name, given)
    if name == RATES and values is not None:
        raise ValueError(f"'{name}' has no values; its state goes into state")
    before = _variable_before(old, name)
    changed: Set[str] = set()
    dims, floats = before.dims, before.values
    if values is not None:
        array = as_floats(f"'{name}'", values, finite)
        dims, floats = array.shape, array.reshape(-1)
        changed.add("")
    # States have the order that they had.
    states = {each: kept for each, kept in before.states.items() if given is not None}
    scalars = set(before.scalars) & states.keys()
    for each, value in (given or {}).items():
        if value is None and each not in states:
            raise NotFoundError(f"{old.path} has no state '{each}' of '{name}'{did_you_mean(each, list(states))}")
        scalars.discard(each)
        if value is None:
            del states[each]
            continue
        states[each], is_scalar = state_of(name, dims, each, value, finite)
        changed.add(each)
        if is_scalar:
            scalars.add(each)
    for each in sorted(states.keys() - scalars - changed) if dims != before.dims else ():
        raise ValueError(f"'{name}' gets the shape {list(dims)} instead of {list(before.dims)}, which its state "
                         f"'{each}' has; pass it too, state={{'{name}': {{'{each}': ...}}}}, or drop its state, "
                         f"state={{'{name}': None}}")
    whole = dims != before.dims or states.keys() != before.states.keys() or scalars != before.scalars
    return _Edit(Variable(dims, floats, states, frozenset(scalars)), changed, whole)


def _variable_before(old: Checkpoint, name: str) -> Variable:
    """Returns a variable as it is; one without elements or state if it is new."""
    parts = old._dense.get(name, {})
    if not parts:
        return Variable(RATES_DIMS if name == RATES else (-1,), None, {}, frozenset())
    dims = tuple(next(iter(parts.values()))[0][0].whole_dims)
    states, scalars = {}, set()
    for state, pieces in parts.items():
        entry, data = pieces[0]
        if entry.scalar:
            states[state] = floats_of(entry, data)
            scalars.add(state)
        elif state:
            states[state] = old._whole(name, state).reshape(-1)
    return Variable(dims, old._whole(name, "").reshape(-1) if "" in parts else None, states, frozenset(scalars))


class _TableEdits:
    """Changes of tables. Rows that are given as a whole are written into the first file."""

    def __init__(self, old: Checkpoint, edits: Mapping[str, TableEdit], job: Optional[Job], finite: bool):
        self._path = old.path
        self._edits = edits
        self._job = job
        self._finite = finite
        self._layouts: Dict[str, Layout] = {}
        self._seen: Dict[str, DistinctIds] = {}
        self._shards: Dict[str, int] = {}
        self._there = {name: pieces[0][0] for name, pieces in old._tables.items()}
        for name, edit in edits.items():
            check_name("table", name)
            there = old._tables.get(name)
            if there is None and (edit is None or callable(edit)):
                raise NotFoundError(f"{old.path} has no table '{name}'{did_you_mean(name, old.tables)}")
            # Checks that all files agree on its layout.
            if there is not None:
                self._shards[name] = old.table(name).logical_shards
            elif edit is not None and not callable(edit):
                self._shards[name] = shards_of(name, edit, None, job)
        self.names = {each for each in {*old._tables, *edits} if edits.get(each, ()) is not None}

    @contextlib.contextmanager
    def ids_in(self, directory: str) -> Iterator[None]:
        """Collects ids of edited tables during the block, beyond memory in a file in `directory`."""
        with contextlib.ExitStack() as stack:
            for name, edit in self._edits.items():
                if edit is not None:
                    self._seen[name] = DistinctIds(directory)
                    stack.callback(self._seen[name].close)
            yield

    def check(self) -> None:
        """Raises ValueError if an id is there twice in an edited table."""
        for name, seen in self._seen.items():
            raise_if_twice(name, seen)

    def write(self, writer: ShardFile, shard: checkpoint_pb2.CheckpointShard, data: Bytes, is_first: bool) -> None:
        """Writes what one file of the original becomes."""
        entries: Dict[str, List[checkpoint_pb2.TableEntry]] = {}
        for entry in shard.tables:
            entries.setdefault(entry.table, []).append(entry)
        for name, of in entries.items():
            if name in self._edits and not callable(self._edits[name]) or self._is_removed(name):
                continue
            rows = table_of(self._path, [(entry, data) for entry in of])
            edit = self._edits.get(name)
            if callable(edit):
                self._add(writer, name, rows.logical_shards, _edited(rows, edit), of[0])
            else:
                source = runs_of(name, rows, rows.logical_shards, finite=False)
                writer.add_table(name, source.layout, rows.logical_shards, source.runs, like=of[0])
        for name, edit in self._edits.items() if is_first else ():
            if edit is not None and not callable(edit):
                self._add(writer, name, self._shards[name], edit, self._there.get(name))

    def _is_removed(self, name: str) -> bool:
        """Returns whether rows, or what the lifecycle of a table keeps beside them, go with a table."""
        of = name.partition("@")[0]
        return of in self._edits and self._edits[of] is None and name not in self._edits

    def _add(self, writer: ShardFile, name: str, shards: int, rows: TableRows,
             like: Optional[checkpoint_pb2.TableEntry]) -> None:
        source = runs_of(name, rows, shards, self._finite)
        check_width(self._job, name, source.layout.width)
        first = self._layouts.setdefault(name, source.layout)
        if source.layout != first:
            raise ValueError(f"table '{name}': rows get {source.layout}, and those of another file {first}")
        writer.add_table(name, source.layout, shards, source.runs, self._seen[name], like)


def _edited(rows: Table, edit: Callable[[RowBatch], Batch]) -> Iterator[Batch]:
    """Yields what a function makes of rows, and of none if there are none: a file says the layout of each table."""
    none = RowBatch(rows.ids, rows.values, rows.state)
    for batch in rows.chunks() if len(rows) > 0 else [none]:
        made = edit(batch)
        if isinstance(made, tuple) and len(made) == 2 and rows.state_widths:
            raise TypeError(f"table '{rows.name}' has state {', '.join(rows.state_widths)}, and the function returned "
                            "(ids, values); return (ids, values, state), with {} to drop the state")
        yield made
