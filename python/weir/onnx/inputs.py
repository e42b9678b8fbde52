"""Makes the inputs of an exported model of the data that a job reads.

The trainer parses the data and carries the variables through a prediction; what data.dense and data.ids make of them is
computed here (trainer/data/features.h).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path as FilePath
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Union

import numpy as np
import numpy.typing as npt
from google.protobuf import message

from weir import child, data_columns, initial_values, prediction
from weir.checkpoint import Checkpoint
from weir.checkpoint_job import as_job, check_same_scores, with_model_of
from weir.csv_arrays import columns_of
from weir.data_statistics import DataStatistics, read_statistics
from weir.errors import DamagedFileError, WeirError
from weir.example_file import Examples, read_examples
from weir.feature_id import missing_id, padding_id, rare_id, slot_salt
from weir.job import Job
from weir.job_on_disk import JobOnDisk
from weir.onnx.export import program_of
from weir.onnx.ops import variables_of
from weir.protos import job_pb2, onnx_subset_pb2, program_pb2
from weir.rows import Path
from weir.stable_hash import mix_ids

__all__ = ["onnx_inputs"]

_Transform = job_pb2.DenseTransform


class _Slots(NamedTuple):
    """Ids of some slots.

    Attributes:
        counts: int64 [n, slots].
        ids, weights: one after the other, example by example, and slot by slot.
    """

    counts: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    weights: Optional[npt.NDArray[np.float32]]


def onnx_inputs(
    model: Path, job: Any, checkpoint: Union[Path, Checkpoint], inputs: Any = None, overrides: Sequence[str] = (), *,
    checkpoint_job: bool = False,
) -> Dict[str, npt.NDArray[Any]]:
    """Returns the inputs of an exported model for data, as arrays by name, all examples in one batch.

        inputs = weir.onnx_inputs("model.onnx", "job.textproto", "checkpoints", "new/*.csv")
        scores = onnxruntime.InferenceSession("model.onnx").run(["prediction"], inputs)[0]

    They are what `--role=predict` gives to the program: ids of the tables, and floats after data.dense. Derived
    variables, columns that are standardised and rare values are those of training; the checkpoint has what they need.
    An example of a line that is skipped (data.bad_line: SKIP) has missing values.

    Args:
        model: path of the model.
        job, checkpoint: those of the export.
        inputs: as of weir.predict: files of the job's reader, a frame or a dict of columns for a csv reader, or None
            for data.eval.
        overrides: fields of the job that have another value.
        checkpoint_job: as of the export.

    Raises:
        JobError: the job is wrong, or makes other scores than the model in the checkpoint.
        WeirError: the model is not of this job; ids have weights, and the model does not take them.
        weir.RunError, ValueError: as weir.predict.
    """
    opened = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    wanted = _inputs_of(model, opened.job_name)
    job = with_model_of(opened, job, overrides) if checkpoint_job else as_job(job, overrides)
    check_same_scores(job, opened)
    program = program_of(job)
    variables = {var.name: var for var in program.blocks[0].vars}
    needed = _variables_of(wanted, variables, os.fspath(model))
    examples = _carried(job, opened, inputs, needed)
    make = _Maker(job, program, opened, read_statistics(opened))
    arrays: Dict[str, npt.NDArray[Any]] = {}
    slots = floats = 0
    for name in needed:
        width = variables[name].dims[1]
        if variables[name].kind == program_pb2.DENSE:
            values = examples.floats[:, floats:floats + int(np.prod(variables[name].dims[1:]))]
            floats += values.shape[1]
            arrays[name] = make.floats(name, values).reshape(-1, *variables[name].dims[1:])
            continue
        of = make.ids(name, _slots_of(examples, slots, width))
        slots += width
        arrays.update(_as_inputs(name, of, wanted))
        for each in wanted:
            variable, at, table = each.rpartition("@")
            if at and variable == name and each not in variables:
                arrays[each] = make.rows(variables[table], arrays[name])
    return {name: arrays[name] for name in wanted}


def _inputs_of(path: Path, job_name: str) -> List[str]:
    """Returns the names of the inputs of a model, which must be of the job."""
    model = onnx_subset_pb2.ModelProto()
    try:
        with open(path, "rb") as file:
            model.ParseFromString(file.read())
    except message.DecodeError:
        raise DamagedFileError(f"{os.fspath(path)} is no ONNX model, or is cut") from None
    of = next((each.value for each in model.metadata_props if each.key == "weir.job"), None)
    if of != job_name:
        what = "not exported by Weir" if of is None else f"of job '{of}'"
        raise WeirError(f"{os.fspath(path)} is {what}, and the checkpoint is of job '{job_name}'")
    return [each.name for each in model.graph.input]


def _variables_of(wanted: Sequence[str], variables: Dict[str, Any], model: str) -> List[str]:
    """Returns the variables of the data that the inputs are made of, floats and ids."""
    found: List[str] = []
    for each in wanted:
        name = each
        if name not in variables:
            for ending in (".lengths", ".weights"):
                name = name[:-len(ending)] if name.endswith(ending) else name
            name = name.rpartition("@")[0] or name
        if name not in variables:
            raise WeirError(f"{model} has an input '{each}', which is no variable of the job: it was exported of "
                            "another version of the job")
        if name not in found:
            found.append(name)
    return found


def _carried(job: Job, checkpoint: Checkpoint, inputs: Any, names: Sequence[str]) -> Examples:
    """Returns the values of variables before data.dense and data.ids, by a prediction that carries them."""
    from_files = inputs is None or isinstance(inputs, (str, os.PathLike))
    with JobOnDisk(job) as file, tempfile.TemporaryDirectory(prefix="weir-onnx-") as directory:
        output = FilePath(directory) / "carried.examples"
        arguments = [f"--job={file.path}", "--role=predict", f"--checkpoint={checkpoint.path}", f"--output={output}",
                     f"--carry={','.join(names)}", "--set", "cluster={}", *child.arguments_of(file.overrides)]
        temporary = None
        if not from_files:
            temporary = FilePath(directory) / "inputs.csv"
            arguments += [f"--input={temporary}", *prediction._write(job.config, columns_of(inputs), (), temporary)]
        elif inputs is not None:
            arguments.append(f"--input={os.fspath(inputs)}")
        prediction._score(arguments, file, temporary)
        return read_examples(output)


def _slots_of(examples: Examples, begin: int, width: int) -> _Slots:
    """Returns the ids of the slots [begin, begin + width)."""
    number = examples.counts.shape[1]
    slot = np.repeat(np.tile(np.arange(number), len(examples.counts)), examples.counts.reshape(-1))
    taken = (slot >= begin) & (slot < begin + width)
    weights = None if examples.weights is None else examples.weights[taken]
    return _Slots(examples.counts[:, begin:begin + width], examples.ids[taken], weights)


def _as_inputs(name: str, of: _Slots, wanted: Sequence[str]) -> Dict[str, npt.NDArray[Any]]:
    """Returns the ids of a variable as the model takes them."""
    n, slots = of.counts.shape
    most = int(of.counts.max(initial=1))
    row = np.repeat(np.arange(n * slots), of.counts.reshape(-1))
    inside = np.arange(len(of.ids)) - np.repeat(np.cumsum(of.counts) - of.counts.reshape(-1), of.counts.reshape(-1))
    ids = np.zeros((n * slots, most), np.int64)
    ids[row, inside] = of.ids
    ids = ids.reshape(n, slots, most)
    weighted = of.weights is not None and bool((of.weights != 1).any())
    if weighted and f"{name}.weights" not in wanted:
        raise WeirError(f"ids of '{name}' have weights, and the model takes none: export it with weighted=['{name}']")
    if f"{name}.lengths" not in wanted:
        if most > 1 or (of.counts != 1).any():
            example = int(np.flatnonzero((of.counts != 1).any(axis=1))[0])
            raise WeirError(f"example {example} has not exactly one id in each slot of '{name}', as the model needs")
        return {name: ids[:, :, 0]}
    arrays: Dict[str, npt.NDArray[Any]] = {name: ids, f"{name}.lengths": of.counts.copy()}
    if f"{name}.weights" in wanted:
        weights = np.ones((n * slots, most), np.float32)
        if of.weights is not None:
            weights[row, inside] = of.weights
        arrays[f"{name}.weights"] = weights.reshape(n, slots, most)
    return arrays


class _Maker:
    """What data.dense and data.ids make of the values of the data."""

    def __init__(self, job: Job, program: Any, checkpoint: Checkpoint, statistics: Optional[DataStatistics]):
        columns = data_columns.columns_of(job.data)
        if columns is None:
            raise WeirError("the variables of a reader of your own (data.custom) are not known here")
        self._data = job.data
        self._layers = job.model.layer
        self._columns = {each.name: each for each in columns}
        self._program = program
        self._checkpoint = checkpoint
        self._statistics = statistics
        self._never = _never_transformed(job, program)
        self._first: Dict[str, int] = {}
        position = 0
        for each in columns:
            if each.slots is None:
                self._first[each.name] = position
                position += each.width

    def floats(self, name: str, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Returns a float variable after data.dense."""
        dense = self._data.dense
        never = self._columns[name].learned or name in self._never
        chosen = {each.index: (each.transform, list(each.boundaries)) for each in dense.column if each.variable == name}
        made = np.empty(values.shape, np.float32)
        for i in range(values.shape[1]):
            transform, boundaries = chosen.get(i, (_Transform.NONE if never else dense.transform, []))
            column = values[:, i].astype(np.float64)
            made[:, i] = self._transformed(column, transform, boundaries, self._first[name] + i)
        made[np.isnan(values)] = 0
        return made

    def _transformed(self, x: npt.NDArray[np.float64], transform: int, boundaries: List[float],
                     position: int) -> npt.NDArray[np.float64]:
        if transform == _Transform.LOG1P:
            logarithms: npt.NDArray[np.float64] = np.copysign(np.log1p(np.abs(x)), x)
            return logarithms
        if transform == _Transform.STANDARDIZE:
            assert self._statistics is not None
            standard: npt.NDArray[np.float64] = (x - self._statistics.means[position]) / \
                self._statistics.deviations[position]
            return standard
        if transform == _Transform.BUCKETIZE:
            # As the reader: floats of the data are float32, and so are the boundaries.
            rounded = np.array(boundaries, np.float32).astype(np.float64)
            return np.searchsorted(rounded, x, side="right").astype(np.float64)
        return x

    def ids(self, name: str, raw: _Slots) -> _Slots:
        """Returns a variable of ids after data.ids."""
        column = self._columns[name]
        assert column.slots is not None
        shared = column.ids_of in self._data.ids.shared
        salts = np.array([slot_salt(column.ids_of, each, shared) for each in column.slots], np.uint64)
        slot = np.repeat(np.tile(np.arange(len(salts)), len(raw.counts)), raw.counts.reshape(-1))
        mixed = mix_ids(raw.ids)
        mixed ^= salts[slot]
        salted = mix_ids(mixed)
        ids = raw.ids.copy() if shared else salted.view(np.int64)
        statistics = self._statistics
        if statistics is not None and statistics.min_count > 1 and not self._is_learned(name):
            rare = np.array([rare_id(column.ids_of, each, shared) for each in column.slots], np.int64)
            ids = np.where(_contains(statistics.kept, salted), ids, rare[slot])
        for padding in self._paddings(name):
            ids[raw.ids == padding] = padding if shared else padding_id(padding)
        if self._data.ids.empty == job_pb2.IdTransform.ZERO:
            return raw._replace(ids=ids)
        missing = np.array([missing_id(column.ids_of, each, shared) for each in column.slots], np.int64)
        return _with_missing(raw._replace(ids=ids), missing)

    def _is_learned(self, name: str) -> bool:
        # Drawn negatives are kept as the variable that they are drawn for.
        column = self._columns[name]
        of = self._columns.get(column.ids_of)
        return of.learned if column.ids_of != name and of is not None else column.learned

    def _paddings(self, name: str) -> Set[int]:
        embeddings = [layer.embedding for layer in self._layers if layer.HasField("embedding")]
        return {each.padding_id for each in embeddings if each.HasField("padding_id") and name in each.ids}

    def rows(self, table: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Returns the rows of ids, [.., width]; initial values of those that have none."""
        rows = self._checkpoint.table(table.name)
        distinct, inverse = np.unique(ids.reshape(-1), return_inverse=True)
        values = np.empty((len(distinct), rows.width), np.float32)
        without = ~rows._copy_rows(distinct, values)
        key = initial_values.key_of(self._program.seed, table.name)
        columns = initial_values.columns_of(self._program, table, rows.zero_columns)
        values[without] = initial_values.initial_rows(columns, key, distinct[without], table.dtype)
        found: npt.NDArray[np.float32] = values[inverse.reshape(ids.shape)]
        return found


def _contains(ascending: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    if len(ascending) == 0:
        return np.zeros(len(keys), bool)
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    found: npt.NDArray[np.bool_] = ascending[at] == keys
    return found


def _with_missing(of: _Slots, missing: npt.NDArray[np.int64]) -> _Slots:
    """Puts the missing id of its slot, [slots], where a slot is empty."""
    counts = of.counts.reshape(-1)
    empty = np.flatnonzero(counts == 0)
    places = (np.cumsum(counts) - counts)[empty]
    ids = np.insert(of.ids, places, missing[empty % len(missing)])
    weights = None if of.weights is None else np.insert(of.weights, places, 1)
    return _Slots(np.maximum(of.counts, 1), ids, weights)


def _never_transformed(job: Job, program: Any) -> Set[str]:
    """Returns the float variables that stay as they are: trainer/data/data_spec.h."""
    # `except` is a word of Python.
    named = set(getattr(job.data.dense, "except"))
    if named:
        return named
    names: List[str] = []
    for loss in program.losses:
        names += [loss.label, loss.sample_weight]
    for op in program.blocks[0].ops:
        if op.type == "in_batch_softmax":
            names += variables_of(op.inputs, "Probability")
        if op.type == "listwise_softmax":
            names += variables_of(op.inputs, "Length")
    return {source for name in names if name for source in _data_behind(program, name)}


def _data_behind(program: Any, name: str) -> Set[str]:
    """Returns the variables of the data from which alone a variable is computed, else the variable."""
    block = program.blocks[0]
    persistable = {var.name for var in block.vars if var.persistable}
    found, open_, seen = set(), [name], {name}
    while open_:
        current = open_.pop()
        if current in persistable:
            return {name}
        written = False
        for op in block.ops:
            made = [each for slot in op.outputs for each in slot.vars]
            read = [each for slot in op.inputs for each in slot.vars]
            if current not in made or current in read:
                continue
            written = True
            if op.type != "fill_like_batch":
                open_ += [each for each in read if each not in seen]
                seen.update(read)
        if not written:
            found.add(current)
    return found
