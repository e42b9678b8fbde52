"""A job beside the one that a checkpoint was trained with."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import Any, Iterator, Optional, Sequence

from weir.checkpoint import Checkpoint
from weir.errors import JobError, WeirError
from weir.job import Job

__all__ = ["as_job", "check_same_scores", "with_model_of"]


def as_job(job: Any, overrides: Sequence[str] = ()) -> Job:
    """Returns a job with overrides, of a weir.Job, the path of a job file, or the text of a job."""
    if isinstance(job, Job):
        job = job.copy()
    elif isinstance(job, str) and ("\n" in job or "{" in job) and not os.path.isfile(job):
        job = Job.from_text(job)
    elif isinstance(job, (str, os.PathLike)):
        job = Job.from_file(job)
    else:
        raise TypeError(f"a job is a weir.Job, the path of a file, or a text, got {type(job).__name__}")
    for each in overrides:
        job.override(each)
    found: Job = job
    return found


def check_same_scores(job: Job, checkpoint: Checkpoint) -> None:
    """Checks that a job makes the scores of the model in a checkpoint, as --role=predict does.

    Raises:
        JobError: it makes others; the message has the first setting that differs, its place and a way out.
    """
    if not checkpoint.manifest.job_text:
        return
    with _job_text(checkpoint) as trained:
        differences = job._ask("--print=differences", f"--trained_with={trained}").splitlines()
    if not differences:
        return
    more = len(differences) - 1
    others = f" ({more} more setting{'s differ' if more > 1 else ' differs'})" if more else ""
    raise JobError(f"{differences[0]}{others}: the scores would not be those of the model in {checkpoint.path}; set it "
                   "back, or take the model from the job in the checkpoint (--checkpoint_job, in Python "
                   "checkpoint_job=True)")


def with_model_of(checkpoint: Checkpoint, job: Optional[Any], overrides: Sequence[str] = ()) -> Job:
    """Returns a job with the model of the one in a checkpoint, as `trainer --checkpoint_job` predicts with it.

    Args:
        job: as of as_job; None: files, batches and the cluster are those of the job in the checkpoint, too, and its
            relative paths start at the current directory.

    Raises:
        JobError: the job is wrong.
        WeirError: the checkpoint does not have its job.
    """
    if not checkpoint.manifest.job_text:
        raise WeirError(f"the checkpoint {checkpoint.path} does not have its job: give the job that it was trained "
                        "with, without checkpoint_job")
    given = as_job(checkpoint.manifest.job_text if job is None else job, overrides)
    with _job_text(checkpoint) as trained:
        text = given._ask("--print=checkpoint_job", f"--trained_with={trained}")
    return Job.from_text(text, given.directory)


@contextlib.contextmanager
def _job_text(checkpoint: Checkpoint) -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="weir-job-") as directory:
        path = pathlib.Path(directory) / "trained.textproto"
        path.write_text(checkpoint.manifest.job_text, encoding="utf-8")
        yield path
