"""Exports a trained model as ONNX. docs/export.md describes inputs, outputs and limits."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np
import numpy.typing as npt
from google.protobuf import text_format

from weir import data_columns, initial_values
from weir.checkpoint import Checkpoint
from weir.checkpoint_job import as_job, check_same_scores, with_model_of
from weir.errors import WeirError
from weir.job import Job
from weir.nearest import did_you_mean
from weir.onnx.graph import Dim, Graph, write_model
from weir.onnx.ops import CONVERTERS, OpToConvert, dtype_of, needed_inputs, variables_of
from weir.onnx.rows import LOOKUPS, MAP_BYTES, UNKNOWN, Bags, RowSource, Tables
from weir.protos import program_pb2
from weir.rows import NotFoundError, Path
from weir.version import __version__

__all__ = ["OnnxExport", "export_onnx"]

# The first prediction has this name, whatever the program calls it.
_PREDICTION = "prediction"


class OnnxExport(NamedTuple):
    """What export_onnx has written.

    Attributes:
        files: the model, and the file with its large arrays if it has one.
        inputs, outputs: dims of each by name; a text is the name of a size that a run decides.
        tables: for each table its rows, its width, and the way in which ids are looked up.
    """

    files: List[str]
    inputs: Dict[str, Tuple[Dim, ...]]
    outputs: Dict[str, Tuple[Dim, ...]]
    tables: Dict[str, Dict[str, Any]]


def export_onnx(
    job: Any, checkpoint: Union[Path, Checkpoint], path: Path, *, outputs: Optional[Sequence[str]] = None,
    dense_only: bool = False, lookup: str = "auto", unknown: str = "initial", weighted: Sequence[str] = (),
    overrides: Sequence[str] = (), map_bytes: int = MAP_BYTES, checkpoint_job: bool = False,
) -> OnnxExport:
    """Writes the part of a model that makes its predictions as an ONNX model (operator set 18).

        weir.export_onnx("job.textproto", "checkpoints", "model.onnx")

    The model has an input for each variable of the data that the prediction depends on: floats float32 [batch, n], and
    ids int64 [batch, slots] of the table (weir.feature_ids), or for lists int64 [batch, slots, n] with an input
    "<name>.lengths" int64 [batch, slots] and, if ids have weights, "<name>.weights" float32 like the ids.
    weir.onnx_inputs makes them of data. Arrays of 64 KiB and more are in the file `path`.data.

    Args:
        job: a weir.Job, the path of a job file or its text; the one that the checkpoint was trained with.
        checkpoint: directory of checkpoints, of which the newest is taken, or of one step; or an open weir.Checkpoint.
        path: of the model.
        outputs: variables that the model returns, under their names. Default: the prediction of the first loss as
            "prediction", and those of other losses under their names.
        dense_only: leave the tables out. Rows are inputs then, "<variable>@<table>" float32 [batch, slots, width], or
            [batch, slots, n, width] for lists.
        lookup: how ids are looked up: "map" (ai.onnx.ml LabelEncoder), "buckets" (operators of ONNX itself, slower, for
            ids beyond protobuf's 2 GiB) or "auto": a map where it fits.
        unknown: what an id without a row gets: "initial" values as --role=predict, or "zero".
        weighted: variables of data.multi_slot whose ids have weights.
        overrides: fields of the job that have another value.
        map_bytes: most bytes of ids in the model.
        checkpoint_job: takes the model from the job in the checkpoint. `job` may be None then.

    Raises:
        JobError: the job is wrong, or makes other scores than the model in the checkpoint; the message has the first
            setting that differs, and its place.
        WeirError: an operator has no form in ONNX; the checkpoint is of another job; the ids of a table do not fit.
        OSError: a file cannot be written.
    """
    for name, value, known in (("lookup", lookup, LOOKUPS), ("unknown", unknown, UNKNOWN)):
        if value not in known:
            raise ValueError(f"{name} is one of {', '.join(known)}, got {value!r}")
    path = os.fspath(path)
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise FileNotFoundError(f"there is no directory {directory} for {path}")
    opened = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    job = with_model_of(opened, job, overrides) if checkpoint_job else as_job(job, overrides)
    _check_job(job, opened)
    check_same_scores(job, opened)
    export = _Export(job, opened, dense_only, lookup, unknown, weighted, map_bytes)
    made = export.make(outputs)
    metadata = {
        "weir.job": opened.job_name, "weir.step": str(opened.step),
        "weir.values_digest": f"{opened.manifest.values_digest:016x}",
        "weir.figures": json.dumps(opened.figures), "weir.tables": json.dumps(made.tables),
        "weir.unknown": unknown, "weir.dense_only": json.dumps(dense_only),
    }
    doc = (f"Predictions of the job {opened.job_name} after {opened.step} steps. Ids are those of the tables "
           "(weir.feature_ids, weir.onnx_inputs).")
    files = write_model(export.graph, path, doc, metadata, __version__)
    return made._replace(files=files)


def program_of(job: Job) -> Any:
    """Returns the program of a job before it is split (weir.v1.ProgramDesc). Raises as Job.check()."""
    return text_format.Parse(job._ask("--print=single", "--format=textproto"), program_pb2.ProgramDesc())


def _check_job(job: Job, checkpoint: Checkpoint) -> None:
    if job.name != checkpoint.job_name:
        raise WeirError(f"the checkpoint {checkpoint.path} is of job '{checkpoint.job_name}', and this is job "
                        f"'{job.name}'; give the job file that it was trained with, or that job's checkpoint")


def one_each(job: Job, program: Any) -> Set[str]:
    """Returns the variables of ids of which every slot of every example has exactly one id."""
    columns = data_columns.columns_of(job.data) or []
    found = {each.name for each in columns if each.slots is not None and each.one_each} \
        if job.data.ids.empty == 0 else set()
    # A look-up without pooling takes no other data.
    lists: Set[str] = set()
    plain: Set[str] = set()
    for op in program.blocks[0].ops:
        if op.type == "lookup_table":
            attrs = {attr.name: attr for attr in op.attrs}
            pooled = "pooling" in attrs and attrs["pooling"].s not in ("", "none")
            pooled = pooled or ("sequence" in attrs and attrs["sequence"].i > 0)
            (lists if pooled else plain).update(variables_of(op.inputs, "Ids"))
    # An id of a list may have a weight.
    can_have = {each.name for each in columns if each.weighted}
    return (found | plain) - can_have


class _Export:
    """One export. `graph` is the result of make()."""

    def __init__(self, job: Job, checkpoint: Checkpoint, dense_only: bool, lookup: str, unknown: str,
                 weighted: Sequence[str], map_bytes: int):
        self.graph = Graph(job.name or "model")
        self._job = job
        self._checkpoint = checkpoint
        self._program = program_of(job)
        self._block = self._program.blocks[0]
        self._vars = {var.name: var for var in self._block.vars}
        self._dims = {var.name: tuple(var.dims) for var in self._block.vars}
        self._dense_only = dense_only
        self._lookup, self._unknown, self._map_bytes = lookup, unknown, map_bytes
        self._one_each = one_each(job, self._program)
        columns = data_columns.columns_of(job.data) or []
        self._weighted = {each.name for each in columns if each.weighted} | set(weighted)
        self._check_weighted(weighted)
        self._inputs: Dict[str, Tuple[Dim, ...]] = {}
        self._bags: Dict[str, Bags] = {}
        self._parameters: Dict[str, npt.NDArray[np.float32]] = {}
        # Parameters that are arrays of the graph.
        self._arrays: Dict[str, str] = {}

    def make(self, outputs: Optional[Sequence[str]]) -> OnnxExport:
        """Makes the graph."""
        chosen = self._chosen(outputs)
        ops = self._needed_ops([variable for _, variable in chosen])
        reads: Dict[str, List[str]] = {}
        for op in ops:
            if op.type == "lookup_table":
                w, ids = variables_of(op.inputs, "W")[0], variables_of(op.inputs, "Ids")[0]
                if self._vars[w].kind == program_pb2.TABLE and ids not in reads.setdefault(w, []):
                    reads[w].append(ids)
        self._reads = reads
        self._tables = Tables(self.graph, reads, self._lookup, self._unknown, self._map_bytes)
        values: Dict[str, str] = {}
        for op in ops:
            self._add_op(op, values)
        made: Dict[str, Tuple[Dim, ...]] = {}
        for name, variable in chosen:
            dims = self._shown(self._dims[variable])
            if name != values[variable]:
                name = self.graph.unique(name)
            self.graph.output(name, values[variable], dtype_of(self._vars[variable].dtype), dims,
                              self._doc_of_output(variable))
            made[name] = dims
        tables = {name: {"rows": len(self._rows_of(name)), "width": self._dims[name][1],
                         "lookup": "input" if self._dense_only else self._tables.chosen[name]} for name in reads}
        return OnnxExport([], dict(self._inputs), made, tables)

    def _chosen(self, outputs: Optional[Sequence[str]]) -> List[Tuple[str, str]]:
        """Returns names and variables of the outputs."""
        if isinstance(outputs, str):
            raise TypeError(f"outputs is a list of names of variables, got the text {outputs!r}")
        if outputs is not None:
            made = {name for op in self._block.ops if op.role in (program_pb2.FORWARD, program_pb2.LOSS)
                    for slot in op.outputs for name in slot.vars}
            for each in outputs:
                if each not in made:
                    raise WeirError(f"outputs: the program computes no variable '{each}'"
                                    f"{did_you_mean(each, sorted(made))}")
            return [(each, each) for each in outputs]
        losses = [loss for loss in self._program.losses if loss.prediction]
        if not losses:
            raise WeirError("the program names no prediction (ProgramDesc.losses): name the variables with outputs=")
        names = [_PREDICTION] + [f"{loss.name}.{_PREDICTION}" for loss in losses[1:]]
        return list(zip(names, (loss.prediction for loss in losses)))

    def _needed_ops(self, outputs: Sequence[str]) -> List[Any]:
        """Returns the operators that the outputs depend on, in order."""
        needed, ops = set(outputs), []
        for op in reversed(self._block.ops):
            if op.role not in (program_pb2.FORWARD, program_pb2.LOSS):
                continue
            made = [name for slot in op.outputs for name in slot.vars]
            if needed.intersection(made):
                needed.difference_update(made)
                needed.update(needed_inputs(op))
                ops.append(op)
        return ops[::-1]

    def _add_op(self, op: Any, values: Dict[str, str]) -> None:
        made = [name for slot in op.outputs for name in slot.vars]
        converter = CONVERTERS.get(op.type)
        if converter is None:
            raise WeirError(f"the operator '{op.type}'{self._layer_of(made[0])} has no form in ONNX: it makes "
                            f"'{made[0]}', which the outputs depend on; outputs= can name what comes before it")
        self.graph.scope = made[0]
        values.update(converter(OpToConvert(
            self.graph, op, lambda name: self._value(name, values), self._dims, self._parameter, self._rows,
            self._bags_of)))

    def _layer_of(self, variable: str) -> str:
        names = [layer.name for layer in self._job.model.layer
                 if variable == layer.name or variable.startswith(f"{layer.name}.")]
        return f" of layer '{max(names, key=len)}'" if names else ""

    def _value(self, name: str, values: Dict[str, str]) -> str:
        """Returns the value of a dense variable: made before, a parameter, or an input of the model."""
        if name in values:
            return values[name]
        if self._vars[name].persistable:
            return self._array(name)
        if self._vars[name].dtype != program_pb2.FLOAT32:
            raise WeirError(f"the data variable '{name}' is no float32")
        doc = "floats after data.dense; a missing one is 0"
        return self._add_input(name, "float32", self._shown(self._dims[name]), doc)

    def _add_input(self, name: str, dtype: str, dims: Sequence[Dim], doc: str) -> str:
        if name not in self._inputs:
            self.graph.input(name, dtype, dims, doc)
            self._inputs[name] = tuple(dims)
        return name

    def _shown(self, dims: Sequence[int]) -> Tuple[Dim, ...]:
        return tuple("batch" if each < 0 else each for each in dims)

    def _doc_of_output(self, variable: str) -> str:
        for loss in self._program.losses:
            if loss.prediction == variable:
                return f"prediction of the loss '{loss.name}'"
        return ""

    # Parameters and rows.

    def _parameter(self, name: str) -> npt.NDArray[np.float32]:
        if name not in self._parameters:
            try:
                value = self._checkpoint.dense(name)
            except NotFoundError as error:
                raise self._other_job(str(error)) from None
            if value.shape != self._dims[name]:
                raise self._other_job(f"'{name}' is {list(value.shape)} in {self._checkpoint.path}, and "
                                      f"{list(self._dims[name])} in the job")
            self._parameters[name] = value
        return self._parameters[name]

    def _array(self, name: str) -> str:
        if name not in self._arrays:
            self._arrays[name] = self.graph.array(name, self._parameter(name))
        return self._arrays[name]

    def _rows_of(self, table: str) -> Any:
        try:
            rows = self._checkpoint.table(table)
        except NotFoundError as error:
            raise self._other_job(str(error)) from None
        if rows.width != self._dims[table][1]:
            raise self._other_job(f"rows of table '{table}' have {rows.width} values in {self._checkpoint.path}, and "
                                  f"{self._dims[table][1]} in the job")
        return rows

    def _other_job(self, what: str) -> WeirError:
        return WeirError(f"{what}; the checkpoint is of another version of job '{self._job.name}': give the job file "
                         "that it was trained with")

    # Ids.

    def _check_weighted(self, weighted: Sequence[str]) -> None:
        if isinstance(weighted, str):
            raise TypeError(f"weighted is a list of names of variables, got the text {weighted!r}")
        ids = [name for name, var in self._vars.items() if var.kind == program_pb2.IDS]
        for each in weighted:
            if each not in ids:
                raise WeirError(f"weighted: the job has no variable '{each}' of ids{did_you_mean(each, ids)}")
        self._one_each -= set(weighted)

    def _bags_of(self, variable: str, with_ids: bool) -> Bags:
        """Returns the ids of a variable; without `with_ids` its lengths and weights alone, if rows are inputs."""
        bags = self._bags.get(variable)
        if bags is None:
            bags = Bags(None) if variable in self._one_each else self._add_lists(variable)
        if bags.ids is None and (with_ids or not self._dense_only):
            bags = bags._replace(ids=self._id_input(variable))
        self._bags[variable] = bags
        return bags

    def _id_input(self, variable: str) -> str:
        dims: List[Dim] = ["batch", self._dims[variable][1]]
        if variable in self._one_each:
            return self._add_input(variable, "int64", dims, "ids of the tables: one for each slot")
        dims.append(f"{variable}.n")
        return self._add_input(variable, "int64", dims, "ids of the tables: lists, filled up with any ids")

    def _add_lists(self, variable: str) -> Bags:
        graph, slots = self.graph, self._dims[variable][1]
        lengths = self._add_input(f"{variable}.lengths", "int64", ["batch", slots],
                                  f"number of ids of each slot of {variable}, from the first on")
        weights = None
        if variable in self._weighted:
            weights = self._add_input(f"{variable}.weights", "float32", ["batch", slots, f"{variable}.n"],
                                      f"weights of the ids of {variable}")
        # Without ids the number of places is that of the rows of any table.
        tables = [table for table, variables in self._reads.items() if variable in variables]
        by_rows = self._dense_only and bool(tables)
        like = self._row_input(variable, tables[0]) if by_rows else self._id_input(variable)
        most = graph.op("Gather", graph.op("Shape", like), graph.constant(2, np.int64))
        place = graph.op("Range", graph.constant(0, np.int64), most, graph.constant(1, np.int64))
        valid = graph.op("Less", place, graph.op("Unsqueeze", lengths, graph.constant([2], np.int64)))
        return Bags(None if by_rows else like, lengths, valid, weights)

    def _row_input(self, variable: str, table: str) -> str:
        dims: List[Dim] = ["batch", self._dims[variable][1]]
        if variable not in self._one_each:
            dims.append(f"{variable}.n")
        return self._add_input(f"{variable}@{table}", "float32", [*dims, self._dims[table][1]],
                               f"rows of table {table} for the ids of {variable}")

    def _rows(self, op: Any, padded: bool) -> Tuple[str, Bags]:
        """Returns the rows and the ids of a look-up."""
        variable, w = variables_of(op.inputs, "Ids")[0], variables_of(op.inputs, "W")[0]
        single = variable in self._one_each
        of_table = self._vars[w].kind == program_pb2.TABLE
        sequence = any(attr.name == "sequence" and attr.i > 0 for attr in op.attrs)
        bags = self._bags_of(variable, padded or not of_table or (single and sequence))
        if not of_table:
            return self._rows_of_parameter(w, bags, op, padded), bags
        if self._dense_only:
            self._rows_of(w)
            return self._row_input(variable, w), bags
        var = self._vars[w]
        table_rows = self._rows_of(w)
        source = RowSource(table_rows, initial_values.columns_of(self._program, var, table_rows.zero_columns),
                           initial_values.key_of(self._program.seed, w), var.dtype)
        every = {each: self._bags_of(each, True) for each in self._reads[w]}
        return self._tables.rows(w, source, variable, every), bags

    def _rows_of_parameter(self, name: str, bags: Bags, op: Any, padded: bool) -> str:
        """Gathers rows of a dense matrix; ids that do not count may lie outside of it."""
        graph, ids = self.graph, bags.ids
        assert ids is not None
        zero = graph.constant(0, np.int64)
        if bags.valid is not None:
            ids = graph.op("Where", bags.valid, ids, zero)
        if padded:
            padding = next((attr.i for attr in op.attrs if attr.name == "padding_id"), 0)
            ids = graph.op("Where", graph.op("Equal", ids, graph.constant(padding, np.int64)), zero, ids)
        return graph.op("Gather", self._array(name), ids)
