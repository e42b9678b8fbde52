"""Trains a job with the C++ programs as child processes."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

from weir import child, programs
from weir.ending import BAD_INPUT, COMPLETE, STOPPED, Ending, ending_of
from weir.job_on_disk import JobOnDisk
from weir.progress import Display, Figures, parse, show

if TYPE_CHECKING:
    import pandas

__all__ = ["Run", "train"]

_CHIEF = "[trainer.0] "
_PROCESS = re.compile(r"\[\w+\.\d+\] ")
# Line by which launch tells where the page is.
_PAGE = "launch: the job's page is "
_LINES_KEPT = 200
# Time that a job gets to end in good order when Python ends.
_SECONDS_AT_EXIT = 60

# Runs whose processes may still be there.
_running: weakref.WeakSet[Run] = weakref.WeakSet()


def train(job: Any, servers: Optional[int] = 2, trainers: Optional[int] = 2, overrides: Sequence[str] = (),
          log_dir: Union[str, os.PathLike[str], None] = None, progress: bool = True, wait: bool = True,
          env: Optional[Mapping[str, str]] = None, *, resume: bool = False, local: bool = False,
          allow_pipes: bool = False, page: Optional[int] = None, metrics_port: Optional[int] = None,
          tensorboard: Union[str, os.PathLike[str], None] = None,
          restarts: Union[int, str, None] = None,
          on_line: Optional[Callable[[str], None]] = None,
          on_evaluation: Optional[Callable[[Figures], None]] = None) -> Run:
    """Trains a job on this machine, with as many processes as asked for, and returns the run.

    The processes are the C++ programs; none is left when Python ends, whatever ends it. Four layouts are possible:

    * servers=S, trainers=T: S parameter servers and T trainers.
    * servers=0, trainers=T: trainers alone, each of which holds a part of the parameters. Needs a sync job. This is how
      jobs with `mode: COLLECTIVE` run.
    * servers=0, trainers=1: the same with one process, which starts without a network of trainers.
    * local=True: one process with the whole job, whatever cluster the job is made for (`trainer --role=local`). The
      shortest start, and the way to try a job out. `servers` and `trainers` have no meaning then.

    In sync all of these come to the same bits.

    Args:
        job: a weir.Job, the path of a job file, or the text of a job. Paths in it are relative to its directory, for a
            text to the current one.
        servers: number of servers; None: distribute.servers of the job.
        trainers: number of trainers; None: distribute.trainers of the job.
        overrides: fields of the job that have another value in this run: ["train.epochs=2"].
        log_dir: directory for a log file of each process. None: a new temporary one, which is removed with the Run. It
            is kept after a failure that is not one of the job, the data or the command line (exit code 2).
        progress: whether to show the progress: in a terminal or a notebook as a bar if tqdm is installed, else as
            lines on stderr.
        wait: True: returns when the training has ended. False: returns at once; see Run.
        env: variables of the processes, besides those of this one.
        resume: goes on from the newest checkpoint in checkpoint.dir.
        local: runs the job in one process.
        allow_pipes: runs the commands that the job names (data.pipe, data.pipe_list), with which a job can do whatever
            its author likes.
        page: port of a page for the browser that shows the running job, 0 for any that is free; `Run.page` is its
            address. Not with local.
        metrics_port: port of /metrics, for Prometheus; each further process has the next one. 0: any that are free.
        tensorboard: directory for event files of TensorBoard.
        restarts: after a death the job is started again from its newest checkpoint: at most so many times, or so many
            in an hour ("3/hour"). Run.done has `restarts`, `lost_s`, `repeated_steps` and `goodput` then. Not with
            local.
        on_line: is called with each line that the processes write.
        on_evaluation: is called with the figures of each evaluation. Both are called on a thread of the run, one call
            at a time; an exception stops the run, and Run.wait raises it.

    Raises:
        weir.RunError: the training failed (with wait).
        weir.StoppedError: a signal from elsewhere, as of a scheduler, has ended it before it was complete (with wait).
        weir.ProgramsMissingError: the C++ programs are not installed.
    """
    if local and page is not None:
        raise ValueError("page: a job in one process (local=True) has no page; leave out local")
    if local and restarts is not None:
        raise ValueError("restarts: launch starts jobs again, and a job in one process (local=True) has none; leave "
                         "out local (servers=0, trainers=1 is one process, too)")
    flags = ["--allow_pipes"] if allow_pipes else []
    flags += [] if restarts is None else [f"--restarts={restarts}"]
    flags += [] if page is None else [f"--page={page}"]
    flags += [] if metrics_port is None else [f"--metrics_port={metrics_port}"]
    flags += [] if tensorboard is None else [f"--tensorboard={os.path.abspath(tensorboard)}"]
    run = Run(job, servers, trainers, overrides, log_dir, progress, env, resume, local, on_line, on_evaluation, flags)
    return run.wait() if wait else run


class Run:
    """A training that runs, or has ended; made by train().

    As a context manager it stops a training that still runs when the block is left:

        with weir.train(job, wait=False) as run:
            ...

    Attributes:
        log_dir: directory with the log file of each process.
        progress: figures of each progress line so far: step, examples, examples_per_s, loss, auc, left_s, and
            `seconds` since the start of the run. They judge the training data since the line before.
        evaluations: figures of each evaluation so far, with `seconds`. An undefined figure is NaN, and `notes` has the
            reasons.
        done: figures of the last line: steps, examples, seconds, examples_per_s, loss, auc, ...; {} until then, and
            after a failure.
        page: address of the job's page, "" if it has none, or not yet.
    """

    def __init__(self, job: Any, servers: Optional[int], trainers: Optional[int], overrides: Sequence[str],
                 log_dir: Union[str, os.PathLike[str], None], progress: bool, env: Optional[Mapping[str, str]],
                 resume: bool, local: bool, on_line: Optional[Callable[[str], None]],
                 on_evaluation: Optional[Callable[[Figures], None]], flags: Sequence[str] = ()):
        """Starts the processes; train() explains the arguments."""
        self.progress: list[Figures] = []
        self.evaluations: list[Figures] = []
        self.done: Figures = {}
        self.page = ""
        self._name = "trainer" if local else "launch"
        program = programs.find(self._name)
        child.arguments_of(overrides)  # refuses wrong ones before there is anything to clean up
        self._on_line = on_line
        self._on_evaluation = on_evaluation
        self._display = Display()
        # Serializes the callbacks for the two outputs; a callback may read `log`.
        self._lock = threading.RLock()
        self._log: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._errors: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._raised: Optional[BaseException] = None  # by a callback, or by the start
        self._stopping = False
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._started, self._ended = threading.Event(), threading.Event()
        self._owner = os.getpid()
        self._reader: Optional[threading.Thread] = None

        self._remove_logs: Optional[weakref.finalize[..., Any]] = None
        if log_dir is None:
            self.log_dir = Path(tempfile.mkdtemp(prefix="weir-logs-"))
            self._remove_logs = weakref.finalize(self, shutil.rmtree, self.log_dir, ignore_errors=True)
        else:
            self.log_dir = Path(log_dir)
            self.log_dir.mkdir(parents=True, exist_ok=True)
        # launch writes the log files; of one process, this does.
        self._log_file: Optional[IO[str]] = (
            open(self.log_dir / "trainer.0.log", "w", encoding="utf-8") if local else None)
        self._job = JobOnDisk(job)
        arguments = [f"--job={self._job.path}"]
        set_fields = child.arguments_of([*self._job.overrides, *overrides])
        arguments += flags
        if local:
            arguments += ["--role=local", *set_fields, *(["--resume"] if resume else [])]
        else:
            arguments += [f"--log_dir={self.log_dir}", *set_fields]
            arguments += [] if servers is None else [f"--servers={servers}"]
            arguments += [] if trainers is None else [f"--trainers={trainers}"]
            arguments += ["--", "--resume"] if resume else []

        # Called before the finalizers of weakref, which remove the logs: what is registered last is called first.
        atexit.unregister(_end_all)
        atexit.register(_end_all)
        self._display = show(progress)
        self._begin = time.monotonic()
        _running.add(self)
        # The thread lives as long as the process, which would be ended with it (child.start).
        self._thread = threading.Thread(target=self._work, args=(program, arguments, env), name="weir-run",
                                        daemon=True)
        self._thread.start()
        try:
            self._started.wait()
        except KeyboardInterrupt:
            self._end()
            raise
        if self._process is None:
            self._ended.wait()
            assert self._raised is not None
            raise self._raised

    @property
    def running(self) -> bool:
        """Whether the training still runs."""
        return not self._ended.is_set()

    @property
    def exit_code(self) -> Optional[int]:
        """Exit code of the training: 0 if it is complete, 5 if it was stopped, 128 + signal after a signal that ended
        it at once; None while it runs."""
        return None if self.running or self._process is None else child.exit_code_of(self._process)

    @property
    def ending(self) -> Optional[Ending]:
        """How the training has ended; None while it runs."""
        code = self.exit_code
        return None if code is None else ending_of(code)

    @property
    def log(self) -> list[str]:
        """The last lines that the processes wrote; the files in log_dir have all."""
        with self._lock:
            return list(self._log)

    @property
    def metrics(self) -> pandas.DataFrame:
        """Figures of all progress lines and evaluations, by step; `of` is "train" or "eval".

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Run.metrics needs pandas (pip install pandas). Run.progress and Run.evaluations have "
                              "the same figures as lists of dicts") from error
        rows = [{"of": "train", **figures} for figures in list(self.progress)]
        rows += [{"of": "eval", **figures} for figures in list(self.evaluations)]
        rows.sort(key=lambda row: row["step"])
        frame: pandas.DataFrame = pandas.DataFrame(rows, columns=None if rows else ["of", "step", "seconds", "loss"])
        return frame

    def wait(self, timeout: Optional[float] = None) -> Run:
        """Waits until the training has ended. Ctrl-C ends the training in good order, then raises KeyboardInterrupt.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.

        Raises:
            weir.RunError: the training failed. The text begins with the message of the C++ program.
            weir.StoppedError: a signal from elsewhere has ended the training before it was complete. After stop() there
                is no error: `ending` is Ending.STOPPED, or Ending.COMPLETE if the training was done before.
            TimeoutError: it still runs; it goes on.
            RuntimeError: a callback of the run waits for it.
        """
        if threading.current_thread() in (self._thread, self._reader):
            raise RuntimeError("a callback of a run cannot wait for the run: it would wait for itself; stop() and an "
                               "exception end the run from there")
        try:
            ended = self._ended.wait(timeout)
        except KeyboardInterrupt:
            self._end()
            raise
        if not ended:
            raise TimeoutError(f"the training still runs after {timeout} s; stop() ends it")
        if self._raised is not None:
            raise self._raised
        code = self.exit_code
        assert code is not None
        if not self._failed(code):
            return self
        error = child.error_of(self._name, code, list(self._errors), self.log)
        notes = [self._job.note(str(error)), f"Log files: {self.log_dir}" if self._keeps_logs(code) else ""]
        raise child.error_of(self._name, code, list(self._errors), self.log, "\n".join(filter(None, notes)))

    def stop(self) -> None:
        """Asks the training to end at the next step border, with a checkpoint; a second call ends it at once.

        Returns immediately; wait() waits for the end. Does nothing if the training has ended.
        """
        # A second SIGTERM within a second would be the first one again (framework/process/stop_signals.h).
        asked, self._stopping = self._stopping, True
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGINT if asked else signal.SIGTERM)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.running:
            self._end()
        if kind is None:
            self.wait()

    def __repr__(self) -> str:
        state = "running" if self.running else f"exit code {self.exit_code}"
        return f"<weir.Run: {state}, {self.done or (self.progress[-1] if self.progress else 'no step yet')}>"

    def _failed(self, code: int) -> bool:
        return code != COMPLETE and not (self._stopping and code in (STOPPED, 128 + signal.SIGTERM))

    def _keeps_logs(self, code: int) -> bool:
        # Of bad input the message says all there is to know.
        return self._remove_logs is None or (self._failed(code) and code != BAD_INPUT)

    def _end(self) -> None:
        """Stops the training and waits for its end; Ctrl-C meanwhile stops it at once."""
        self.stop()
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            self.stop()
            self._ended.wait()
            raise

    def _work(self, program: Path, arguments: list[str], env: Optional[Mapping[str, str]]) -> None:
        """Starts the process, reads its outputs and waits for its end."""
        try:
            self._process = child.start(program, arguments, env)
            process = self._process
            self._started.set()
            if self._stopping:
                self.stop()
            assert process.stdout is not None and process.stderr is not None
            self._reader = threading.Thread(target=self._read, args=(process.stderr, self._errors), daemon=True,
                                            name="weir-run-stderr")
            self._reader.start()
            self._read(process.stdout, None)
            self._reader.join()
            process.wait()
        except BaseException as error:  # raised to the caller by the constructor or by wait()
            self._raised = self._raised or error
        finally:
            self._job.close()
            if self._log_file is not None:
                self._log_file.close()
            if self._process is not None and self._remove_logs is not None:
                if self._keeps_logs(child.exit_code_of(self._process)):
                    self._remove_logs.detach()
            with contextlib.suppress(Exception):
                self._display.close()
            _running.discard(self)
            self._ended.set()
            self._started.set()

    def _read(self, pipe: IO[bytes], errors: Optional[collections.deque[str]]) -> None:
        """Reads an output to its end. `errors`: takes the lines of stderr; None on stdout."""
        with pipe:
            for each in pipe:
                line = self._job.plain(each.decode("utf-8", "replace").rstrip("\r\n"))
                with self._lock:
                    self._log.append(line)
                    if errors is not None:
                        errors.append(line)
                    if self._log_file is not None:
                        # A full disk must not end the training.
                        with contextlib.suppress(OSError):
                            print(line, file=self._log_file, flush=True)
                    try:
                        self._take(line, is_stdout=errors is None)
                    except BaseException as error:
                        if self._raised is None:
                            self._raised = error
                            self.stop()

    def _take(self, line: str, is_stdout: bool) -> None:
        """Calls back with a line, and takes the figures out of one of the chief."""
        if not self.page and line.startswith(_PAGE):
            self.page = line[len(_PAGE):]
        if self._raised is not None:
            return
        if self._on_line is not None:
            self._on_line(line)
        # The last line of launch repeats that of the chief, without a name.
        chief = line[len(_CHIEF):] if line.startswith(_CHIEF) else line
        if not is_stdout or _PROCESS.match(chief):
            return
        found = parse(chief)
        if found is None:
            return
        kind, figures = found
        # All processes have read the job when the chief has done a step.
        self._job.close()
        if kind == "done":
            if chief is line:
                self.done = figures
                self._display.done(figures)
            return
        figures["seconds"] = round(time.monotonic() - self._begin, 3)
        if kind == "progress":
            self.progress.append(figures)
            self._display.progress(figures)
            return
        self.evaluations.append(figures)
        self._display.evaluation(figures)
        if self._on_evaluation is not None:
            self._on_evaluation(figures)


def _end_all() -> None:
    """Ends the trainings of this process in good order, and at once those that take longer than a minute."""
    runs = [run for run in list(_running) if run._owner == os.getpid() and run.running]
    for run in runs:
        run.stop()
    deadline = time.monotonic() + _SECONDS_AT_EXIT
    for run in runs:
        if not run._ended.wait(max(0.0, deadline - time.monotonic())):
            run.stop()
            run._ended.wait(5)
