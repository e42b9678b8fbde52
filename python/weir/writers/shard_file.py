"""Writes shard files of checkpoints. docs/checkpoint_format.md describes the format."""

from __future__ import annotations

import os
from typing import BinaryIO, Iterable, Optional, Sequence

import numpy as np

from weir.checkpoint import SHARD_FORMAT
from weir.digest import elements_digest, some_rows_digest
from weir.protos import checkpoint_pb2
from weir.rows import Floats
from weir.stable_hash import logical_shards
from weir.writers.batches import Layout, Run
from weir.writers.distinct_ids import DistinctIds
from weir.writers.output import Output

__all__ = ["ShardFile"]


class ShardFile:
    """A shard file that is being written, and its description. Its owner closes `file`, which must be new."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._output = Output(file, b"WEIRSHRD", SHARD_FORMAT)
        self._shard = checkpoint_pb2.CheckpointShard()
        self._values = self._state = 0

    def add_dense(self, variable: str, dims: Sequence[int], begin: int, floats: Floats, state: str = "",
                  scalar: bool = False) -> None:
        """Adds elements [begin, begin + n) of a variable, or of its state if `state` names one. `floats`: [n].

        Args:
            scalar: it is a count or power, of any number of floats, that every owner of a block has; `begin` is then
                the first element of the owner's block.
        """
        name = f"{variable}.{state}" if state else variable
        entry = self._shard.dense.add(variable=name, whole_dims=dims, element_begin=begin, element_count=len(floats),
                                      offset=self._output.align())
        if state:
            entry.state_of, entry.state_name = variable, state
        if scalar:
            entry.scalar = True
        self._output.write(floats)
        # A scalar counts once, for the block at element 0.
        if not scalar or begin == 0:
            digest = elements_digest(name, begin, floats)
            if state:
                self._state += digest
            else:
                self._values += digest

    def add_table(self, table: str, layout: Layout, shards: int, runs: Iterable[Run],
                  seen: Optional[DistinctIds] = None, like: Optional[checkpoint_pb2.TableEntry] = None) -> None:
        """Adds rows of a table, a chunk for each run, and an empty one if there is no row: a checkpoint names every
        table.

        Args:
            shards: logical shards of the table.
            seen: gets the ids.
            like: an entry of the table in another file; what it says beside the layout stays.
        """
        chunks = 0
        for run in runs:
            if len(run.ids) == 0:
                continue
            if seen is not None:
                seen.add(run.ids)
            self._add_chunk(table, layout, shards, run, like)
            chunks += 1
        if chunks == 0:
            none = Run(np.empty(0, np.int64), np.empty((0, layout.floats), np.float32))
            self._add_chunk(table, layout, shards, none, like)

    def finish(self) -> checkpoint_pb2.CheckpointShard:
        """Writes the file to the disk. Returns its description, without the file's name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._shard.file.bytes = self._output.size
        self._shard.file.checksum = self._output.checksum
        self._shard.values_digest = self._values % 2**64
        self._shard.state_digest = self._state % 2**64
        return self._shard

    def _add_chunk(self, table: str, layout: Layout, shards: int, run: Run,
                   like: Optional[checkpoint_pb2.TableEntry]) -> None:
        of = logical_shards(run.ids, shards)
        entry = self._shard.tables.add()
        if like is not None:
            entry.CopyFrom(like)
        entry.table, entry.logical_shards = table, shards
        entry.width, entry.state_width = layout.width, layout.floats - layout.width
        if entry.zero_end > layout.width:  # of a table that is cut
            entry.zero_end, entry.zero_begin = layout.width, min(entry.zero_begin, layout.width)
        entry.state_names[:] = [name for name, _ in layout.states]
        entry.state_widths[:] = [width for _, width in layout.states]
        entry.row_count, entry.offset = len(run.ids), self._output.align()
        entry.shard_begin = int(of.min()) if len(of) > 0 else 0
        entry.shard_end = int(of.max()) + 1 if len(of) > 0 else 0
        self._output.write(run.ids)
        self._output.align()
        self._output.write(run.rows)
        digest = some_rows_digest(table, layout.width, run.ids, run.rows)
        self._values += digest.values
        self._state += digest.state
