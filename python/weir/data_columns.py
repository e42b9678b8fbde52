"""Variables that a job's data give, in order: framework/formats, LayOutSlots, AddPartitions and Derive."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from weir.protos import columns_pb2, job_pb2

__all__ = ["DataColumn", "columns_of"]


class DataColumn(NamedTuple):
    """A variable of the data.

    Attributes:
        name: of the variable.
        slots: names of its slots, if it has ids; None for floats.
        width: number of slots or floats.
        ids_of: the variable whose ids these are.
        one_each: the slots of an example have at most one id each.
        weighted: ids may have weights.
        learned: its values are learned from the training data, or made of what is.
    """

    name: str
    slots: Optional[Tuple[str, ...]]
    width: int
    ids_of: str
    one_each: bool = False
    weighted: bool = False
    learned: bool = False


class _Slot(NamedTuple):
    name: str
    output: str
    is_float: bool
    width: int = 1
    one_each: bool = False
    weighted: bool = False
    learned: bool = False


def columns_of(data: Any) -> Optional[List[DataColumn]]:
    """Returns the variables of the reader, the partitions and the derived ones, in order; None for a reader of a user's
    own."""
    reader = data.WhichOneof("reader")
    if reader in (None, "custom"):
        return None
    columns = _READERS[reader](getattr(data, reader))
    columns += [_partition(each) for each in data.partition]
    for derived in data.derived:
        columns.append(_derived(columns, derived))
    return columns


def _criteo(criteo: Any) -> List[DataColumn]:
    columns = [DataColumn("label", None, 1, "label")]
    if criteo.integers > 0:
        columns.append(DataColumn("dense", None, criteo.integers, "dense"))
    if criteo.categoricals > 0:
        slots = tuple(f"C{i}" for i in range(1, criteo.categoricals + 1))
        columns.append(DataColumn("cat", slots, len(slots), "cat", one_each=True))
    return columns


def _multi_slot(config: Any) -> List[DataColumn]:
    return _laid_out([_Slot(each.name, each.output, each.type == job_pb2.MultiSlot.Slot.FLOAT, each.dim)
                      for each in config.slot if not each.skip])


def _csv(config: Any) -> List[DataColumn]:
    kinds = job_pb2.Csv.Column
    return _laid_out([_Slot(each.name, each.output, each.type == kinds.FLOAT, each.dim, not each.list,
                            bool(each.weight), each.learn_classes)
                      for each in config.column if each.type != kinds.SKIP])


def _lib_svm(config: Any) -> List[DataColumn]:
    floats = job_pb2.LibSvm.Slot.FLOAT
    slots = [_Slot(each.name, each.output, each.type == floats,
                   each.last - each.first + 1 if each.type == floats else 1, weighted=True) for each in config.slot]
    return [DataColumn("label", None, 1, "label"), *_laid_out(slots)]


def _idx(config: Any) -> List[DataColumn]:
    return [DataColumn("label", None, 1, "label"), DataColumn(config.output, None, config.values, config.output)]


def _tf_record(config: Any) -> List[DataColumn]:
    return _laid_out([_Slot(each.name, each.output, each.type == job_pb2.TfRecord.Feature.FLOAT, each.dim,
                            weighted=bool(each.weights)) for each in config.feature])


def _slot_sign(config: Any) -> List[DataColumn]:
    return _laid_out([_Slot(each.name, each.output, each.type == job_pb2.SlotSign.Slot.FLOAT, each.dim)
                      for each in config.slot])


_READERS = {"criteo": _criteo, "multi_slot": _multi_slot, "csv": _csv, "lib_svm": _lib_svm, "idx": _idx,
            "tf_record": _tf_record, "slot_sign": _slot_sign}


def _laid_out(slots: List[_Slot]) -> List[DataColumn]:
    by_output: Dict[str, List[_Slot]] = {}
    for slot in slots:
        by_output.setdefault(slot.output or slot.name, []).append(slot)
    return [DataColumn(
        name, None if of[0].is_float else tuple(each.name for each in of),
        sum(each.width for each in of) if of[0].is_float else len(of), name,
        one_each=all(each.one_each for each in of), weighted=any(each.weighted for each in of),
        learned=any(each.learned for each in of)) for name, of in by_output.items()]


def _partition(partition: Any) -> DataColumn:
    is_float = partition.type == columns_pb2.Partition.FLOAT
    return DataColumn(partition.name, None if is_float else (partition.name,), 1, partition.name, one_each=True)


def _derived(columns: List[DataColumn], derived: Any) -> DataColumn:
    kind = derived.WhichOneof("kind")
    config = getattr(derived, kind)
    inputs = [config.of] if kind != "cross" else list(config.of)
    found = [column for each in inputs for column in columns if _gives(column, each)]
    learned = (any(each.learned for each in found) or kind == "frequency"
               or (kind == "vocabulary" and config.HasField("learned"))
               or (kind == "bucketize" and config.HasField("quantiles"))
               or (kind == "negatives" and config.HasField("popularity") and not config.popularity.file))
    if kind == "frequency":
        return DataColumn(derived.name, None, 1, derived.name, learned=True)
    if kind != "negatives":
        # Of a float there is one id.
        one_each = all(each.one_each or each.slots is None for each in found)
        return DataColumn(derived.name, (derived.name,), 1, derived.name, one_each=one_each, learned=learned)
    of = found[0]
    slot = config.of if of.width > 1 else (of.slots or (of.name,))[0]
    return DataColumn(derived.name, (slot,), 1, of.ids_of, learned=learned)


def _gives(column: DataColumn, name: str) -> bool:
    if column.slots is None:
        return name.partition("[")[0] == column.name
    return name == column.name if column.width == 1 else name in column.slots
