"""Colours of code, by Pygments."""

from __future__ import annotations

import html
import re

import pygments
from pygments import lexer, lexers, token
from pygments.formatters import HtmlFormatter

_FORMATTER = HtmlFormatter(nowrap=True)
_LIGHT, _DARK = "xcode", "github-dark"


# The first line of shell in the documents, whose blocks have no language.
_COMMAND = re.compile(
    r"\s*([A-Z_]+=\S+|bazel(-bin)?\b|tools/|examples/|tests/|env/|"
    r"(python3?|weir|export|mkdir|cp|docker|kubectl|mpirun|sbatch|srun|torchrun|launch|trainer|pserver|transpile|for) "
    r")")


class _TextProtoLexer(lexer.RegexLexer):
    """Protobuf text, the format of job files."""

    name = "TextProto"
    tokens = {
        "root": [
            (r"#.*?$", token.Comment.Single),
            (r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])*\'', token.String),
            (r"[A-Za-z_][\w.]*(?=\s*:)", token.Name.Attribute),
            (r"[A-Za-z_][\w.]*(?=\s*\{)", token.Name.Tag),
            (r"\b(true|false)\b|\b[A-Z][A-Z0-9_]+\b", token.Keyword.Constant),
            (r"-?\b\d[\w.+-]*", token.Number),
            (r"\s+", token.Whitespace),
            (r"\w+|.", token.Text),
        ]
    }


def _lexer(language: str, code: str):
    """Returns a lexer for a named language, or for what the code looks like; None for plain text."""
    if language:
        return _TextProtoLexer() if language == "textproto" else lexers.get_lexer_by_name(language)
    lines = [each for each in code.splitlines() if each.strip()]
    settings = sum(bool(re.match(r"\s*(\}|#|[a-z_]+(\s*\{|:\s))", each)) for each in lines)
    if re.search(r"^\s*[a-z_]+ *(\{|:)", code, re.M) and 2 * settings > len(lines):
        return _TextProtoLexer()
    return lexers.get_lexer_by_name("bash") if lines and _COMMAND.match(lines[0]) else None


def code(text: str, language: str = "") -> str:
    """Returns a <pre> of the text."""
    # Commands with what they print: messages are long lines, which are wrapped.
    session = not language and text.startswith("$ ")
    found = lexers.get_lexer_by_name("console") if session else _lexer(language, text)
    inner = html.escape(text, quote=False) if found is None else pygments.highlight(text, found, _FORMATTER)
    return f'<pre class="code{" session" * session}"><code>{inner}</code></pre>\n'


def file(name: str, text: str) -> str:
    """Returns a <pre> of a file of the tree, by its name."""
    ending = name.rpartition(".")[2] if "." in name.rpartition("/")[2] else ""
    language = {"textproto": "textproto", "proto": "protobuf", "py": "python", "yaml": "yaml", "sh": "bash",
                "cc": "cpp", "h": "cpp"}.get(ending, "")
    if not language and text.startswith("#!"):
        language = "python" if "python" in text.split("\n", 1)[0] else "bash"
    if language:
        return code(text, language)
    return f'<pre class="code"><code>{html.escape(text, quote=False)}</code></pre>\n'


def style() -> str:
    """Returns the rules for the colours, light and dark."""
    def rules(name: str) -> str:
        lines = HtmlFormatter(style=name).get_style_defs(".code").splitlines()
        # Backgrounds and line numbers are the site's own.
        return "\n".join(each for each in lines if re.match(r"\.code \.\w+ \{", each))

    return f"{rules(_LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{rules(_DARK)}\n}}\n"
