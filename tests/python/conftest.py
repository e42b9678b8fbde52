"""Each test of other programs and packages names their versions: in the XML of the results, and below them."""

from __future__ import annotations

import functools

import peers
import pytest

_version = functools.cache(peers.version)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in peers.of_module(item.path.stem):
        item.user_properties.append(("peer", f"{name} {_version(name) or 'missing'}"))


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
