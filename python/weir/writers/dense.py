"""Dense variables and their optimizer state, as they are written into checkpoints."""

from __future__ import annotations

import numbers
from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import numpy.typing as npt

from weir.rows import Floats
from weir.writers.batches import as_floats
from weir.writers.limits import check_name

__all__ = ["RATES", "RATES_DIMS", "Variable", "check_states", "state_of", "variable_of"]

# State of learning-rate schedules, which belongs to no variable: of every server, at the element of its number.
RATES = "@LR_SCHEDULE"
RATES_DIMS = (1 << 31,)


class Variable(NamedTuple):
    """A dense variable.

    Attributes:
        dims: its shape.
        values: its elements [n], None for RATES.
        states: state by name: elements [n], or for a count or power any number of floats.
        scalars: names of those states that are counts and powers.
    """

    dims: Tuple[int, ...]
    values: Optional[Floats]
    states: Dict[str, Floats]
    scalars: FrozenSet[str]


def variable_of(name: str, values: npt.ArrayLike, states: Mapping[str, Any], finite: bool) -> Variable:
    """Returns a variable with its state. `values` of RATES mean nothing.

    Raises:
        TypeError: a value is no number.
        ValueError: state has another shape than the variable, or an element is not finite.
    """
    check_name("variable", name)
    check_states(name, states)
    floats = None if name == RATES else as_floats(f"'{name}'", values, finite)
    dims = RATES_DIMS if floats is None else floats.shape
    of = {state: state_of(name, dims, state, given, finite) for state, given in states.items()}
    return Variable(dims, None if floats is None else floats.reshape(-1), {state: f for state, (f, _) in of.items()},
                    frozenset(state for state, (_, is_scalar) in of.items() if is_scalar))


def check_states(name: str, states: object) -> None:
    """Raises TypeError if state of a variable is no dict."""
    if not isinstance(states, Mapping):
        raise TypeError(f"state of '{name}' is a dict from names to arrays or numbers, got {type(states).__name__}")


def state_of(name: str, dims: Tuple[int, ...], state: str, given: Any, finite: bool) -> Tuple[Floats, bool]:
    """Returns the floats of a state [n], and whether it is a count or power. Raises as variable_of."""
    check_name("state", state)
    what = f"state '{state}' of '{name}'"
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        return _scalar(name, what, given, finite), True
    if name == RATES:
        raise TypeError(f"{what} is a number, got {type(given).__name__}")
    array = as_floats(what, given, finite)
    if array.shape != dims:
        raise ValueError(f"{what} has the shape {list(array.shape)}; that of the variable, {list(dims)}, was expected, "
                         "or a number for a count")
    return array.reshape(-1), False


def _scalar(name: str, what: str, given: numbers.Real, finite: bool) -> Floats:
    """Returns a count or power as it is stored: an int of RATES is an int64, in the bits of two floats."""
    if name == RATES and isinstance(given, numbers.Integral):
        if not -(2**63) <= int(given) < 2**63:
            raise ValueError(f"{what} = {given} is no int64")
        return np.array([int(given)], "<i8").view(np.float32)
    try:
        return as_floats(what, float(given), finite).reshape(1)
    except OverflowError:
        raise ValueError(f"{what} = {given} is beyond the greatest float32") from None
