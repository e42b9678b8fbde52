"""Jobs as Python objects.

A Job holds the protobuf message of a job (proto/job.proto) and the directory that its relative paths start from. It is
made from a job file, from text, or from Python values, and it becomes text that the programs read.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple, NoReturn, Optional, Sequence, Union

from google.protobuf import text_format

from weir import programs, v1
from weir.errors import JobError, ProgramsMissingError, RunError
from weir.fields import assign_path, fill
from weir.output_file import whole_file
from weir.text_message import parse_text

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

__all__ = ["Job", "JobFile"]

_Path = Union[str, "os.PathLike[str]"]
_Fields = Mapping[str, Any]

# The exit code of the programs for a wrong job (framework/base/exit_code.h).
_BAD_INPUT = 2
# A line that a program logs, as opposed to the message that it ends with.
_LOGGED = re.compile(r"[IWEF]\d{4} ")
# The text format counts a tab as the way to the next multiple of this.
_TAB = 8


class JobFile(NamedTuple):
    """A job as the programs take it: a file, and the fields that --set overrides. A temporary file is removed."""

    path: pathlib.Path
    overrides: tuple[str, ...]
    is_temporary: bool

    @property
    def arguments(self) -> list[str]:
        """Arguments of every program that takes --job."""
        return [f"--job={self.path}", *(f"--set={override}" for override in self.overrides)]


class _Source(NamedTuple):
    """The text that a job was made from, and the bytes of the message that it gives with the overrides."""

    path: Optional[pathlib.Path]
    shown: str
    text: str
    overrides: tuple[str, ...]
    gives: bytes


class Job:
    """A job: model, data, optimizer, cluster and training loop.

    `config` is the message itself. `job.data`, `job.train` and the other fields are those of `config`, so
    `job.train.epochs = 3` changes the job. A field that holds a message is replaced with `job.set("train", {...})`.

    Attributes:
        config: the message weir.v1.JobConfig.
        directory: where relative paths in the job start.
    """

    __slots__ = ("_source", "config", "directory")

    config: v1.JobConfig
    directory: pathlib.Path

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        directory: Optional[_Path] = None,
        data: Union[_Fields, v1.Data, None] = None,
        model: Union[_Fields, v1.Model, None] = None,
        program: Optional[_Path] = None,
        table: Union[Sequence[Union[_Fields, v1.Table]], _Fields, v1.Table, None] = None,
        optimizer: Union[_Fields, v1.Optimizer, None] = None,
        distribute: Union[_Fields, v1.Distribute, None] = None,
        train: Union[_Fields, v1.Train, None] = None,
        checkpoint: Union[_Fields, v1.CheckpointConfig, None] = None,
        deadlines: Union[_Fields, v1.Deadlines, None] = None,
        cluster: Union[_Fields, v1.Cluster, None] = None,
        comm: Union[_Fields, v1.Comm, None] = None,
        metric: Union[Sequence[Union[_Fields, v1.Metric]], _Fields, v1.Metric, None] = None,
        start_from: Union[Sequence[Union[_Fields, v1.StartFrom]], _Fields, v1.StartFrom, None] = None,
        **unknown: NoReturn,
    ):
        """Makes a job of Python values: dicts or messages of weir.v1, lists of them, names of enum values.

        Args:
            directory: where relative paths start. Default: the current directory.

        Raises:
            JobError: a name is unknown or a value has a wrong type. Whether the job makes sense is told by check().
        """
        self.config = v1.JobConfig()
        self.directory = pathlib.Path(directory or ".").absolute()
        self._source: Optional[_Source] = None
        values = {
            "name": name, "data": data, "model": model, "program": program, "table": table, "optimizer": optimizer,
            "distribute": distribute, "train": train, "checkpoint": checkpoint, "deadlines": deadlines,
            "cluster": cluster, "comm": comm, "metric": metric, "start_from": start_from,
        }
        fill(self.config, {**values, **unknown})

    @classmethod
    def from_file(cls, path: _Path, overrides: Sequence[str] = ()) -> Job:
        """Reads a job file, and applies overrides as --set takes them: ["train.epochs=3"].

        Raises:
            JobError: the file cannot be read or parsed, or an override is wrong.
        """
        try:
            text = pathlib.Path(path).read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise JobError(f"{os.fspath(path)}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            place = f"{os.fspath(path)}: the text is not UTF-8 at byte {error.start}"
            raise JobError(f"{place}; save it as UTF-8") from error
        absolute = pathlib.Path(path).absolute()
        return cls._parse(text, absolute, os.fspath(path), absolute.parent, overrides)

    @classmethod
    def from_text(cls, text: str, directory: Optional[_Path] = None, overrides: Sequence[str] = ()) -> Job:
        """Parses the text of a job file, whose relative paths start at `directory` (default: the current one).

        Raises:
            JobError: the text cannot be parsed, or an override is wrong.
        """
        return cls._parse(text, None, "job.textproto", pathlib.Path(directory or ".").absolute(), overrides)

    @classmethod
    def _parse(
        cls, text: str, path: Optional[pathlib.Path], shown: str, directory: pathlib.Path, overrides: Sequence[str]
    ) -> Job:
        if isinstance(overrides, str):
            raise JobError(f"overrides takes a list of 'path.to.field=value', got the string '{overrides}'")
        job = cls(directory=directory)
        try:
            parse_text(text, job.config)
        except text_format.ParseError as error:
            raise _parse_error(text, shown, error) from None
        job._source = _Source(path, shown, text, (), job._bytes())
        for override in overrides:
            job.override(override)
        return job

    # The fields of the message.

    @property
    def name(self) -> str:
        """Names the job in logs, handshakes and checkpoints."""
        return self.config.name

    @name.setter
    def name(self, name: str) -> None:
        self.set("name", name)

    @property
    def data(self) -> v1.Data:
        """The data, and how batches are made of it."""
        return self.config.data

    @property
    def model(self) -> v1.Model:
        """Layers and losses."""
        return self.config.model

    @property
    def program(self) -> str:
        """File with a program, in the place of `model`."""
        return self.config.program

    @program.setter
    def program(self, program: _Path) -> None:
        self.set("program", program)

    @property
    def table(self) -> RepeatedCompositeFieldContainer[v1.Table]:
        """Embedding tables."""
        return self.config.table

    @property
    def optimizer(self) -> v1.Optimizer:
        """Optimizer of every parameter that is not a table with its own."""
        return self.config.optimizer

    @property
    def distribute(self) -> v1.Distribute:
        """How the program is split over servers and trainers."""
        return self.config.distribute

    @property
    def train(self) -> v1.Train:
        """Epochs, seed, lanes, evaluations."""
        return self.config.train

    @property
    def checkpoint(self) -> v1.CheckpointConfig:
        """Where and when checkpoints are written."""
        return self.config.checkpoint

    @property
    def deadlines(self) -> v1.Deadlines:
        """Limits of all waits."""
        return self.config.deadlines

    @property
    def cluster(self) -> v1.Cluster:
        """Addresses and connections."""
        return self.config.cluster

    @property
    def comm(self) -> v1.Comm:
        """Exchange among trainers."""
        return self.config.comm

    @property
    def metric(self) -> RepeatedCompositeFieldContainer[v1.Metric]:
        """Figures of evaluations."""
        return self.config.metric

    @property
    def start_from(self) -> RepeatedCompositeFieldContainer[v1.StartFrom]:
        """Checkpoints of other jobs whose values this job begins with."""
        return self.config.start_from

    # Changes.

    def set(self, path: str, value: Any) -> None:
        """Sets one field to a Python value: set("train.epochs", 3), set("table[0].width", 8), set("metric", [...]).

        A list replaces a repeated field, and None clears a field.

        Raises:
            JobError: the path or the value is wrong. The job is then as it was.
        """
        assign_path(self.config, path, value)

    def override(self, assignment: str) -> None:
        """Sets one field by text, as the programs do for --set: override("train.epochs=3").

        The value is a literal of the text format; a string may come without quotes. "field=[a, b]" replaces a repeated
        field.

        Raises:
            JobError: the path or the value is wrong. The job is then as it was.
        """
        path, equals, text = assignment.partition("=")
        if not equals:
            raise JobError(f"--set {assignment}: expected 'path.to.field=value', got no '='")
        source = self._unchanged_source()
        assign_path(self.config, path.strip(), text.strip(), is_text=True)
        if source is not None:
            self._source = source._replace(overrides=(*source.overrides, assignment), gives=self._bytes())

    def copy(self) -> Job:
        """Returns a job that can be changed without changing this one."""
        job = Job(directory=self.directory)
        job.config.CopyFrom(self.config)
        job._source = self._source
        return job

    # Text and files.

    def to_text(self) -> str:
        """Returns the job as the text of a job file. Comments of a file that it was read from are not in it."""
        return _text(self.config)

    def save(self, path: _Path) -> pathlib.Path:
        """Writes a job file, as a whole or not at all, and returns its path.

        Paths in a job file are relative to the file. If it gets into another directory than `directory`, the relative
        paths in it are written so that they name the same files.
        """
        path = pathlib.Path(path)
        target = path.absolute().parent
        config = self.config
        if target != self.directory:
            config = _with_paths(config, lambda each: os.path.relpath(self.directory / each, target))
        with whole_file(str(path), "w", encoding="utf-8") as file:
            file.write(_text(config))
        return path

    @contextlib.contextmanager
    def as_file(self) -> Iterator[JobFile]:
        """Gives the job to programs: as the file that it was read from, with its overrides, else as a new file.

        A new file lies in `directory`, for relative paths start there, and is removed at the end of the block. Where
        no file can be made there, it lies elsewhere, with absolute paths. The plan fingerprint covers the names of data
        files as they are written, so all processes of a run must get the same file.
        """
        source = self._unchanged_source()
        if source is not None and source.path is not None and _reads(source.path) == source.text:
            yield JobFile(source.path, source.overrides, is_temporary=False)
            return
        text, overrides = (self.to_text(), ()) if source is None else (source.text, source.overrides)
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(
                    tempfile.NamedTemporaryFile(
                        "w", dir=self.directory, prefix=f".{self._file_name()[:-10]}.", suffix=".textproto",
                        encoding="utf-8"))
                path = pathlib.Path(file.name)
                file.write(text)
                file.flush()
            except OSError:
                path = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / self._file_name()
                path.write_text(_text(_with_paths(self.config, lambda each: str(self.directory / each))), "utf-8")
                overrides = ()
            yield JobFile(path, overrides, is_temporary=True)

    # Questions to the program `transpile`.

    def check(self) -> None:
        """Checks the job as every program does before it runs.

        Raises:
            JobError: the job is wrong. The message is that of the C++ checker, with file, line and column, and shows
                the line. A job without a file is named <name>.textproto; its lines are those of to_text().
            ProgramsMissingError: the program `transpile` is not installed.
        """
        self._ask("--print=plan")

    def plan(self) -> str:
        """Returns who owns what, as `transpile --print=plan` prints it. Raises as check() does."""
        return self._ask("--print=plan")

    def explain(self, *, sample: int = 0) -> str:
        """Returns what the job will cost, as `transpile --print=explain` prints it. Raises as check() does.

        Args:
            sample: batches of the job's data to read, to predict instead of giving bounds.
        """
        return self._ask("--print=explain", *([f"--sample={sample}"] if sample else []))

    def _ask(self, *arguments: str) -> str:
        with self.as_file() as file:
            done = _transpile(file.arguments, arguments)
            source = self._source
            shown = self._file_name() if file.is_temporary or source is None else source.shown
            if done.returncode == 0:
                return done.stdout.replace(f"{file.path}:", f"{shown}:")
            raise _error(done, str(file.path), shown, _reads(file.path) or "")

    def _file_name(self) -> str:
        """Returns the name of a file for a job that has none."""
        return re.sub(r"[^A-Za-z0-9_.-]", "_", self.config.name or "job") + ".textproto"

    def _bytes(self) -> bytes:
        return self.config.SerializeToString(deterministic=True)

    def _unchanged_source(self) -> Optional[_Source]:
        """Returns the source if it, with its overrides, still gives this job."""
        return self._source if self._source is not None and self._source.gives == self._bytes() else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return bool(self.config == other.config) and self.directory == other.directory

    __hash__ = None  # type: ignore[assignment]  # It can change.

    def __repr__(self) -> str:
        return f"Job(name={self.config.name!r}, directory={str(self.directory)!r})"

    def __str__(self) -> str:
        return self.to_text()


def _text(config: v1.JobConfig) -> str:
    return text_format.MessageToString(config, as_utf8=True)


def _reads(path: pathlib.Path) -> Optional[str]:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def _with_paths(config: v1.JobConfig, change: Any) -> v1.JobConfig:
    """Returns a copy in which every relative path of the job is changed."""
    copy = v1.JobConfig()
    copy.CopyFrom(config)

    def changed(path: str) -> str:
        return path if not path or os.path.isabs(path) else change(path)

    data = copy.data if copy.HasField("data") else None
    for source in [] if data is None else [data.train] * data.HasField("train") + [data.eval] * data.HasField("eval"):
        source.files[:] = [changed(each) for each in source.files]
        source.labels[:] = [changed(each) for each in source.labels]
    if copy.HasField("program"):
        copy.program = changed(copy.program)
    for table in copy.table:
        table.load[:] = [changed(each) for each in table.load]
        if table.HasField("disk") and table.disk.HasField("dir"):
            table.disk.dir = changed(table.disk.dir)
    if copy.HasField("checkpoint") and copy.checkpoint.HasField("dir"):
        copy.checkpoint.dir = changed(copy.checkpoint.dir)
    return copy


def _transpile(job: Sequence[str], arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(programs.find("transpile")), *job, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
        check=False)


def _error(done: subprocess.CompletedProcess[str], path: str, shown: str, text: str) -> Exception:
    """Returns the error of a program that failed on a job file that the user knows as `shown`."""
    lines = done.stderr.splitlines()
    said = "\n".join(line for line in lines if not _LOGGED.match(line)).strip()
    if done.returncode != _BAD_INPUT:
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        message = f"transpile ended with code {code}: {said or 'it said nothing'}"
        return RunError(message, code, "the program failed; this is no fault of the job", lines)
    place = re.match(re.escape(path) + r":(\d+):(\d+): ", said)
    said = said.replace(path, shown)
    return JobError(said if place is None else said + _pointed_at(text, int(place[1]), int(place[2])))


def _pointed_at(text: str, line: int, column: int) -> str:
    """Returns the line of the text, with a mark below the column. The text format counts bytes, and widens tabs."""
    lines = text.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    at, before = 0, ""
    for character in lines[line - 1]:
        if at >= column - 1:
            break
        at += _TAB - at % _TAB if character == "\t" else len(character.encode("utf-8"))
        before += "\t" if character == "\t" else " "
    return f"\n  {lines[line - 1]}\n  {before}^"


def _parse_error(text: str, shown: str, error: text_format.ParseError) -> JobError:
    """Returns the error of text that protobuf cannot parse: in the words of the C++ parser, where it is installed."""
    with contextlib.suppress(ProgramsMissingError), tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "job.textproto"
        path.write_text(text, encoding="utf-8")
        done = _transpile([f"--job={path}"], ["--print=plan"])
        said = _error(done, str(path), shown, text)
        # Text that only protobuf's parser in Python refuses: a message of a user's own that it does not know.
        if isinstance(said, JobError) and done.stderr.startswith(f"{path}:"):
            return said
    place = re.match(r"(\d+):(\d+) : (.*)", str(error), re.DOTALL)
    if place is None:
        return JobError(f"{shown}: {error}")
    return JobError(f"{shown}:{place[1]}:{place[2]}: {place[3]}{_pointed_at(text, int(place[1]), int(place[2]))}")
