"""Messages in protobuf's text format, from files that anybody may have written."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format

__all__ = ["parse_text"]


def parse_text(text: str, message: Any, *, allow_unknown_field: bool = False) -> Any:
    """Parses a text into `message`, and returns it.

    Raises:
        text_format.ParseError: the text is wrong, or nested deeper than Python's stack.
    """
    try:
        return text_format.Parse(text, message, allow_unknown_field=allow_unknown_field)
    except RecursionError:
        raise text_format.ParseError("messages are nested too deeply") from None
