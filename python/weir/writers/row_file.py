"""Writes row files. docs/row_files.md describes the format."""

from __future__ import annotations

import os
import stat
from typing import Any, Iterable, Mapping, Optional, Union, cast

import numpy as np
import numpy.typing as npt

from weir.digest import some_rows_digest
from weir.output_file import whole_file
from weir.protos import row_file_pb2
from weir.row_file import FORMAT
from weir.rows import Path, Rows, align
from weir.stable_hash import hash_bytes
from weir.writers.batches import Batch, Run, Source, TableRows, ids_twice, runs_of
from weir.writers.distinct_ids import DistinctIds
from weir.writers.limits import DEFAULT_SHARDS, check_name, check_shards, check_step
from weir.writers.output import Output

__all__ = ["write_rows"]


def write_rows(path: Path, table: str, ids: Union[npt.ArrayLike, Rows, Iterable[Batch]],
               values: Optional[npt.ArrayLike] = None, state: Optional[Mapping[str, npt.ArrayLike]] = None, *,
               job_name: str = "", step: int = 0, logical_shards: Optional[int] = None, finite: bool = True) -> None:
    """Writes rows of a table as a row file, which `table { load: "F.rows" }` gives to a table of any job and cluster.

        ids = weir.feature_ids(words, "word")                       # raw ids, or texts, of the data
        weir.write_rows("words.rows", "words", ids, vectors)        # float32 [n, width]

    The file is written as a whole or not at all, and a file of the name is replaced. Values of 16 bits are written
    exactly; float64 and integers are rounded to the nearest float32, ties to even.

    Args:
        path: of the file.
        table: its name. A job may load the rows into a table of another name.
        ids: int64 [n], each once. Without `values`: an iterable of batches (ids, values) or (ids, values, state), of
            which one is in memory at a time; or a weir.RowFile, or a table of a weir.Checkpoint (verify() it first).
        values: [n, width].
        state: optimizer state by name, each [n, width of the state], in the order in which the optimizer has it. A
            file with state loads only into a table whose optimizer has this state; without, rows begin with that of
            new rows. The integers of a lifecycle are uint32.
        job_name, step: where the rows come from, for those that read the file.
        logical_shards: of the table that the rows come from; default: that of a table of a checkpoint, else 4096. It
            decides the order of rows given as arrays and nothing else: any table loads the file.
        finite: False writes NaN, infinities, and values beyond float32 as an infinity, instead of refusing them.

    Raises:
        TypeError: ids are no integers, or values no numbers.
        ValueError: shapes that do not fit together; the first id that is there twice; a value that is not finite, with
            its row and column.
        OSError: the file cannot be written.
    """
    check_step(step)
    if not isinstance(job_name, str):
        raise TypeError(f"job_name is a string, got {job_name!r}")
    if logical_shards is None:
        logical_shards = ids.logical_shards if isinstance(ids, Rows) else DEFAULT_SHARDS
    check_name("table", table)
    check_shards(table, logical_shards)
    if values is not None:
        given: TableRows = (cast(npt.ArrayLike, ids), values, state)
    elif state is not None:
        raise TypeError("state comes with values; batches are (ids, values, state)")
    elif isinstance(ids, tuple):
        raise TypeError("rows without values; write_rows(path, table, ids, values) or write_rows(path, table, batches)")
    else:
        given = cast(TableRows, ids)
    source = runs_of(table, given, logical_shards, finite)
    about = row_file_pb2.RowFile(format_version=FORMAT, job=job_name, table=table, width=source.layout.width,
                                 state_names=[name for name, _ in source.layout.states],
                                 state_widths=[width for _, width in source.layout.states],
                                 logical_shards=logical_shards, step=step)
    target = os.fspath(path)
    directory = os.path.dirname(target) or "."
    if not os.path.isdir(directory):
        raise FileNotFoundError(f"there is no directory {directory} for {target}")
    with whole_file(target) as file:
        _write(file, about, source, directory)
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())


def _write(file: Any, about: row_file_pb2.RowFile, source: Source, directory: str) -> None:
    output = Output(file, b"WEIRROWS", FORMAT)
    seen = None if source.distinct else DistinctIds(directory)
    digest = rows = 0
    try:
        for run in source.runs:
            if len(run.ids) == 0:
                continue
            if seen is not None:
                seen.add(run.ids)
            chunk = _chunk(run)
            about.chunks.add(offset=output.align(), bytes=len(chunk), rows=len(run.ids), removed=0,
                             checksum=hash_bytes(chunk))
            output.write(chunk)
            rows += len(run.ids)
            digest += some_rows_digest(about.table, about.width, run.ids, run.rows).values
        twice = None if seen is None else seen.first_double()
        if twice is not None:
            raise ids_twice(about.table, *twice)
    finally:
        if seen is not None:
            seen.close()
    about.rows, about.removed, about.values_digest = rows, 0, digest % 2**64
    text = about.SerializeToString(deterministic=True)
    output.align()
    for part in (text, len(text).to_bytes(8, "little"), hash_bytes(text).to_bytes(8, "little"), b"WEIRROWE"):
        output.write(np.frombuffer(part, np.uint8))


def _chunk(run: Run) -> npt.NDArray[np.uint8]:
    """Returns the bytes of a chunk: ids, rows and no removed ids, each from a multiple of 64 on."""
    at = align(8 * len(run.ids))
    chunk = np.zeros(align(at + run.rows.nbytes), np.uint8)
    chunk[:8 * len(run.ids)].view("<i8")[...] = run.ids
    chunk[at:at + run.rows.nbytes].view("<f4")[...] = run.rows.reshape(-1)
    return chunk
