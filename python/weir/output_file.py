"""Files that users name for output: written as a whole or not at all, through links, and never in place of a device.

The C++ programs do the same (framework/base/atomic_file.h).
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from typing import Any, Iterator, NamedTuple, Optional

__all__ = ["Target", "target_of", "whole_file"]

# As many as the kernel follows.
_MOST_LINKS = 40


class Target(NamedTuple):
    """What a name leads to.

    Attributes:
        path: of the file; no symbolic link.
        direct: it is a device, a FIFO or a descriptor, which is written and not replaced.
        descriptor: of this process, if the name leads to one (/dev/stdout, /dev/fd/3).
    """

    path: str
    direct: bool
    descriptor: Optional[int] = None


def target_of(path: str) -> Target:
    """Follows the links of a name, the last of which may lead to a file that does not exist.

    Raises:
        IsADirectoryError: the name is of a directory.
        OSError: the links go in a circle, or lead to a block device or a socket.
    """
    at = path
    for _ in range(_MOST_LINKS + 1):
        name = os.path.basename(at)
        if name.isdecimal() and os.path.realpath(os.path.dirname(at)) == os.path.realpath("/proc/self/fd"):
            return Target(at, direct=True, descriptor=int(name))
        try:
            mode = os.lstat(at).st_mode
        except FileNotFoundError:
            return Target(at, direct=False)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{path} is a directory; name a file")
        if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            raise OSError(f"{path} is a {'socket' if stat.S_ISSOCK(mode) else 'block device'}; name a file")
        if not stat.S_ISLNK(mode):
            return Target(at, direct=not stat.S_ISREG(mode))
        at = os.path.join(os.path.dirname(at), os.readlink(at))
    raise OSError(f"{path} leads through more than {_MOST_LINKS} links")


@contextlib.contextmanager
def whole_file(path: str, mode: str = "wb", encoding: Optional[str] = None) -> Iterator[Any]:
    """Opens a file for writing that gets its name at the end of the block; after an exception there is none.

    Raises:
        OSError: as target_of, and if the file cannot be written.
    """
    target = target_of(path)
    if target.direct:
        with open(target.path if target.descriptor is None else os.dup(target.descriptor), mode,
                  encoding=encoding) as file:
            yield file
        return
    directory, name = os.path.split(target.path)
    with tempfile.NamedTemporaryFile(
        mode, dir=directory or ".", prefix=f".{name}.", delete=False, encoding=encoding
    ) as file:
        try:
            yield file
            file.flush()
            # A temporary file is closed to others; this one has the rights of any new file.
            mask = os.umask(0o022)
            os.umask(mask)
            os.chmod(file.name, 0o666 & ~mask)
            os.replace(file.name, target.path)
        except BaseException:
            os.unlink(file.name)
            raise
