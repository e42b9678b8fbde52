"""Checkpoints as NumPy arrays, read without the C++ programs. docs/checkpoint_format.md describes the files.

    checkpoint = weir.Checkpoint("checkpoints")          # the newest complete step
    checkpoint.step, checkpoint.figures                  # 120000, {"auc": 0.8031, "loss": 0.4467}
    checkpoint.dense("deep.0.w")                         # float32 [in, out]
    vectors = checkpoint.table("vectors")
    vectors.ids, vectors.values                          # int64 [n], float32 [n, width]
    vectors.rows(weir.feature_ids([17, 4], "user"))      # float32 [2, width]
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import re
import stat
import time
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
from google.protobuf import text_format

from weir import model_card, safetensors_file
from weir.digest import Digest, elements_digest, rows_digest
from weir.errors import DamagedFileError, WeirError
from weir.nearest import did_you_mean
from weir.protos import checkpoint_pb2
from weir.row_file import RowFile
from weir.rows import Bytes, Chunk, Floats, NotFoundError, Path, Rows, align, check_header, map_file, states_make_sense
from weir.stable_hash import hash_bytes
from weir.text_message import parse_text

__all__ = ["Checkpoint", "CheckpointInfo", "Digest", "NotFoundError", "RowFile", "Table", "checkpoints"]

# Newest formats of MANIFEST and of shard files that this package reads.
FORMAT, SHARD_FORMAT = 2, 1

_MANIFEST = "MANIFEST"
_HEAD = b"# weir checkpoint manifest, xxh3 "
# As in the C++ programs.
_MOST_MANIFEST_BYTES = 1 << 30
# A checkpoint that is being written, or removed.
_HALF_WRITTEN = re.compile(r"(tmp-|trash-|trash-tmp-)step-[0-9]{12,18}(-[0-9a-f]{1,16}){1,2}")
_MOST_STEPS = 1 << 60
_MOST_FLOATS = (1 << 31) - 1
# A run may publish and remove checkpoints while we look for the newest: 100 times within 2 seconds, as the programs do.
_LOOKS = 100
_SECONDS_BETWEEN_LOOKS = 0.02

Scalar = Union[float, int]


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint in a directory.

    Attributes:
        step: number of steps that had taken effect.
        path: directory of the step.
        time: last change of its first shard file, in UTC; None if there is no such file.
        job_name: JobConfig.name of the job.
        figures: of the evaluation at this step, by name; empty without one.
        problem: why the checkpoint is not complete; "" if it is: MANIFEST has its checksum, and every file its size.
    """

    step: int
    path: str
    time: Optional[datetime.datetime]
    job_name: str
    figures: Dict[str, float]
    problem: str

    @property
    def complete(self) -> bool:
        return not self.problem


class Table(Rows):
    """Rows of a table in a checkpoint, by id. The rows of all servers are together."""


def checkpoints(path: Path) -> List[CheckpointInfo]:
    """Lists the checkpoints in a directory (or the one of a step's directory), oldest first.

    Raises:
        WeirError: there is no such directory, or it cannot be read.
    """
    directory = os.fspath(path)
    if _is_step(directory):
        return [_info(directory, _step_of(os.path.basename(os.path.normpath(directory))) or 0)]
    return [_info(each, step) for step, each in _steps_in(_names_in(directory), directory)]


