"""Suggests a name for one that does not exist, by the rules of the C++ programs (framework/base/textproto.h)."""

from __future__ import annotations

from typing import Sequence

__all__ = ["did_you_mean", "nearest_name"]

# Known names that a message lists: as many as a person reads.
_SHOWN = 12
# A longer name is no misspelling.
_LONGEST = 200


def _distance(a: str, b: str) -> int:
    """Counts insertions, deletions, replacements and swaps of neighbours; upper and lower case are equal."""
    a, b = a.lower(), b.lower()
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if i == 0 or j == 0:
                rows[i][j] = i + j
                continue
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


def nearest_name(name: str, known: Sequence[str]) -> str:
    """Returns the known name nearest to `name`, or "" if none is near."""
    if len(name) > _LONGEST:
        return ""
    best, best_distance = "", max(1, (len(name) + 1) // 3) + 1
    for candidate in known:
        if len(candidate) >= len(name) + best_distance:
            continue
        distance = _distance(name, candidate)
        if distance < best_distance and distance < len(candidate):
            best, best_distance = candidate, distance
    return best


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Returns " (did you mean 'x'?)", or "; known: ..." if no known name is near, to be appended to a message."""
    near = nearest_name(name, known)
    if near:
        return f" (did you mean '{near}'?)"
    if not known:
        return ""
    return f"; known: {', '.join(known[:_SHOWN])}{', ...' if len(known) > _SHOWN else ''}"
