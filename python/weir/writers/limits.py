"""Names and numbers that files of parameters can have, as in the programs."""

from __future__ import annotations

__all__ = ["DEFAULT_SHARDS", "check_name", "check_shards", "check_step"]

# Logical shards of a table whose job says nothing else (Table.logical_shards).
DEFAULT_SHARDS = 4096

_MOST_STEPS = 1 << 60
_MOST_SHARDS = 1 << 20


def check_name(kind: str, name: object) -> None:
    """Raises TypeError or ValueError unless `name` can be one of a table, variable or state."""
    if not isinstance(name, str):
        raise TypeError(f"names of {kind}s are strings, got {name!r}")
    if not name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a {kind}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r} is no name of a {kind}: UTF-8 cannot hold it") from None


def check_step(step: int) -> None:
    """Raises TypeError or ValueError for a number that no step has."""
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError(f"step is an integer, got {step!r}")
    if not 0 <= step <= _MOST_STEPS:
        raise ValueError(f"step is {step}; steps run from 0 to {_MOST_STEPS}")


def check_shards(table: str, shards: int) -> None:
    """Raises TypeError or ValueError for a number of logical shards that no table has."""
    if isinstance(shards, bool) or not hasattr(shards, "__index__"):
        raise TypeError(f"logical_shards of table '{table}' is an integer, got {shards!r}")
    if not 1 <= shards <= _MOST_SHARDS or shards & (shards - 1):
        raise ValueError(f"table '{table}': logical_shards is a power of two up to {_MOST_SHARDS}, got {shards}")
