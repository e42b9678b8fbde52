"""Errors of this package. All are WeirError."""

from __future__ import annotations

from weir.ending import Ending, ending_of

__all__ = ["ClientError", "DamagedFileError", "JobError", "ProgramsMissingError", "RunError", "StoppedError",
           "WeirError"]


class WeirError(Exception):
    """Base of all errors of this package."""


class ProgramsMissingError(WeirError):
    """The C++ programs (trainer, pserver, launch, ...) were not found."""


class JobError(WeirError):
    """A job is wrong. The message is that of the C++ checker, with file, line and column."""


class DamagedFileError(WeirError):
    """A file of a checkpoint, or a row file, is cut, damaged, or of a newer format."""


class ClientError(WeirError):
    """A server does not answer a weir.Client, or refuses it.

    Attributes:
        address: of the server, "" if none is to blame.
        code: name of the status code of gRPC, "" if there is none.
    """

    def __init__(self, message: str, address: str = "", code: str = ""):
        super().__init__(message)
        self.address = address
        self.code = code


class RunError(WeirError):
    """A run of a C++ program failed, or was stopped (StoppedError).

    Attributes:
        exit_code: of the program (128 + signal after a signal).
        ending: Ending.WRONG if it would fail again, Ending.BROKEN if it may be tried again.
        meaning: what the exit code says, such as "the job, or what it names, is wrong".
        log: the last lines that it wrote.
    """

    def __init__(self, message: str, exit_code: int, meaning: str, log: list[str]):
        super().__init__(message)
        self.exit_code = exit_code
        self.meaning = meaning
        self.log = log

    @property
    def ending(self) -> Ending:
        return ending_of(self.exit_code)


class StoppedError(RunError):
    """A run of a C++ program was asked to end by a signal that did not come from here, and is not complete.

    `train(resume=True)` goes on from the checkpoint of a training. `ending` is Ending.STOPPED.
    """
