"""tools/slurm_job with stand-ins for Slurm's commands and launch: exit codes, and jobs that requeue themselves.

tests/e2e/processes/slurm_test.sh runs it on Slurm.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60

# Runs the command once for each of two nodes, as `srun --label` does.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for node in 0 1; do
  (SLURM_NODEID=$node SLURMD_NODENAME=n$node "$@" 2> >(sed -u "s/^/$node: /" >&2) | sed -u "s/^/$node: /"
   exit "${PIPESTATUS[0]}") &
  steps[node]=$!
done
code=0
for step in "${steps[@]}"; do wait "$step" || code=$?; done
exit $code
"""
# `scancel --signal=HUP ID` reaches every launch.
SCANCEL = """#!/bin/bash
signal=${2#--signal=}
for file in "$FAKES"/launch.*.pid; do kill -"$signal" "$(cat "$file")"; done 2>/dev/null
exit 0
"""
SCONTROL = """#!/bin/bash
case "$*" in
  "show hostnames"*) printf 'n0\\nn1\\n' ;;
  "--oneliner show node"*) echo "NodeName=n0 NodeAddr=127.0.0.1 Port=1" ;;
  "requeue "*) echo "$2" >> "$FAKES/requeued" ;;
esac
"""
# Ends with ENDS_0 or ENDS_1 after DELAY_0 or DELAY_1 seconds, or with HUP_0 or HUP_1 when it gets SIGHUP.
LAUNCH = """#!/bin/bash
node=${1#--node_rank=} hup=HUP_$node ends=ENDS_$node delay=DELAY_$node
trap 'exit ${!hup:-99}' HUP
trap 'exit 143' TERM
echo $$ > "$FAKES/launch.$node.tmp" && mv "$FAKES/launch.$node.tmp" "$FAKES/launch.$node.pid"
printf '%s\\n' "$@" > "$FAKES/launch.$node.arguments"
if [ -n "${!ends:-}" ]; then sleep "${!delay:-0}" & wait; exit "${!ends}"; fi
while :; do sleep 0.1 & wait; done
"""


@pytest.fixture(name="fakes")
def fixture_fakes(tmp_path: Path) -> Path:
    for name, text in (("srun", SRUN), ("scancel", SCANCEL), ("scontrol", SCONTROL), ("launch", LAUNCH)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.textproto").write_text('name: "x"\n')
    return tmp_path


def start(fakes: Path, *flags: str, **variables: str) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
    environment.update({"PATH": f"{fakes}:{environment['PATH']}", "FAKES": str(fakes), "SLURM_JOB_ID": "7",
                        "SLURM_JOB_NODELIST": "n[0-1]", **variables})
    return subprocess.Popen(["bash", str(ROOT / "tools/slurm_job"), "job.textproto", f"--bin_dir={fakes}", *flags],
                            cwd=fakes, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(fakes: Path, *flags: str, **variables: str) -> tuple[int, str]:
    process = start(fakes, *flags, **variables)
    out, _ = process.communicate(timeout=SECONDS)
    return process.returncode, out


def stop(fakes: Path, process: "subprocess.Popen[str]") -> tuple[int, str]:
    """SIGTERM to the script, when both launches run."""
    deadline = time.monotonic() + SECONDS
    while not all((fakes / f"launch.{node}.pid").exists() for node in range(2)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    out, _ = process.communicate(timeout=SECONDS)
    return process.returncode, out


# Codes of the launches on node 0 and node 1, which ends later, and that of the job.
@pytest.mark.parametrize("first, second, job", [
    (0, 0, 0), (5, 5, 5), (0, 5, 5), (5, 0, 5), (3, 3, 3), (3, 5, 3), (5, 3, 3), (137, 3, 137), (3, 137, 137),
    (2, 2, 2), (5, 2, 2), (2, 5, 2), (4, 3, 4), (1, 3, 1), (143, 137, 143), (75, 0, 75)])
def test_the_code_of_the_job_is_that_of_its_launches(fakes, first, second, job):
    code, out = run(fakes, ENDS_0=str(first), ENDS_1=str(second), DELAY_1="0.3")
    assert code == job, out
    assert not (fakes / "requeued").exists()


def test_what_to_do_is_said(fakes):
    complete = run(fakes, ENDS_0="0", ENDS_1="0")[1]
    assert "scontrol requeue" not in complete and "stopped" not in complete
    assert "ended with 2; running again changes nothing" in run(fakes, ENDS_0="2", ENDS_1="2")[1]
    assert "ended with 4; running again changes nothing" in run(fakes, ENDS_0="4", ENDS_1="3")[1]
    assert "ended with 3; 'scontrol requeue 7' goes on" in run(fakes, ENDS_0="3", ENDS_1="3")[1]
    assert "stopped; 'scontrol requeue 7' goes on from the checkpoint" in run(fakes, ENDS_0="5", ENDS_1="5")[1]


def test_a_job_that_is_stopped_is_not_complete(fakes):
    code, out = stop(fakes, start(fakes, HUP_0="5", HUP_1="5"))
    assert code == 5, out
    assert "slurm_job: told to stop: the job ends at a step border, with a checkpoint" in out
    assert "slurm_job: stopped; 'scontrol requeue 7' goes on from the checkpoint" in out
    assert not (fakes / "requeued").exists()


def test_a_job_that_is_stopped_requeues_itself_if_it_is_told_to(fakes):
    code, out = stop(fakes, start(fakes, "--requeue_when_stopped", "--servers=1", HUP_0="5", HUP_1="5"))
    assert code == 5, out
    assert (fakes / "requeued").read_text() == "7\n"
    arguments = (fakes / "launch.0.arguments").read_text().splitlines()
    assert "--servers=1" in arguments and not any("requeue" in each for each in arguments)


@pytest.mark.parametrize("ends", ["0", "2", "3", "137"])
def test_only_a_job_that_was_stopped_requeues_itself(fakes, ends):
    assert run(fakes, "--requeue-when-stopped", ENDS_0=ends, ENDS_1=ends)[0] == int(ends)
    assert not (fakes / "requeued").exists()


def test_another_code_for_a_stop_is_known(fakes):
    flags = ["--requeue_when_stopped", "--stop_code=75"]
    code, out = stop(fakes, start(fakes, *flags, HUP_0="75", HUP_1="75"))
    assert code == 75, out
    assert (fakes / "requeued").read_text() == "7\n"
    assert "--stop_code=75" in (fakes / "launch.1.arguments").read_text().splitlines()


def test_with_zero_a_stop_counts_as_complete(fakes):
    code, out = stop(fakes, start(fakes, "--stop_code", "0", HUP_0="0", HUP_1="0"))
    assert code == 0, out
    assert "slurm_job: stopped; 'scontrol requeue 7' goes on from the checkpoint" in out


def test_a_requeued_job_goes_on(fakes):
    code, out = run(fakes, ENDS_0="0", ENDS_1="0", SLURM_RESTART_COUNT="1")
    assert code == 0, out
    assert (fakes / "launch.0.arguments").read_text().splitlines()[-2:] == ["--", "--resume"]