class Checkpoint:
    """An open checkpoint. Arrays that it returns are copies; nothing changes the files.

    The shard files are mapped: they can be read even after the run has removed them, and only what is asked for comes
    into memory. On a network file system this does not hold if another host removes them: the process would then die
    of SIGBUS, so copy a checkpoint that the run may remove meanwhile.

    Opening checks MANIFEST with its checksum, and size, header and layout of every shard file. The bytes of the arrays
    are checked by verify() alone, since that reads all files.

    Attributes:
        path: directory of the step.
        step: number of steps that had taken effect; training resumes with the step of this number.
        job_name: JobConfig.name of the job.
        figures: of the evaluation at this step, by name: "auc", "loss" and those of the job's metrics.
        manifest: the whole MANIFEST (proto/checkpoint.proto).
        variables: names of the dense variables, sorted.
        tables: names of the tables with distributed rows, sorted. table() also takes "vectors@candidates" and
            "vectors@tombstones", what a lifecycle keeps of ids without a row; their values are bits of uint32.
        refused: newer checkpoints that are not complete, with reasons.
    """

    def __init__(self, path: Path, step: Optional[int] = None):
        """Opens a checkpoint.

        Args:
            path: checkpoint.dir of the job, of which the newest complete step is taken; or the directory of one step.
            step: take the checkpoint of this step instead of the newest.

        Raises:
            DamagedFileError: the checkpoint of the step, named by `path` or `step`, is cut, damaged or incomplete.
            WeirError: there is no such directory or step, or no step is complete.
        """
        directory = os.fspath(path)
        self.refused: List[str] = []
        if _is_step(directory):
            self._open(directory)
            if step is not None and self.step != step:
                raise WeirError(f"{directory} is the checkpoint of step {self.step}, not of {step}")
        elif step is not None:
            steps = dict(_steps_in(_names_in(directory), directory))
            if step not in steps:
                there = ", ".join(map(str, steps)) or "none"
                raise WeirError(f"{directory} has no checkpoint of step {step}; it has {there}")
            self._open(steps[step])
        else:
            self._open_newest(directory)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.path!r}: step {self.step} of job {self.job_name!r}>"

    def dense(self, name: str) -> Floats:
        """Returns the values of a dense variable as float32 of the variable's shape.

        Raises:
            NotFoundError: there is no such variable. The message names the nearest one.
            DamagedFileError: no file has some of its elements.
        """
        if "" not in self._dense.get(name, {}):
            raise self._not_found("variable", name, self.variables)
        return self._whole(name, "")

    def state(self, name: str) -> Dict[str, Union[Floats, Scalar]]:
        """Returns the optimizer state of a dense variable by name: {"moment1": float32 array of the variable's shape,
        ..., "step": 120.0}. Counts and powers are a float. Empty for an optimizer without state.

        In async the parts of a variable that several servers hold may have different counts; that of the part with
        element 0 is returned. state("@LR_SCHEDULE") has the state of learning-rate schedules as server 0 keeps it:
        the rate of each schedule as a float, its step counter and "transactions" as an int.

        Raises:
            NotFoundError, DamagedFileError: as for dense.
        """
        if name not in self._dense:
            raise self._not_found("variable", name, self.variables)
        found: Dict[str, Union[Floats, Scalar]] = {}
        for state in self._dense[name]:
            if state:
                is_scalar = self._dense[name][state][0][0].scalar
                found[state] = self._scalar(name, state) if is_scalar else self._whole(name, state)
        return found

    def table(self, name: str) -> Table:
        """Returns a table. Every call makes a new object; what one has read is freed with it.

        Raises:
            NotFoundError: there is no such table. The message names the nearest one.
            DamagedFileError: two files of the checkpoint do not agree on the table's layout.
        """
        if name not in self._tables:
            raise self._not_found("table", name, self.tables)
        entries = self._tables[name]
        layouts = {(e.width, e.logical_shards, tuple(e.state_names), tuple(e.state_widths), e.zero_begin, e.zero_end)
                   for e, _ in entries}
        if len(layouts) > 1:
            raise DamagedFileError(f"{self.path}: table '{name}' has two layouts")
        first = entries[0][0]
        chunks = [
            Chunk(data, e.offset, e.row_count, e.width + e.state_width,
                  (e.shard_begin, e.shard_end) if e.HasField("shard_end") else None) for e, data in entries]
        return Table(self.path, name, first.width, list(zip(first.state_names, first.state_widths)),
                     first.logical_shards, chunks, (first.zero_begin, first.zero_end))

    def save_safetensors(self, path: Path, *, tables: Optional[Sequence[str]] = None, state: bool = False) -> List[str]:
        """Writes all values as a .safetensors file, and returns the names of its arrays.

        Dense variables have their names; a table is "<table>.ids" int64 [n] and "<table>.values" float32 [n, width],
        both in the order of the files of the checkpoint, which are copied in pieces.

        Args:
            tables: those to write; default: all.
            state: write optimizer state too, as "<variable>.<state>" and "<table>.<state>".

        Raises:
            WeirError: there is no such table.
            OSError: the file cannot be written.
        """
        return safetensors_file.write_checkpoint(self, path, tables, state)

    def card(self, licence_of_data: Optional[str] = None, notes: Optional[str] = None) -> str:
        """Returns a model card as Markdown: job, data, figures, parameters, digests, and how to verify them.

        Args:
            licence_of_data: what the licence of the training data allows; a checkpoint does not know it.
            notes: further paragraphs, such as the intended use.
        """
        return model_card.card_of(self, licence_of_data, notes)

    def verify(self) -> None:
        """Reads every byte of every file and compares it with the checksums of MANIFEST.

        Speed is that of the disk with the package xxhash, and some 200 MB/s of one core without.

        Raises:
            DamagedFileError: names the file whose bytes have changed.
        """
        for file in _files(self.manifest):
            path = os.path.join(self.path, file.name)
            # Files of trainers are not mapped by opening.
            data = self._files[file.name] if file.name in self._files else map_file(path)
            if len(data) != file.bytes:
                raise _size_error(path, len(data), file.bytes)
            found = hash_bytes(data)
            if found != file.checksum:
                raise DamagedFileError(f"{path} has checksum {found:016x}, the manifest says {file.checksum:016x}: "
                                       "bytes of it have changed")

    def digest(self) -> Digest:
        """Computes the digests of all values and of all state: the last line of `checkpoint digest`.

        Two checkpoints have equal digests if all values and states are equal, however many servers wrote them. An
        undamaged checkpoint has those of manifest.values_digest and manifest.state_digest.
        """
        each = self.digests().values()
        return Digest(sum(d.values for d in each) % 2**64, sum(d.state for d in each) % 2**64)

    def digests(self) -> Dict[str, Digest]:
        """Computes the digests of each variable and table from all rows and elements, by name."""
        digests: Dict[str, Digest] = {}
        for variable, states in self._dense.items():
            values = state = 0
            for name, pieces in states.items():
                for entry, data in pieces:
                    # A scalar that every owner of a block keeps counts once.
                    if not entry.scalar or entry.element_begin == 0:
                        full = f"{variable}.{name}" if name else variable
                        digest = elements_digest(full, entry.element_begin, _floats(entry, data))
                        values, state = (values, state + digest) if name else (values + digest, state)
            digests[variable] = Digest(values % 2**64, state % 2**64)
        for table in self._tables:
            digests[table] = rows_digest(self.table(table))
        return dict(sorted(digests.items()))

    def _open(self, directory: str) -> None:
        for _ in range(_LOOKS):
            before = _identity(directory)
            self._read(directory)
            # A checkpoint that was replaced meanwhile would be a mixture of two; one that was removed is mapped.
            if _identity(directory) in (before, None):
                return
        raise DamagedFileError(f"{directory} changes all the time")

    def _read(self, directory: str) -> None:
        manifest = _read_manifest(directory)
        _check_sizes(directory, manifest)
        files: Dict[str, Bytes] = {}
        dense: Dict[str, Dict[str, List[Tuple[checkpoint_pb2.DenseEntry, Bytes]]]] = {}
        tables: Dict[str, List[Tuple[checkpoint_pb2.TableEntry, Bytes]]] = {}
        for shard in manifest.shards:
            path = os.path.join(directory, shard.file.name)
            data = files[shard.file.name] = map_file(path)
            if len(data) != shard.file.bytes:
                raise _size_error(path, len(data), shard.file.bytes)
            check_header(path, data, b"WEIRSHRD", "shard file", SHARD_FORMAT)
            for d in shard.dense:
                _check_dense(d, path, len(data))
                variable = d.state_of if d.HasField("state_of") else d.variable
                dense.setdefault(variable, {}).setdefault(d.state_name, []).append((d, data))
            for t in shard.tables:
                _check_table(t, path, len(data))
                tables.setdefault(t.table, []).append((t, data))
            _check_apart(shard, path)
        for states in dense.values():
            for pieces in states.values():
                pieces.sort(key=lambda piece: piece[0].element_begin)
        self.path = directory
        self.manifest = manifest
        self.step: int = manifest.step
        self.job_name: str = manifest.job
        self.figures = _figures(manifest)
        self.variables = sorted(name for name, states in dense.items() if "" in states)
        self.tables = sorted(name for name in tables if "@" not in name)
        self._files = files
        self._dense = dense
        self._tables = tables

    def _open_newest(self, directory: str) -> None:
        for look in range(_LOOKS):
            if look > 0:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            self.refused = []
            names = _names_in(directory)
            steps = _steps_in(names, directory)
            # On some file systems a checkpoint that is replaced is absent for a moment.
            changed = not steps and any(_HALF_WRITTEN.fullmatch(name) for name in names)
            for _, path in reversed(steps):
                before = _identity(path)
                try:
                    self._open(path)
                    return
                except WeirError as error:
                    changed = changed or before is None or _identity(path) != before
                    self.refused.append(f"{os.path.basename(path)}: {error}")
            if not changed:
                break
        reasons = f": {'; '.join(self.refused)}" if self.refused else ""
        raise WeirError(f"no complete checkpoint in {directory}{reasons}")

    def _whole(self, name: str, state: str) -> Floats:
        pieces = self._dense[name][state]
        dims = tuple(pieces[0][0].whole_dims)
        what = f"'{name}'" if not state else f"state '{state}' of '{name}'"
        if any(tuple(entry.whole_dims) != dims or entry.scalar for entry, _ in pieces):
            raise DamagedFileError(f"{self.path}: {what} has two shapes")
        count = math.prod(dims)
        # Counted before memory is allocated: a damaged manifest may ask for any amount.
        if sum(entry.element_count for entry, _ in pieces) < count:
            raise DamagedFileError(f"{self.path}: {what} has {count} elements, and the files have fewer")
        whole = np.empty(count, np.float32)
        at = 0
        for entry, data in pieces:
            if entry.element_begin > at:
                break
            end = entry.element_begin + entry.element_count
            if end > at:
                whole[at:end] = _floats(entry, data)[at - entry.element_begin:]
                at = end
        if at < count:
            raise DamagedFileError(f"{self.path}: no file has the elements from {at} on of {what}")
        try:
            return whole.reshape(dims)
        except ValueError:  # more axes than NumPy has
            raise DamagedFileError(f"{self.path}: {what} has the shape {list(dims)}") from None

    def _scalar(self, name: str, state: str) -> Union[Floats, Scalar]:
        entry, data = self._dense[name][state][0]
        floats = _floats(entry, data).astype(np.float32)
        if name == "@LR_SCHEDULE" and len(floats) == 2:
            return int(floats.view("<i8")[0])  # stored bit by bit, as two floats
        return float(floats[0]) if len(floats) == 1 else floats

    def _not_found(self, kind: str, name: str, names: Sequence[str]) -> NotFoundError:
        text = f"{self.path} has no {kind} '{name}'"
        if kind == "variable" and name in self._tables:
            return NotFoundError(f"{text}; it is a table: use table('{name}')")
        if kind == "table" and name in self._dense:
            return NotFoundError(f"{text}; it is a dense variable: use dense('{name}')")
        return NotFoundError(text + did_you_mean(name, names))


