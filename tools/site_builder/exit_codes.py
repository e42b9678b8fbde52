"""Pages of the exit codes, made of framework/base/exit_code.h and of the mistakes in docs/errors.md that name them."""

from __future__ import annotations

import dataclasses
import html
import pathlib
import re

from site_builder.page import Heading, Page, Section, link

SOURCE = "framework/base/exit_code.h"
_MISTAKES = "docs/errors.md"


@dataclasses.dataclass
class ExitCode:
    name: str
    number: int
    meaning: str
    line: int
    # Status codes of Abseil that end a process with it.
    statuses: list[str]

    @property
    def path(self) -> str:
        return f"errors/exit_{self.number}.html"


def read(text: str) -> list[ExitCode]:
    """Returns the codes of the header."""
    codes, comment = [], []
    for number, line in enumerate(text.split("\n"), 1):
        found = re.fullmatch(r"\s*(kExit\w+) = (\d+),", line)
        if found:
            codes.append(ExitCode(found[1], int(found[2]), " ".join(comment), number, []))
            comment = []
        elif re.match(r"\s+// ", line):
            comment.append(line.strip()[3:])
        else:
            comment = []
    for cases, name in re.findall(r"((?:\s*(?:case [\w:]+|default):)+)\s*return (kExit\w+);", text):
        for each in codes:
            if each.name == name:
                each.statuses += re.findall(r"StatusCode::k(\w+)", cases) + ["any other"] * ("default:" in cases)
    return codes


def _status(name: str) -> str:
    """Returns the name that messages have: InvalidArgument is INVALID_ARGUMENT."""
    return name if name == "any other" else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def pages(root: pathlib.Path) -> list[Page]:
    """Returns a page for each code, without bodies."""
    made = []
    for each in read((root / SOURCE).read_text(encoding="utf-8")):
        page = Page(SOURCE, each.path, f"Exit code {each.number}", "Reference")
        page.headings.append(Heading(1, page.title, page.title.lower().replace(" ", "-"), each.line))
        page.sections.append(Section(page.title, page.headings[0].anchor, f"{each.name} {each.meaning}"))
        made.append(page)
    return made


def render(root: pathlib.Path, made: list[Page], documents: dict[str, Page]) -> None:
    """Fills the bodies; `documents` has the pages of Markdown by their files."""
    errors = documents.get(_MISTAKES)
    for code, page in zip(read((root / SOURCE).read_text(encoding="utf-8")), made):
        parts = [f'<h1 id="{page.headings[0].anchor}">{page.title}</h1>\n',
                 f"<p>{html.escape(code.meaning or 'The process is done.')}</p>\n",
                 f"<p><code>{code.name}</code> of {link(f'source/{SOURCE}.html', page.path, SOURCE)}. "
                 f"Status codes that end a process with it: "
                 f"{', '.join(f'<code>{_status(each)}</code>' for each in code.statuses)}.</p>\n"]
        if errors is not None:
            titles = [each for each in errors.headings if each.text.startswith(f"Exit code {code.number}")]
            for each in titles:
                target = f"{errors.path}#{each.anchor}"
                parts.append(f"<p>What to do: {link(target, page.path, html.escape(each.text))}.</p>\n")
            named = [each for each in errors.sections if f"Exit code {code.number}." in each.text]
            if named:
                items = "".join(f"<li>{link(f'{errors.path}#{each.anchor}', page.path, html.escape(each.title))}</li>\n"
                                for each in named)
                parts.append(f"<h2>Mistakes that end with it</h2>\n<ul>\n{items}</ul>\n")
        page.body = "".join(parts)
