"""Pages made of Markdown: CommonMark with tables, as GitHub shows it, by markdown-it."""

from __future__ import annotations

import html
import re
from typing import Callable, Iterator, Optional

from markdown_it import MarkdownIt
from markdown_it.token import Token

from site_builder import highlight
from site_builder.page import Heading, Page, Section, Slugs, anchor_link

# Takes a target as the document has it and returns the link from the page, or None if it is broken.
ResolveLink = Callable[[str, int], Optional[str]]
# Takes the text of inline code, and the section that is named behind it (else ""); returns a link or None.
ResolveCode = Callable[[str, str, int], Optional[str]]

# The section that is named behind a document: `docs/data.md`, "Streams" or (`docs/data.md`, "Streams").
_SECTION = re.compile(r',?\s+\(?"([^"]+)"')


# HTML that pages may have: these tags without attributes, and comments, which are left out.
_TAGS = re.compile(r"(?:[^<>]|</?(?:br|details|kbd|sub|summary|sup)\s*/?>)*")
_COMMENTS = re.compile(r"<!--.*?-->\s*", re.S)


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _raw(text: str) -> str:
    """Returns HTML of a document as it may be in a page: what else it has shows as text."""
    text = _COMMENTS.sub("", text)
    return text if _TAGS.fullmatch(text) else html.escape(text, quote=False)


def text_of(token: Token) -> str:
    """Returns the text of an inline token, without marks."""
    parts = []
    for child in token.children or []:
        if child.type in ("text", "code_inline"):
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
    return "".join(parts)


def _with_lines(token: Token) -> Iterator[tuple[int, Token, int]]:
    """Yields (index, child, line) of an inline token; lines are counted from 1."""
    assert token.map is not None
    line = token.map[0] + 1
    for index, child in enumerate(token.children or []):
        yield index, child, line
        if child.type in ("softbreak", "hardbreak"):
            line += 1
        elif child.type == "code_inline":
            # An end of line inside code has become a blank; where it was is not known.
            continue


def _is_between_signs(children: list[Token], index: int) -> bool:
    """Returns whether a character beside a child is Chinese."""
    before = "".join(each.content for each in children[:index])
    after = "".join(each.content for each in children[index + 1:])
    return bool(re.search(r"[\u3000-\u9fff\uff00-\uffef]$", before) or re.match(r"[\u3000-\u9fff\uff00-\uffef]", after))


class Document:
    """A Markdown file: parsed at once, rendered when all pages are known."""

    def __init__(self, page: Page, text: str) -> None:
        self.page = page
        self._parser = _parser()
        self._tokens = self._parser.parse(text)
        self._lines = text.split("\n")
        self._read()

    def _read(self) -> None:
        """Finds headings, phrases, and the text of sections."""
        slugs = Slugs()
        section = Section(self.page.title, "", "")
        parts: list[str] = []

        def finish() -> None:
            section.text = " ".join(" ".join(parts).split())
            if section.text or section.anchor:
                self.page.sections.append(section)

        for index, token in enumerate(self._tokens):
            if token.type == "heading_open":
                text = text_of(self._tokens[index + 1])
                assert token.map is not None
                heading = Heading(int(token.tag[1]), text, slugs.make(text), token.map[0] + 1)
                token.attrSet("id", heading.anchor)
                if not self.page.headings:
                    self.page.title = text
                self.page.headings.append(heading)
                finish()
                section, parts = Section(text, heading.anchor, ""), []
            elif token.type == "inline":
                self._read_phrase(index, token)
                if self._tokens[index - 1].type != "heading_open":
                    parts.append(text_of(token))
            elif token.type in ("fence", "code_block"):
                parts.append(token.content)
        finish()

    def _read_phrase(self, index: int, token: Token) -> None:
        children = token.children or []
        if self._tokens[index - 1].type == "td_open" and self._tokens[index - 2].type == "tr_open":
            self.page.phrases.add(text_of(token))
        for at, child in enumerate(children):
            # The first child is an empty text where a paragraph begins with a mark.
            if child.type in ("strong_open", "em_open") and not any(each.content for each in children[:at]):
                self.page.phrases.add(children[at + 1].content.rstrip(".:"))

    def line_of(self, target: str, line: int) -> int:
        """Returns the first line from this one on that has the text: a link over several lines ends in a later one."""
        for number in range(line, min(line + 12, len(self._lines) + 1)):
            if target in self._lines[number - 1]:
                return number
        return line

    def render(self, link: ResolveLink, code: ResolveCode) -> None:
        """Fills the page's body."""
        for token in self._tokens:
            if token.type == "inline":
                self._resolve(token, link, code)
        self._parser.add_render_rule("fence", lambda _, tokens, at, *rest: highlight.code(
            tokens[at].content, tokens[at].info.strip().split(" ")[0]))
        self._parser.add_render_rule("code_block", lambda _, tokens, at, *rest: highlight.code(tokens[at].content))
        for kind in ("html_block", "html_inline"):
            self._parser.add_render_rule(kind, lambda _, tokens, at, *rest: _raw(tokens[at].content))
        self._parser.add_render_rule("table_open", lambda *_: '<div class="table"><table>\n')
        self._parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
        self._parser.add_render_rule("heading_close", lambda _, tokens, at, *rest: (
            f"{anchor_link(tokens[at - 2].attrs['id'])}</{tokens[at].tag}>\n"))
        self.page.body = self._parser.renderer.render(self._tokens, self._parser.options, {})

    def _resolve(self, token: Token, link: ResolveLink, code: ResolveCode) -> None:
        children = token.children or []
        replaced: list[Token] = []
        inside = False
        for index, child, line in _with_lines(token):
            if child.type == "softbreak" and self.page.language == "zh" and _is_between_signs(children, index):
                # An end of line would show as a blank, which Chinese does not have between signs.
                continue
            if child.type == "link_open":
                inside = True
                target = str(child.attrs["href"])
                found = link(target, self.line_of(target, line))
                if found is not None:
                    child.attrs["href"] = found
            elif child.type == "link_close":
                inside = False
            elif child.type == "image":
                target = str(child.attrs["src"])
                found = link(target, self.line_of(target, line))
                if found is not None:
                    child.attrs["src"] = found
            elif child.type == "code_inline" and not inside:
                after = "".join("\n" if each.type == "softbreak" else each.content
                                for each in children[index + 1:index + 4] if each.type in ("text", "softbreak"))
                named = _SECTION.match(after)
                section = " ".join(named[1].split()) if named else ""
                found = code(child.content, section, self.line_of(child.content, line))
                if found is not None:
                    opening = Token("link_open", "a", 1)
                    opening.attrSet("href", found)
                    replaced += [opening, child, Token("link_close", "a", -1)]
                    continue
            replaced.append(child)
        token.children = replaced
