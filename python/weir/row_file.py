"""Row files, which hold a table or its changes, as NumPy arrays. docs/row_files.md describes the format."""

from __future__ import annotations

import functools
import os
from typing import Optional

import numpy as np
import numpy.typing as npt
from google.protobuf import message

from weir.digest import rows_digest
from weir.errors import DamagedFileError
from weir.protos import row_file_pb2
from weir.rows import Bytes, Chunk, Path, Rows, align, check_header, map_file, states_make_sense
from weir.stable_hash import hash_bytes

__all__ = ["RowFile"]

# Newest format that this package reads.
FORMAT = 1

_TRAILER = 24
_END = b"WEIRROWE"
_MOST_FLOATS = (1 << 31) - 1


class RowFile(Rows):
    """A row file, written by `checkpoint export --table=T --output=F.rows`.

        changes = weir.RowFile("vectors.120000-121000.rows")
        for id in changes.removed: ...
        for id, row in zip(changes.ids, changes.values): ...

    Opening reads the description at the end of the file. A chunk, of about 8 MiB, is compared with its checksum before
    its first use.

    Attributes:
        path: of the file.
        job_name: JobConfig.name of the job.
        step: number of steps after which the rows were taken.
        since_step: the file has only rows that differ from those after this number of steps; None: it has all rows.
        description: the whole description (proto/row_file.proto).
    """

    def __init__(self, path: Path):
        """Opens a row file. DamagedFileError if it is cut, damaged, of a newer format or no row file."""
        self.path = os.fspath(path)
        data = map_file(self.path)
        check_header(self.path, data, b"WEIRROWS", "row file", FORMAT)
        about = _read_description(self.path, data)
        self.description = about
        self.job_name: str = about.job
        self.step: int = about.step
        self.since_step: Optional[int] = about.since_step if about.HasField("since_step") else None
        self._data = data
        floats = _check_description(self.path, about, len(data))
        self._floats = floats
        chunks = [Chunk(data, chunk.offset, chunk.rows, floats, check=functools.partial(self._check, i))
                  for i, chunk in enumerate(about.chunks)]
        super().__init__(self.path, about.table, about.width, list(zip(about.state_names, about.state_widths)),
                         about.logical_shards, chunks)

    @functools.cached_property
    def removed(self) -> npt.NDArray[np.int64]:
        """Ids that existed after since_step steps and no longer exist, ascending. int64 [m]."""
        parts = [np.empty(0, np.int64)]
        for i, chunk in enumerate(self.description.chunks):
            if chunk.removed > 0:
                self._check(i)
                at = chunk.offset + _removed_at(chunk.rows, self._floats)
                parts.append(np.frombuffer(self._data, "<i8", chunk.removed, at))
        return np.sort(np.concatenate(parts)).astype(np.int64, copy=False)

    def verify(self) -> None:
        """Reads every byte and checks the checksum of each chunk and the digest of the values.

        Raises:
            DamagedFileError: names the chunk whose bytes have changed.
        """
        for i in range(len(self.description.chunks)):
            self._check(i)
        digest = rows_digest(self).values
        if digest != self.description.values_digest:
            raise DamagedFileError(f"{self.path}: its rows have the digest {digest:016x}; it says "
                                   f"{self.description.values_digest:016x}")

    def _check(self, i: int) -> None:
        chunk = self.description.chunks[i]
        if hash_bytes(self._data[chunk.offset:chunk.offset + chunk.bytes]) != chunk.checksum:
            raise DamagedFileError(f"{self.path}: chunk {i} at byte {chunk.offset} is damaged")


def _read_description(path: str, data: Bytes) -> row_file_pb2.RowFile:
    trailer = data[-_TRAILER:].tobytes()
    room = len(data) - 64 - _TRAILER
    if room < 0 or trailer[16:] != _END:
        raise DamagedFileError(f"{path} has no end: it was cut, or is still being written")
    size = int.from_bytes(trailer[:8], "little")
    if size > room:
        raise DamagedFileError(f"{path}: its description of {size} bytes does not fit in it")
    text = data[len(data) - _TRAILER - size:len(data) - _TRAILER].tobytes()
    about = row_file_pb2.RowFile()
    try:
        sane = (hash_bytes(text) == int.from_bytes(trailer[8:16], "little")
                and about.ParseFromString(text) == len(text)
                # A string that is no UTF-8 would be bytes.
                and all(isinstance(name, str) for name in (about.job, about.table, *about.state_names)))
    except (message.DecodeError, UnicodeDecodeError):
        sane = False
    if not sane:
        raise DamagedFileError(f"{path}: its description is damaged")
    if about.format_version > FORMAT:
        raise DamagedFileError(f"{path} has format {about.format_version}; this package reads up to {FORMAT}")
    return about


def _check_description(path: str, about: row_file_pb2.RowFile, size: int) -> int:
    """Checks all numbers, so that reads need no checks of their own. Returns the floats of a row."""
    floats = about.width + sum(about.state_widths)
    if (about.width <= 0 or about.logical_shards <= 0 or floats > _MOST_FLOATS
            or not states_make_sense(about.state_names, about.state_widths)):
        raise DamagedFileError(f"{path}: widths that make no sense")
    for chunk in about.chunks:
        if (chunk.rows < 0 or chunk.removed < 0 or chunk.offset < 0 or chunk.offset % 64 != 0
                or chunk.offset + chunk.bytes > size
                or _removed_at(chunk.rows, floats) + 8 * chunk.removed != chunk.bytes):
            raise DamagedFileError(f"{path}: a chunk that does not lie in the file")
    # Chunks that share bytes would be larger than the file together, by any factor.
    claims = sorted((chunk.offset, chunk.bytes) for chunk in about.chunks if chunk.bytes > 0)
    if any(at + size > following for (at, size), (following, _) in zip(claims, claims[1:])):
        raise DamagedFileError(f"{path}: two chunks that share bytes")
    if (sum(chunk.rows for chunk in about.chunks) != about.rows
            or sum(chunk.removed for chunk in about.chunks) != about.removed):
        raise DamagedFileError(f"{path}: chunks that do not add up to its rows")
    return floats


def _removed_at(rows: int, floats: int) -> int:
    """Returns where the removed ids of a chunk begin, from its beginning on."""
    return align(align(8 * rows) + 4 * rows * floats)
