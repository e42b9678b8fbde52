"""The file by which a C++ program gets a job."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any, Iterator, Sequence

__all__ = ["JobOnDisk"]


class JobOnDisk:
    """A job in a file, which is removed by close() or at the end of a `with`, if it was made for this.

    Attributes:
        path: of the file.
        overrides: of fields, which a program needs besides the file.
    """

    def __init__(self, job: Any):
        """Makes the file if there is none. Paths in a job are relative to its file, so that it is in their directory.

        Args:
            job: a weir.Job, or anything with `directory` and `to_text()`; the path of a job file; or the text of a job,
                whose paths are relative to the current directory. A str is a text if it has a brace or several lines,
                and no file has that name.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: a file cannot be written in the directory.
        """
        self.overrides: Sequence[str] = ()
        self._made = True
        self._shown = f"{getattr(job, 'name', None) or 'job'}.textproto"
        self._stack = contextlib.ExitStack()
        if hasattr(job, "as_file"):
            given = self._stack.enter_context(job.as_file())
            self.path, self.overrides = Path(given.path), given.overrides
            # A job that is unchanged gives the file that it was read from.
            self._made = self.path.name.startswith(".") or self.path.parent != Path(job.directory)
        elif hasattr(job, "to_text"):
            self.path = self._stack.enter_context(_written(job.to_text(), Path(job.directory)))
        elif isinstance(job, str) and not _is_path(job):
            self.path = self._stack.enter_context(_written(job, Path.cwd()))
        elif isinstance(job, (str, os.PathLike)):
            self._made = False
            self.path = Path(job)
            if not self.path.is_file():
                raise FileNotFoundError(f"there is no job file {self.path} (looked from {Path.cwd()})")
        else:
            raise TypeError(f"a job is a weir.Job, the path of a file, or a text, got {type(job).__name__}")

    def plain(self, line: str) -> str:
        """Returns a line of a program with the job's name, "<name>.textproto", in place of that of a temporary file."""
        return line.replace(str(self.path), self._shown) if self._made else line

    def note(self, message: str) -> str:
        """Returns a sentence that explains the position at which a message begins; "" if it needs none."""
        if not self._made or not message.startswith(f"{self._shown}:"):
            return ""
        return "The job is in no file: line and column are those of its text."

    def close(self) -> None:
        """Removes the file if it was made for this and is still there."""
        # The job does not depend on it any more.
        with contextlib.suppress(OSError):
            self._stack.close()

    def __enter__(self) -> JobOnDisk:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@contextlib.contextmanager
def _written(text: str, directory: Path) -> Iterator[Path]:
    try:
        made, name = tempfile.mkstemp(prefix=".weir-", suffix=".textproto", dir=directory)
    except OSError as error:
        raise OSError(error.errno, f"a temporary file with the job cannot be written in {directory}, to which paths in "
                                   f"the job are relative ({error.strerror}): save the job to a file there and give "
                                   "its path") from error
    try:
        with open(made, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _is_path(text: str) -> bool:
    return ("\n" not in text and "{" not in text) or os.path.isfile(text)
