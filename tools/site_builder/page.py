"""A page of the site, and what the parts of the builder share."""

from __future__ import annotations

import dataclasses
import html
import posixpath
import re


@dataclasses.dataclass
class Heading:
    level: int
    text: str
    anchor: str
    line: int


@dataclasses.dataclass
class Section:
    """What search finds: a heading, with the text up to the next one."""

    title: str
    anchor: str
    text: str


@dataclasses.dataclass
class Page:
    """One HTML file. Paths are relative to the root of the tree, or of the site, with slashes."""

    # The file that it is made of.
    source: str
    # The HTML file.
    path: str
    title: str
    # Group in the navigation; "" if the page is not in it.
    group: str
    language: str = "en"
    body: str = ""
    headings: list[Heading] = dataclasses.field(default_factory=list)
    # Anchors that are no headings: fields of messages.
    anchors: set[str] = dataclasses.field(default_factory=set)
    sections: list[Section] = dataclasses.field(default_factory=list)
    # Phrases in bold at the beginning of a paragraph or item, or in the first column of a table: they name a place.
    phrases: set[str] = dataclasses.field(default_factory=set)

    def has_anchor(self, anchor: str) -> bool:
        return anchor in self.anchors or any(each.anchor == anchor for each in self.headings)


class Slugs:
    """Makes the anchors of one page from its headings, by GitHub's rules."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def make(self, text: str) -> str:
        """Returns an anchor: lower case, blanks as hyphens, no punctuation; a number for one that is there already."""
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        if slug not in self._used:
            self._used[slug] = 0
            return slug
        unique = slug
        while unique in self._used:
            self._used[slug] += 1
            unique = f"{slug}-{self._used[slug]}"
        self._used[unique] = 0
        return unique


def relative(target: str, page: str) -> str:
    """Returns the link from one page to another, either with an anchor or without."""
    path, mark, anchor = target.partition("#")
    if path == page:
        return f"#{anchor}" if mark else posixpath.basename(path)
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + mark + anchor


def anchor_link(anchor: str) -> str:
    """Returns the sign behind a heading that leads to it."""
    return f' <a class="anchor" href="#{html.escape(anchor)}" aria-label="Link to this section">#</a>'


def link(target: str, page: str, inner: str) -> str:
    """Returns an <a> from a page to a target; `inner` is HTML."""
    return f'<a href="{html.escape(relative(target, page))}">{inner}</a>'
