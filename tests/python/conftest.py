"""Each test of other programs and packages names their versions: in the XML of the results, and below them.

With WEIR_SAY=SECONDS a line says so often on standard error how far the run is.
"""

from __future__ import annotations

import functools
import os
import sys
import time

import peers
import pytest

_version = functools.cache(peers.version)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in peers.of_module(item.path.stem):
        item.user_properties.append(("peer", f"{name} {_version(name) or 'missing'}"))


class Progress:
    """Says how many tests have ended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._said = time.monotonic()
        self._ended = self._failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        self._ended += report.when == "teardown"
        if time.monotonic() - self._said >= self._seconds:
            self._said = time.monotonic()
            print(f"test: python: {self._ended} tests have ended, {self._failed} failed", file=sys.stderr, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    seconds = os.environ.get("WEIR_SAY")
    if seconds and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Progress(float(seconds)))


def pytest_terminal_summary(terminalreporter) -> None:
    counts: dict[str, dict[str, int]] = {}
    for outcome in "passed", "failed", "skipped":
        for report in terminalreporter.stats.get(outcome, []):
            for key, peer in getattr(report, "user_properties", ()):
                if key == "peer" and (report.when == "call" or outcome != "passed"):
                    counts.setdefault(peer, {}).setdefault(outcome, 0)
                    counts[peer][outcome] += 1
    for peer, of in sorted(counts.items()):
        terminalreporter.write_line(f"beside {peer}: " + ", ".join(f"{n} {outcome}" for outcome, n in of.items()))
