#!/usr/bin/env python3
"""Processor time that watching a job costs, beside the job's own: the page of `launch --page`, polled each second as a
browser does; /metrics of every process, read each second; event files for TensorBoard.

Each way is used in a run by itself, with servers and trainers on this machine. Its cost is the processor time of its
own threads in all processes, and `share` is that in the processor time of the whole job. Histograms in event files are
counted on the trainers' own threads, so the last run is compared with those before by its trainers' time for a step.
Exits with 1 if a share is above what docs/monitoring.md promises.

    bazel build //pserver //trainer //tools:launch //tools:generate_ctr
    bazel-bin/tools/generate_ctr --output=examples/synthetic_ctr/data
    tests/bench/watching_cost.py                      # a minute for each way
    tests/bench/watching_cost.py --seconds=10 --launch=weir-launch
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Callable, Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 60
# Threads that only those who watch need. Those of launch's page are named like those of /metrics.
OWN = re.compile("weir-(watch|page|events|rows)")
# Name: flags of launch, and the most that its threads may take of the job's processor time.
WAYS: dict[str, tuple[list[str], float]] = {
    "page": (["--page=0"], 0.01),
    "metrics": (["--metrics_port={port}"], 0.005),
    "events": (["--tensorboard={directory}/events"], 0.005),
    "histograms": (["--tensorboard={directory}/events", "--tensorboard_histograms=100"], 0.005),
}


def free_ports(count: int) -> int:
    """Returns the first of some ports that nobody has."""
    for first in range(21000, 32000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    sys.exit("watching_cost: no free ports")


def descendants(pid: int) -> list[int]:
    """Returns a process and all that it has started."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


def seconds_of_threads(pids: list[int]) -> dict[tuple[int, int], float]:
    """Returns the processor time of those threads of some processes that serve watchers, by process and thread."""
    times = {}
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            try:
                if OWN.match((task / "comm").read_text()):
                    times[pid, int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
            except OSError:  # it has ended
                pass
    return times


def seconds_of_processes(pids: list[int]) -> float:
    """Returns the processor time of processes, with that of threads that have ended."""
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return answer.read()


class Job:
    """A training of two servers and two trainers that goes on until close()."""

    def __init__(self, options: argparse.Namespace, flags: list[str], directory: pathlib.Path) -> None:
        self._log = directory / "log"
        self.port = free_ports(4)
        flags = [each.format(port=self.port, directory=directory) for each in flags]
        with open(self._log, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [options.launch, f"--job={options.job}", "--servers=2", "--trainers=2",
                 f"--log_dir={directory / 'logs'}", "--set", "train.epochs=1000000",
                 "--set", f"checkpoint.dir={directory / 'checkpoints'}", *flags],
                stdout=log, stderr=subprocess.STDOUT)
        self.wait_for(r" step=\d+ .* examples_per_s=")
        self.pids = descendants(self._process.pid)

    def wait_for(self, pattern: str) -> re.Match[str]:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and self._process.poll() is None:
            if found := re.search(pattern, self.log()):
                return found
            time.sleep(0.1)
        sys.exit(f"watching_cost: the job has not said {pattern!r}:\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def step(self) -> int:
        return int(re.findall(r" step=(\d+) ", self.log())[-1])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)


def reader_of(way: str, job: Job) -> Optional[Callable[[], int]]:
    """Returns what is called each second; it returns the bytes read."""
    if way == "page":
        url = job.wait_for(r"page is (http://127\.0\.0\.1:\d+)/").group(1)
        seq = json.loads(get(url + "/state.json"))["seq"]

        def poll() -> int:
            nonlocal seq
            answer = get(f"{url}/state.json?since={seq:.0f}")
            seq = json.loads(answer)["seq"]
            return len(answer)

        return poll
    if way == "metrics":
        return lambda: sum(len(get(f"http://127.0.0.1:{job.port + i}/metrics")) for i in range(4))
    return None


def measure(way: str, options: argparse.Namespace) -> bool:
    flags, most = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="watching_cost.") as name:
        directory = pathlib.Path(name)
        job = Job(options, flags, directory)
        try:
            read = reader_of(way, job)
            own, all_of_it, step = seconds_of_threads(job.pids), seconds_of_processes(job.pids), job.step()
            begun, reads, size = time.monotonic(), 0, 0
            while time.monotonic() < begun + options.seconds:
                time.sleep(max(0.0, begun + reads + 1 - time.monotonic()))
                size += read() if read else 0
                reads += 1
            threads = seconds_of_threads(job.pids)
            cost = sum(threads.values()) - sum(own.values())
            used, steps = seconds_of_processes(job.pids) - all_of_it, job.step() - step
        finally:
            job.close()
        written = sum(path.stat().st_size for path in directory.glob("events/*/*"))
    share = cost / used
    print(f"{way:11} own threads {1e3 * cost:6.0f} ms in {len(threads)}, job {used:6.1f} s, share {100 * share:5.3f} % "
          f"of at most {100 * most} %, {1e3 * used / steps:.3f} ms of processor time a step, "
          f"{(size or written) / reads / 1e3:.1f} kB/s", flush=True)
    return share <= most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launch", default=str(ROOT / "bazel-bin/tools/launch"))
    parser.add_argument("--job", default=str(ROOT / "examples/synthetic_ctr/job.textproto"))
    parser.add_argument("--seconds", type=float, default=60, help="of each way")
    parser.add_argument("--only", choices=WAYS, help="one way")
    options = parser.parse_args()
    good = [measure(way, options) for way in ([options.only] if options.only else WAYS)]
    sys.exit(0 if all(good) else "watching_cost: a share is above its limit")


if __name__ == "__main__":
    main()
