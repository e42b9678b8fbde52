"""Directories of checkpoints: a step is written under a temporary name and renamed when all of it is on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from typing import Iterator

from google.protobuf import text_format

from weir.checkpoint import FORMAT, MANIFEST, MANIFEST_HEAD, step_of
from weir.errors import WeirError
from weir.protos import checkpoint_pb2
from weir.rows import Path
from weir.stable_hash import hash_bytes

__all__ = ["copy_file", "new_step", "seal", "write_manifest"]


@contextlib.contextmanager
def new_step(path: Path, step: int) -> Iterator[str]:
    """Makes a temporary directory in a directory of checkpoints, for the block to write the files of a step into. At
    the end of the block it gets the name of the step; after an exception it is removed.

    Raises:
        FileExistsError: the step is there.
        WeirError: a run has its mark in the directory, or `path` is the directory of a step.
        OSError: the directory cannot be written.
    """
    directory = os.fspath(path)
    name = f"step-{step:012d}"
    if step_of(os.path.basename(os.path.normpath(directory))) is not None or os.path.exists(
            os.path.join(directory, MANIFEST)):
        raise WeirError(f"{directory} is the directory of one step; name a directory of checkpoints, in which {name} "
                        "is made")
    target = os.path.join(directory, name)
    if os.path.lexists(target):
        raise FileExistsError(f"{target} is there already; name another directory, or remove it first")
    # Its saves remove what others write, and take the newest step for their own.
    if os.path.lexists(os.path.join(directory, "OWNER")):
        raise WeirError(f"{directory} belongs to a run, whose mark is its file OWNER; name another directory, or "
                        "remove OWNER if the run was killed")
    os.makedirs(directory, exist_ok=True)
    # The next save removes what has such a name, if this process is killed.
    temporary = os.path.join(directory, f"tmp-{name}-{secrets.token_hex(8)}")
    os.mkdir(temporary)
    try:
        yield temporary
        _sync(temporary)
        # Replaces nothing but an empty directory.
        try:
            os.rename(temporary, target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            raise FileExistsError(f"{target} has come meanwhile; name another directory") from None
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(directory)


def seal(manifest: checkpoint_pb2.CheckpointManifest) -> None:
    """Brings a manifest of any format into the present one, and fills in the digests of all shards.

    Format 1 has the state of the trainers as fields of its own (framework/checkpoint/directory.cc).
    """
    if manifest.format_version < FORMAT:
        trainers = manifest.trainers
        for field in ("loss_scale", "early_stop", "follow"):
            if manifest.HasField(field):
                getattr(trainers, field).CopyFrom(getattr(manifest, field))
        if manifest.HasField("first_step_examples"):
            trainers.first_step_examples = manifest.first_step_examples
        # The first builds did not write it: they had rule 1.
        trainers.stream_scheme = manifest.stream_scheme
        for field in ("loss_scale", "first_step_examples", "stream_scheme", "early_stop", "follow"):
            manifest.ClearField(field)
    manifest.format_version = FORMAT
    manifest.values_digest = sum(shard.values_digest for shard in manifest.shards) % 2**64
    manifest.state_digest = sum(shard.state_digest for shard in manifest.shards) % 2**64


def write_manifest(directory: str, manifest: checkpoint_pb2.CheckpointManifest) -> None:
    """Writes MANIFEST to the disk, with its checksum."""
    body = text_format.MessageToString(manifest).encode()
    with open(os.path.join(directory, MANIFEST), "xb") as file:
        file.write(MANIFEST_HEAD + f"{hash_bytes(body):016x}\n".encode() + body)
        file.flush()
        os.fsync(file.fileno())


def copy_file(source: str, target: str) -> None:
    """Copies a file of a checkpoint to the disk."""
    with open(source, "rb") as read, open(target, "xb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        written.flush()
        os.fsync(written.fileno())


def _sync(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
