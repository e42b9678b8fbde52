"""Files and objects by name: local paths, and URLs of stores that fsspec reaches (s3://, gs://, hdfs://, ...)."""

from __future__ import annotations

import datetime
import glob
import os
import re
import stat
from typing import Any, Iterable, NamedTuple, Optional, Sequence

from weir.command_line.standard_output import Output
from weir.errors import WeirError

__all__ = ["Listed", "NotInstalledError", "cat", "list_files", "local_path", "open_local", "open_object",
           "print_list"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE = "file://"
# A request to a store answers after some 10 to 100 ms; 16 MiB hide that at a few hundred MB/s.
_BLOCK = 16 << 20
# Where stores keep what changes with an object, the surest first.
_VERSIONS = ("ETag", "etag", "md5Hash", "md5", "checksum", "generation", "mtime", "LastModified", "last_modified",
             "modification_time", "updated", "modified")


class NotInstalledError(WeirError):
    """A package that reaches a store is not installed."""


class Listed(NamedTuple):
    """A file that a pattern matches.

    Attributes:
        name: a local path, or a URL.
        size: bytes.
        version: a text that changes with the content: etag, or time of the last change; "" if the store has none.
    """

    name: str
    size: int
    version: str


def local_path(name: str) -> Optional[str]:
    """Returns the path of a local file; None if the name is a URL of another place."""
    if name.startswith(_FILE):
        return name[len(_FILE):]
    return None if _URL.match(name) else name


def _fsspec_of(url: str) -> tuple[Any, str]:
    """Returns the file system of a URL, and the path in it.

    Raises:
        NotInstalledError: fsspec, or what it needs for this URL, is not installed.
        WeirError: fsspec knows no such URL.
    """
    try:
        import fsspec
    except ImportError:
        raise NotInstalledError(f"{url} needs the package fsspec, and one for its kind of store: pip install fsspec "
                                "s3fs for s3://, fsspec gcsfs for gs://, fsspec pyarrow for hdfs://") from None
    try:
        file_system, path = fsspec.core.url_to_fs(url)
        return file_system, path
    except ImportError as error:  # its text names the package
        raise NotInstalledError(f"{url}: {error}") from None
    except ValueError as error:
        raise WeirError(f"{url}: {error}") from None


def open_object(url: str, **options: Any) -> Any:
    """Opens an object as a file that can seek. `options` are those of fsspec's open, where the store takes them."""
    file_system, path = _fsspec_of(url)
    try:
        try:
            return file_system.open(path, "rb", **options)
        except TypeError:  # not every store takes every option
            return file_system.open(path, "rb")
    except FileNotFoundError:
        raise WeirError(f"{url} is not there") from None
    except PermissionError as error:
        raise WeirError(f"{url} cannot be read: {error}") from None


def open_local(path: str) -> Any:
    """Opens a regular file.

    Raises:
        WeirError: it is not there, is none, or cannot be read.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise WeirError(f"{path} is not a regular file")
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise WeirError(f"{path} cannot be read: {_reason(error)}") from None


def list_files(pattern: str) -> list[Listed]:
    """Returns the files that a pattern matches, in the order of the bytes of their names.

    Args:
        pattern: a path or a URL, in which *, ? and [] stand for parts of a name, and ** for directories.
    """
    path = local_path(pattern)
    found = _local(path) if path is not None else _remote(pattern)
    return sorted(found, key=lambda each: os.fsencode(each.name))


def print_list(patterns: Sequence[str]) -> None:
    """`weir list`: writes NAME<TAB>BYTES<TAB>VERSION for each file."""
    output = Output()
    for pattern in patterns:
        for each in list_files(pattern):
            if "\t" in each.name or "\n" in each.name:
                raise WeirError(f"{each.name!r} has a tab or an end of line in its name, which a list cannot hold")
            output.write(os.fsencode(f"{each.name}\t{each.size}\t{' '.join(each.version.split())}\n"))


def cat(names: Sequence[str]) -> None:
    """`weir cat`: writes the bytes of files, one after the other."""
    output = Output()
    for name in names:
        path = local_path(name)
        # cat reads forward only: what fsspec reads ahead is used.
        with open_local(path) if path is not None else open_object(name, block_size=_BLOCK) as file:
            while True:
                block = file.read(_BLOCK)
                if not block:
                    break
                output.write(block)


def _reason(error: OSError) -> str:
    """Returns the text of the system for an error, or what else it says."""
    return error.strerror or str(error)


def _local(pattern: str) -> Iterable[Listed]:
    for name in glob.glob(pattern, recursive=True):
        try:
            status = os.stat(name)
        except OSError as error:
            raise WeirError(f"{name} cannot be listed: {_reason(error)}") from None
        if stat.S_ISREG(status.st_mode):
            yield Listed(name, status.st_size, str(status.st_mtime_ns))


def _remote(pattern: str) -> Iterable[Listed]:
    file_system, path = _fsspec_of(pattern)
    # fsspec gives names without host and scheme, in which a part of the URL is lost.
    front = pattern[:-len(path)] if path and pattern.endswith(path) else None
    try:
        found = file_system.glob(path, detail=True)
    except ValueError as error:
        raise WeirError(f"{pattern}: {error}") from None
    for name, info in found.items():
        if info["type"] == "file":
            url = file_system.unstrip_protocol(name) if front is None else front + name
            yield Listed(url, int(info["size"] or 0), _version(info))


def _version(info: dict[str, Any]) -> str:
    for key in _VERSIONS:
        value = info.get(key)
        if isinstance(value, datetime.datetime):
            return value.isoformat()
        if value not in (None, ""):
            return str(value).strip('"')
    return ""
