"""The four ways in which work of the C++ programs ends, told apart by exit codes (framework/base/exit_code.h)."""

from __future__ import annotations

import enum
import signal

__all__ = ["BAD_INPUT", "COMPLETE", "DAMAGED", "STOPPED", "Ending", "ending_of", "meaning_of"]

# Exit codes. BAD_INPUT is that of a wrong job, command line or file.
COMPLETE, BAD_INPUT, DAMAGED, STOPPED = 0, 2, 4, 5

_MEANINGS = {
    COMPLETE: "the work is complete",
    1: "an error that no other code names",
    BAD_INPUT: "the job, the command line, the data or a file that they name is wrong; running again changes nothing",
    3: "a process of the job is lost; train with resume=True goes on from the newest checkpoint",
    DAMAGED: "bytes on disk are damaged; use an older copy",
    STOPPED: "stopped by a signal before it was complete; train with resume=True goes on from where it was",
}


class Ending(enum.Enum):
    """How a training, a prediction or another run of a program has ended."""

    COMPLETE = "complete"  # exit code 0
    STOPPED = "stopped"  # 5: somebody asked it to end, and it ended in good order; resume=True goes on
    WRONG = "wrong"  # 2 and 4: it would fail again; somebody has to correct the job, the data or the disk
    BROKEN = "broken"  # 1, 3, 128 + signal: it may be tried again with resume=True


def ending_of(exit_code: int) -> Ending:
    """Returns the ending that an exit code stands for."""
    known = {COMPLETE: Ending.COMPLETE, STOPPED: Ending.STOPPED, BAD_INPUT: Ending.WRONG, DAMAGED: Ending.WRONG}
    return known.get(exit_code, Ending.BROKEN)


def meaning_of(exit_code: int) -> str:
    """Returns what an exit code of a C++ program says."""
    if exit_code > 128:
        try:
            return f"ended by {signal.Signals(exit_code - 128).name}"
        except ValueError:
            return f"ended by signal {exit_code - 128}"
    return _MEANINGS.get(exit_code, "an exit code that Weir's programs do not have")
