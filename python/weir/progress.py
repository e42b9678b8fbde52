"""Reads the lines in which a training reports its progress, and shows them."""

from __future__ import annotations

import contextlib
import re
import sys
import time
import warnings
from typing import Any, Callable, Optional, TextIO, Union

__all__ = ["Display", "Figures", "parse", "show"]

# Figures of one line, by name: {"step": 20, "loss": 0.69, "auc": 0.71}.
Figures = dict[str, Any]

_FIGURE = re.compile(r"(\S+)=(-?\d+|-?\d*\.?\d+(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf)(?=\s|$)")
_NOTE = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_UNDEFINED = re.compile(r"(\S+) is undefined: ")
_KINDS = (("step=", "progress"), ("eval step=", "evaluation"), ("done ", "done"))


def parse(line: str) -> Optional[tuple[str, Figures]]:
    """Reads a line of the chief.

    Returns:
        "progress", "evaluation" or "done" with the figures, or None for another line. Whole numbers are int, others
        float. A figure that the line calls undefined is NaN, and `notes` has the texts in parentheses.
    """
    kind = next((kind for begin, kind in _KINDS if line.startswith(begin)), None)
    if kind is None:
        return None
    notes: list[str] = _NOTE.findall(line) if kind == "evaluation" else []
    figures: Figures = {}
    for name, value in _FIGURE.findall(_NOTE.sub("", line) if notes else line):
        figures[name] = int(value) if value.lstrip("-").isdigit() else float(value)
    if notes:
        for note in notes:
            undefined = _UNDEFINED.match(note)
            if undefined:
                figures[undefined[1]] = float("nan")
        figures["notes"] = notes
    return kind, figures


class Display:
    """Shows nothing."""

    def progress(self, figures: Figures) -> None:
        """Shows the figures of a progress line, and of the time since the start (`seconds`)."""

    def evaluation(self, figures: Figures) -> None:
        """Shows the figures of an evaluation."""

    def done(self, figures: Figures) -> None:
        """Shows the figures of the last line."""

    def close(self) -> None:
        """Ends the display; called once, also after a failure."""


def _text(figures: Figures) -> str:
    shown = []
    for name, value in figures.items():
        if name == "notes":
            shown += [f"({note})" for note in value]
        elif name != "seconds" and value == value:
            shown.append(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}")
    return " ".join(shown)


class Lines(Display):
    """Prints lines, those of progress at most every few seconds."""

    def __init__(self, out: TextIO, interval: float = 5, clock: Callable[[], float] = time.monotonic):
        """Prints to `out`; progress at most every `interval` seconds by `clock`."""
        self._out = out
        self._interval = interval
        self._clock = clock
        self._next = float("-inf")

    def progress(self, figures: Figures) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + self._interval
            self._print(_text(figures))

    def evaluation(self, figures: Figures) -> None:
        self._print(f"eval {_text(figures)}")

    def done(self, figures: Figures) -> None:
        self._print(f"done {_text(figures)}")

    def _print(self, line: str) -> None:
        # The training goes on when its output can no longer be shown.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self._out, flush=True)


class Bar(Display):
    """A bar of tqdm: the part of the training that is done, with loss and AUC behind it."""

    def __init__(self, tqdm: Any, out: TextIO):
        """Shows a bar of the class `tqdm` in `out`."""
        self._bar = tqdm(total=1.0, desc="training", file=out, mininterval=0,
                         bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}")
        self._postfix: dict[str, Union[int, str]] = {}

    def progress(self, figures: Figures) -> None:
        self._put("", figures, ("step", "loss", "auc"))
        seconds, left = figures.get("seconds", 0), figures.get("left_s")
        if left is not None and seconds + left > 0:
            # The estimate varies; a bar does not go back.
            self._bar.n = max(self._bar.n, min(1.0, seconds / (seconds + left)))
        self._bar.refresh()

    def evaluation(self, figures: Figures) -> None:
        # One figure, so that a terminal of 80 columns has room for the bar.
        self._put("eval_", figures, ("auc" if "auc" in figures else "loss",))
        self._bar.refresh()

    def done(self, figures: Figures) -> None:
        self._put("", {"step": figures["steps"]}, ("step",))
        if not figures.get("stopped"):
            self._bar.n = 1.0
        self._bar.set_postfix(self._postfix, refresh=True)

    def close(self) -> None:
        self._bar.close()

    def _put(self, prefix: str, figures: Figures, names: tuple[str, ...]) -> None:
        for name in names:
            if name in figures:
                value = figures[name]
                self._postfix[prefix + name] = f"{value:.4f}" if isinstance(value, float) else value
        self._bar.set_postfix(self._postfix, refresh=False)


def show(enabled: bool) -> Display:
    """Returns a display: a bar in a terminal or a notebook where tqdm is installed, else lines on stderr."""
    if not enabled:
        return Display()
    if sys.stderr.isatty() or _in_notebook():
        try:
            with warnings.catch_warnings():
                # Without ipywidgets tqdm shows a bar of text in a notebook, and warns.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm
        except ImportError:
            pass
        else:
            return Bar(tqdm, sys.stderr)
    return Lines(sys.stderr)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
