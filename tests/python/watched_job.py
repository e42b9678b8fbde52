"""A small job for the tests of what a run shows: event files, metrics."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weir import programs
from weir.errors import ProgramsMissingError

JOB = """
name: "watched"
data {
  train { files: "train.csv" }
  eval { files: "eval.csv" }
  csv { column { name: "label" } column { name: "age" } column { name: "user" type: ID } }
  batch_size: 64
}
model {
  layer { name: "v" embedding { ids: "user" table: "users" } }
  layer { name: "in" concat { input: "v" input: "age" } }
  layer { name: "logit" fc { input: "in" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
metric { calibration {} }
metric { normalized_entropy {} }
table { name: "users" width: 4 is_sparse: true is_distributed: true lifecycle { ttl_steps: 1000 } }
optimizer { sgd { learning_rate: 0.1 } }
train { epochs: 2 seed: 1 lanes: 2 eval_every_steps: 20 log_every_seconds: 0.001 }
"""


def write_job(directory: Path) -> None:
    """Writes job.textproto and its data: 63 steps."""
    (directory / "job.textproto").write_text(JOB)
    for name, lines in ("train.csv", 2000), ("eval.csv", 300):
        rows = (f"{int(i * 7919 % 100 < 50)},{i * 31 % 100 / 100},{i * 17 % 50}\n" for i in range(lines))
        (directory / name).write_text("label,age,user\n" + "".join(rows))


def programs_with(name: str, flag: str) -> Path:
    """Returns a program; skips the test if it is not built, or if it has not got the flag."""
    try:
        program = programs.find(name)
    except ProgramsMissingError as error:
        pytest.skip(str(error))
    done = subprocess.run([program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if f"{flag} " not in done.stdout:
        pytest.skip(f"the program {name} has no flag {flag}")
    return program
