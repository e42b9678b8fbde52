"""Standard output of the commands that write data: `weir parquet`, `weir cat`, `weir list`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from typing import Callable, Sequence, Union

from weir.errors import DamagedFileError, WeirError

__all__ = ["Output", "run"]

# As of the programs (docs/errors.md).
_BAD_INPUT, _DAMAGED = 2, 4
_OTHER = 1
# What a shell gives for a program that SIGPIPE has ended.
_CLOSED = 128 + signal.SIGPIPE
_F_SETPIPE_SZ = 1031
# The most that a process without privileges may ask for, unless the system is set otherwise. A pipe of 64 KiB makes the
# two processes wait for each other more often.
_PIPE_BYTES = 1 << 20
# IOV_MAX of Linux.
_MOST_BUFFERS = 1024


class _OutputError(Exception):
    """The output takes no bytes; the cause is an OSError."""


class Output:
    """Writes buffers to a file descriptor, by default standard output, without copies."""

    def __init__(self, descriptor: int = 1):
        """Enlarges the buffer of a pipe."""
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)

    def write(self, *buffers: Union[bytes, memoryview]) -> None:
        """Writes all bytes of the buffers, one after the other."""
        left = [view for view in (memoryview(each) for each in buffers) if view.nbytes]
        while left:
            some = left[:_MOST_BUFFERS]
            try:
                written = os.writev(self._descriptor, some)
            except OSError as error:
                raise _OutputError from error
            done = 0
            while done < len(some) and written >= some[done].nbytes:
                written -= some[done].nbytes
                done += 1
            del left[:done]
            if written:
                left[0] = left[0].cast("B")[written:]


def run(command: str, work: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """Runs the work of a command and returns its exit code. Errors are one line on stderr.

    A reader that closes its end early gets no message: it has all that it wants.
    """
    try:
        work(arguments)
        return 0
    except _OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            return _CLOSED
        assert isinstance(error.__cause__, OSError)
        message, code = f"the output cannot be written: {error.__cause__.strerror}", _OTHER
    except DamagedFileError as error:
        message, code = str(error), _DAMAGED
    except WeirError as error:
        message, code = str(error), _BAD_INPUT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # of the libraries of object stores, which have errors of their own
        message, code = f"{type(error).__name__}: {error}", _OTHER
    print(f"weir {command}: " + " ".join(message.split()), file=sys.stderr)
    return code
