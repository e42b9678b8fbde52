"""Starts the C++ programs as children of this process, and says why one failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Mapping, Optional, Sequence, Union

from weir.ending import BAD_INPUT, STOPPED, meaning_of
from weir.errors import RunError, StoppedError

__all__ = ["arguments_of", "error_of", "exit_code_of", "start"]

# Becomes the program, which gets SIGHUP from the kernel when its parent dies, however that happens. The kernel takes
# threads for parents: when the thread that started the program dies, another one of the process is the parent, and its
# death gives a second signal. Of SIGHUP the programs ignore a second one; SIGTERM would end them at once. The parent
# may have died before the request to the kernel. Python, or nohup, ignores these signals, and the program would inherit
# that.
_END_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGHUP), 0, 0, 0)
if os.getppid() != int(sys.argv[1]): sys.exit(128 + signal.SIGHUP)
for each in (signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ): signal.signal(each, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""

# Lines of launch about the process that failed first, and the last lines of that process.
_CULPRIT = re.compile(r"launch: (?P<what>\S+ failed: .*); the last lines of .*:$")
_OF_CULPRIT = "launch:   "
_MESSAGE = re.compile(r"(?:trainer|pserver|launch): ")
_LINES_SHOWN = 10


def exit_code_of(process: subprocess.Popen[bytes]) -> int:
    """Returns the exit code of a process that has ended, as a shell has it: 128 + signal after a signal."""
    code = process.returncode
    return 128 - code if code < 0 else code


def arguments_of(overrides: Sequence[str]) -> list[str]:
    """Returns the arguments for overrides of fields of a job, each "path.to.field=value"."""
    if isinstance(overrides, str):
        raise TypeError(f"overrides is a list of texts such as ['train.epochs=2'], got the text {overrides!r}")
    arguments = []
    for each in overrides:
        if not isinstance(each, str) or "=" not in each:
            raise ValueError(f"an override is a text such as 'train.epochs=2', got {each!r}")
        arguments += ["--set", each]
    return arguments


def start(program: Union[str, os.PathLike[str]], arguments: Sequence[str],
          env: Optional[Mapping[str, str]] = None) -> subprocess.Popen[bytes]:
    """Starts a program with pipes for both of its outputs.

    The program gets SIGHUP, which asks it for an end in good order, when the thread that calls this has ended. It is in
    a session of its own, because Ctrl-C in a terminal would otherwise reach it besides this process.

    Args:
        program: its path.
        arguments: of the program.
        env: variables that are added to those of this process.
    """
    command = [os.fspath(program), *arguments]
    # In a program that embeds Python, sys.executable may be that program.
    if sys.executable and Path(sys.executable).name.startswith("python"):
        command = [sys.executable, "-I", "-S", "-c", _END_WITH_PARENT, str(os.getpid()), *command]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=None if env is None else {**os.environ, **env}, start_new_session=True)


def error_of(program: str, exit_code: int, stderr: Sequence[str], log: Sequence[str], note: str = "") -> RunError:
    """Makes the error of a program that has not completed its work: a StoppedError if a signal has stopped it. The text
    has the last lines, unless the message says it all.

    Args:
        program: its name.
        exit_code: of the program.
        stderr: its last lines on stderr.
        log: its last lines on both outputs.
        note: sentences for the end of the text.
    """
    message, lines, complete = _message(program, exit_code, list(stderr))
    meaning = meaning_of(exit_code)
    text = [message, f"{program} ended with exit code {exit_code}: {meaning}."]
    # Bad input has a message of its own, to which the lines before it add nothing.
    if lines and exit_code != STOPPED and not (exit_code == BAD_INPUT and complete):
        text += ["Last lines:", *(f"  {line}" for line in lines[-_LINES_SHOWN:])]
    if note:
        text.append(note)
    return (StoppedError if exit_code == STOPPED else RunError)("\n".join(text), exit_code, meaning, list(log))


def _message(program: str, exit_code: int, lines: list[str]) -> tuple[str, list[str], bool]:
    """Returns the message of the failure, the last lines of the process that failed, and whether it wrote a message."""
    what = f"{program} failed: {meaning_of(exit_code)}"
    if exit_code == STOPPED:
        # A training has no message of its end; what launch says last is whom it has passed the signal on to.
        what = f"{program} was stopped before its work was complete"
        lines = [line for line in lines if not line.startswith("launch: ")]
    for at in range(len(lines) - 1, -1, -1):
        found = _CULPRIT.match(lines[at])
        if found:
            what = found["what"]
            lines = [line[len(_OF_CULPRIT):] for line in lines[at + 1:] if line.startswith(_OF_CULPRIT)]
            break
    for at in range(len(lines) - 1, -1, -1):
        found = _MESSAGE.match(lines[at])
        if found:
            return "\n".join([lines[at][found.end():], *lines[at + 1:]]), lines, True
    return what, lines, False