def _step_of(name: str) -> Optional[int]:
    """Returns 120 for "step-000000000120", and None for any other name."""
    match = re.fullmatch(r"step-([0-9]{12,18})", name)
    if match is None or name != f"step-{int(match[1]):012d}":
        return None
    return int(match[1])


def _is_step(directory: str) -> bool:
    name = os.path.basename(os.path.normpath(directory))
    return os.path.exists(os.path.join(directory, _MANIFEST)) or _step_of(name) is not None


def _names_in(directory: str) -> List[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise WeirError(f"{directory} is no directory") from None
    except OSError as error:
        raise WeirError(f"cannot list {directory}: {error.strerror or error}") from None


def _steps_in(names: Sequence[str], directory: str) -> List[Tuple[int, str]]:
    """Returns steps and paths of the published checkpoints, oldest first."""
    steps = [(_step_of(name), os.path.join(directory, name)) for name in names]
    return sorted((step, path) for step, path in steps if step is not None)


def _identity(path: str) -> Optional[Tuple[int, int, int]]:
    """Identifies a directory and its state: another one under an equal name is another checkpoint."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _info(path: str, step: int) -> CheckpointInfo:
    problem = ""
    manifest = checkpoint_pb2.CheckpointManifest()
    try:
        manifest = _read_manifest(path)
        _check_sizes(path, manifest)
    except WeirError as error:
        problem = str(error)
    changed = None
    for shard in manifest.shards[:1]:
        try:
            seconds = os.stat(os.path.join(path, shard.file.name)).st_mtime
            changed = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
        except (OSError, ValueError):
            pass
    return CheckpointInfo(manifest.step if manifest.HasField("step") else step, path, changed, manifest.job,
                          _figures(manifest), problem)


def _figures(manifest: checkpoint_pb2.CheckpointManifest) -> Dict[str, float]:
    figures: Dict[str, float] = {}
    if manifest.HasField("eval_auc"):
        figures["auc"] = manifest.eval_auc
    if manifest.HasField("eval_loss"):
        figures["loss"] = manifest.eval_loss
    figures.update((figure.name, figure.value) for figure in manifest.eval_figure)
    return figures


def _read_manifest(directory: str) -> checkpoint_pb2.CheckpointManifest:
    path = os.path.join(directory, _MANIFEST)
    try:
        text = _read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedFileError(f"{path} is missing") from None
    except OSError as error:
        raise WeirError(f"cannot read {path}: {error.strerror or error}") from None
    head, _, body = text.partition(b"\n")
    if not head.startswith(_HEAD) or len(head) != len(_HEAD) + 16:
        raise DamagedFileError(f"{path} does not begin with \"{_HEAD.decode()}...\"")
    if head[len(_HEAD):] != f"{hash_bytes(body):016x}".encode():
        raise DamagedFileError(f"{path} does not have the checksum of its first line: it was cut or changed")
    manifest = checkpoint_pb2.CheckpointManifest()
    try:
        # A newer format may have fields that this package does not know; it is refused by number below.
        parse_text(body.decode(), manifest, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{path}: {error}") from None
    if manifest.format_version > FORMAT:
        raise DamagedFileError(f"{path} has format {manifest.format_version}; this package reads up to {FORMAT}. "
                               f"Use the build that wrote it: {manifest.build}")
    steps = [manifest.step, *manifest.data.trainer_steps]
    for shard in manifest.shards:
        steps += [*shard.trainer_steps, shard.table_steps]
    for step in steps:
        if not 0 <= step <= _MOST_STEPS:
            raise DamagedFileError(f"{path} speaks of step {step}; steps run from 0 to {_MOST_STEPS}")
    names = set()
    for each in _files(manifest):
        # It would be read as often, however large it is.
        if each.name in names:
            raise DamagedFileError(f"{path} names the file '{each.name}' twice")
        names.add(each.name)
    return manifest


def _read_regular(path: str) -> bytes:
    """Reads a whole file; at once DamagedFileError for a FIFO, a device, or more bytes than a MANIFEST can have."""
    # A FIFO without O_NONBLOCK would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError(f"{path} is no regular file")
        if found.st_size > _MOST_MANIFEST_BYTES:
            raise DamagedFileError(f"{path} has {found.st_size} bytes; at most {_MOST_MANIFEST_BYTES} are read")
        return file.read(_MOST_MANIFEST_BYTES)


def _files(manifest: checkpoint_pb2.CheckpointManifest) -> Iterator[checkpoint_pb2.CheckpointFile]:
    for shard in manifest.shards:
        yield shard.file
    yield from manifest.extra


def _check_sizes(directory: str, manifest: checkpoint_pb2.CheckpointManifest) -> None:
    for file in _files(manifest):
        # A name must not lead out of the directory.
        if not file.name or "/" in file.name or "\0" in file.name or file.name.startswith("."):
            raise DamagedFileError(f"{directory}: the manifest names a file '{file.name}'; a plain name was expected")
        path = os.path.join(directory, file.name)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            way_out = ": the checkpoint was written with a directory per host; copy the shards of all hosts into one"
            raise DamagedFileError(f"{path} is missing{way_out if manifest.per_host else ''}") from None
        except OSError as error:
            raise WeirError(f"cannot read {path}: {error.strerror or error}") from None
        if size != file.bytes:
            raise _size_error(path, size, file.bytes)


def _size_error(path: str, found: int, expected: int) -> DamagedFileError:
    return DamagedFileError(f"{path} has {found} bytes, the manifest says {expected}: the file was cut or changed")


def _check_dense(entry: checkpoint_pb2.DenseEntry, path: str, size: int) -> None:
    """Checks all numbers of an entry once, so that reads need no checks of their own."""
    begin, count = entry.element_begin, entry.element_count
    whole = math.prod(entry.whole_dims)
    inside = min(entry.whole_dims, default=0) >= 0 and 0 <= begin <= whole and count >= 0
    if not inside or (not entry.scalar and count > whole - begin):
        raise DamagedFileError(f"{path}: entry '{entry.variable}' has elements outside of its variable")
    if entry.offset < 0 or entry.offset + 4 * count > size:
        raise DamagedFileError(f"{path}: entry '{entry.variable}' reaches beyond the end of the file")


def _check_table(entry: checkpoint_pb2.TableEntry, path: str, size: int) -> None:
    def bad(what: str) -> DamagedFileError:
        return DamagedFileError(f"{path}: entry '{entry.table}' {what}")

    floats = entry.width + entry.state_width
    if (entry.width <= 0 or entry.row_count < 0 or entry.logical_shards <= 0
            or not states_make_sense(entry.state_names, entry.state_widths) or floats > _MOST_FLOATS
            or sum(entry.state_widths) != entry.state_width
            or not 0 <= entry.zero_begin <= entry.zero_end <= entry.width):
        raise bad("has widths that make no sense")
    if entry.HasField("shard_end") and not 0 <= entry.shard_begin <= entry.shard_end <= entry.logical_shards:
        raise bad("has logical shards that it does not have")
    if entry.offset < 0 or _end_of(entry) > size:
        raise bad("reaches beyond the end of the file")


def _check_apart(shard: checkpoint_pb2.CheckpointShard, path: str) -> None:
    """Refuses entries that share bytes: together they would be larger than the file, by any factor."""
    claims = [(e.offset, e.offset + 4 * e.element_count, e.variable) for e in shard.dense if e.element_count > 0]
    claims += [(e.offset, _end_of(e), e.table) for e in shard.tables if e.row_count > 0]
    claims.sort()
    for (_, end, name), (begin, _, following) in zip(claims, claims[1:]):
        if begin < end:
            raise DamagedFileError(f"{path}: entries '{name}' and '{following}' share byte {begin}")


def _end_of(entry: checkpoint_pb2.TableEntry) -> int:
    """Returns where the rows of an entry end in the file."""
    end: int = entry.offset + 8 * entry.row_count
    if entry.row_count > 0:
        end = align(end) + 4 * (entry.width + entry.state_width) * entry.row_count
    return end


def _floats(entry: checkpoint_pb2.DenseEntry, data: Bytes) -> Floats:
    """Returns the elements of an entry, a view of the file."""
    if entry.element_count == 0:
        return np.empty(0, np.float32)  # frombuffer refuses an offset at the end of the file
    return np.frombuffer(data, "<f4", entry.element_count, entry.offset)
