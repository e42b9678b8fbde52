"""Builds the site: collects pages, resolves links, writes files, checks what was written."""

from __future__ import annotations

import html.parser
import json
import pathlib
import posixpath
import re
import shutil
from typing import Optional

from site_builder import exit_codes, highlight, layout
from site_builder.markdown import Document
from site_builder.page import Page, Section, relative
from site_builder.reference import Reference

# Marks a directory as an output of this program, which it may replace.
_MARK = "weir_site.txt"
# Files that are copied as they are; all others that a page links to are shown as text.
_PICTURES = (".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp")
_EXTERNAL = re.compile(r"^(https?|mailto):")


class SiteError(Exception):
    """The site cannot be built at all."""


def _sources(root: pathlib.Path) -> list[tuple[str, str, str]]:
    """Returns (file, page, group) of every Markdown file, in the order of the navigation."""
    found = [("README.md", "index.html", "Start")]
    found += [(name, name.removesuffix(".md") + ".html", "Start")
              for name in ("README.zh.md", "docs/tutorial.md", "docs/gallery.md") if (root / name).is_file()]
    # In the order in which README lists them; others behind those.
    readme = (root / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^\]]*\]\((docs/[a-z_]+\.md)\)", readme, re.M)
    there = sorted(f"docs/{each.name}" for each in (root / "docs").glob("*.md"))
    for name in dict.fromkeys([*(each for each in listed if each in there), *there]):
        if name not in (each[0] for each in found):
            found.append((name, name.removesuffix(".md") + ".html", "Documents"))
    for each in sorted((root / "examples").glob("*/README.md")):
        found.append((f"examples/{each.parent.name}/README.md", f"examples/{each.parent.name}/index.html", "Examples"))
    found += [(name, name.removesuffix(".md") + ".html", "Project") for name in ("CONTRIBUTING.md", "THIRD_PARTY.md")
              if (root / name).is_file()]
    return found


class _Site:
    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.wrong: list[str] = []
        self.documents: dict[str, Document] = {}
        for source, path, group in _sources(root):
            page = Page(source, path, source, group, "zh" if source.endswith(".zh.md") else "en")
            self.documents[source] = Document(page, (root / source).read_text(encoding="utf-8"))
        self.by_source = {source: each.page for source, each in self.documents.items()}
        self.reference = Reference(root)
        self.by_source.update(self.reference.pages)
        self.exit_codes = exit_codes.pages(root)
        # Pages of files that something links to, by the file.
        self.sources: dict[str, Page] = {}
        # Pictures that a page shows or links to.
        self.pictures: set[str] = set()

    def source_page(self, path: str) -> Page:
        """Returns the page that shows a file of the tree."""
        if path not in self.sources:
            self.sources[path] = Page(path, f"source/{path}.html", path, "")
        return self.sources[path]

    def page_of(self, path: str) -> Optional[Page]:
        """Returns the page for a path of the tree; None if the tree does not have it. Directories have their README."""
        for each in (path, posixpath.join(path, "README.md")):
            if each in self.by_source:
                return self.by_source[each]
        if path == "examples":
            return self.by_source.get("docs/gallery.md", self.by_source["README.md"])
        return self.source_page(path) if (self.root / path).is_file() else None

    def _error(self, page: Page, line: int, text: str) -> None:
        self.wrong.append(f"{page.source}:{line}: {text}")

    def link(self, page: Page, target: str, line: int) -> Optional[str]:
        """Resolves a link of a document; what is wrong is kept."""
        if _EXTERNAL.match(target):
            return None
        path, mark, anchor = target.partition("#")
        if path:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), path))
        if path.startswith("..") or path and not (self.root / path).exists():
            self._error(page, line, f"broken link '{target}': there is no {path}")
            return None
        if path.endswith(_PICTURES):
            self.pictures.add(path)
            return relative(f"pictures/{path}", page.path)
        found = self.page_of(path) if path else page
        if found is None:
            self._error(page, line, f"broken link '{target}': {path} has no README.md, so there is no page of it")
            return None
        if mark and not found.has_anchor(anchor):
            near = ", ".join(f"#{each.anchor}" for each in found.headings[:40])
            self._error(page, line, f"broken anchor '{target}': {found.source} has {near or 'no anchors'}")
            return None
        return relative(found.path + mark + anchor, page.path)

    def mention(self, page: Page, name: str, section: str, line: int) -> Optional[str]:
        """Resolves the name of a document in the text, and the section behind it; None if it is no document."""
        for path in (posixpath.normpath(posixpath.join(posixpath.dirname(page.source), name)), name):
            if path in self.by_source or (path.endswith(".textproto") and (self.root / path).is_file()):
                break
        else:
            return None
        found = self.page_of(path)
        assert found is not None
        anchor = self._section(found, section)
        if section and anchor is None:
            self._error(page, line, f'{path} has no section "{section}"')
            anchor = ""
        return relative(f"{found.path}#{anchor}" if anchor else found.path, page.path)

    @staticmethod
    def _section(page: Page, words: str) -> Optional[str]:
        """Returns the anchor of a section; "" for a phrase in bold, which has none."""
        if not words:
            return ""
        folded = words.rstrip(".,").casefold()
        for fits in (str.__eq__, str.startswith, str.__contains__):
            for heading in page.headings:
                if fits(heading.text.casefold(), folded):
                    return heading.anchor
        return "" if any(folded in each.casefold() for each in page.phrases) else None

    def code(self, page: Page, text: str, section: str, line: int) -> Optional[str]:
        """Resolves inline code: names of documents and example files, and fields of the job."""
        if re.fullmatch(r"[\w./-]+\.(md|proto|textproto)", text):
            return self.mention(page, text, section, line)
        if re.fullmatch(r"[a-z_]+(\[\d+\])?(\.[a-z_]+(\[\d+\])?)+", text):
            target = self.reference.field(text)
            return None if target is None else relative(target, page.path)
        return None

    def render(self) -> list[Page]:
        """Fills all bodies and returns all pages, in the order of the navigation."""
        for document in self.documents.values():
            page = document.page
            document.render(lambda target, line, page=page: self.link(page, target, line),
                            lambda text, section, line, page=page: self.code(page, text, section, line))
        for page in self.reference.pages.values():
            self.source_page(page.source)
        self.reference.render(lambda name, section, path, line: self.mention(
            next(each for each in self.reference.pages.values() if each.path == path), name, section, line))
        self.source_page(exit_codes.SOURCE)
        exit_codes.render(self.root, self.exit_codes, self.by_source)
        for path in sorted(self.root.glob("examples/*/*.textproto")):
            self.source_page(path.relative_to(self.root).as_posix())
        for path, page in self.sources.items():
            try:
                text = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise SiteError(f"{path}, which a document links to, is neither text nor a picture") from None
            page.body = f"<h1>{html.escape(path)}</h1>\n{highlight.file(path, text)}"
            if path.endswith(".textproto"):
                page.sections.append(Section(path, "", " ".join(text.split())))
        documents = [each.page for each in self.documents.values()]
        search = Page("", "search.html", "Search", "", body=layout.SEARCH)
        cut = next((at for at, each in enumerate(documents) if each.group in ("Examples", "Project")), len(documents))
        return [*documents[:cut], *self.reference.pages.values(), *self.exit_codes, *documents[cut:],
                *self.sources.values(), search]


class _References(html.parser.HTMLParser):
    """Collects what a written page refers to, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src", "action") and value is not None:
                self.targets.append(value)
            elif name == "id" and value is not None:
                self.ids.append(value)


def check(output: pathlib.Path) -> list[str]:
    """Returns what is wrong in the written pages: links and anchors to nothing, ids that stand twice."""
    read = {}
    for path in sorted(output.rglob("*.html")):
        parser = _References()
        parser.feed(path.read_text(encoding="utf-8"))
        read[path.relative_to(output).as_posix()] = parser
    wrong = []
    for name, parser in read.items():
        twice = sorted({each for each in parser.ids if parser.ids.count(each) > 1})
        wrong += [f"{name}: the id '{each}' stands twice" for each in twice]
        for target in parser.targets:
            if _EXTERNAL.match(target):
                continue
            path, _, anchor = target.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if not (output / path).is_file():
                wrong.append(f"{name}: broken link '{target}'")
            elif anchor and path in read and anchor not in read[path].ids:
                wrong.append(f"{name}: broken anchor '{target}'")
    return wrong


def _index(pages: list[Page]) -> str:
    """Returns the script with what search reads: [page, title] and [number of the page, anchor, title, text]."""
    named = [each for each in pages if each.sections]
    sections = [[number, each.anchor, each.title, each.text]
                for number, page in enumerate(named) for each in page.sections]
    data = {"pages": [[each.path, each.title] for each in named], "sections": sections}
    return f"window.weirIndex = {json.dumps(data, ensure_ascii=False, separators=(',', ':'))};\n"


def _prepare(output: pathlib.Path) -> None:
    if output.exists() and not output.is_dir():
        raise SiteError(f"{output} is a file")
    if output.is_dir() and any(output.iterdir()):
        if not (output / _MARK).is_file():
            raise SiteError(f"{output} has files that are not of this program; give it an empty directory")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARK).write_text("Made by tools/site, which replaces this directory.\n", encoding="utf-8")


def build(root: pathlib.Path, output: pathlib.Path) -> tuple[int, list[str]]:
    """Builds the site of a tree. Returns the number of pages, and what is wrong as file:line: text.

    Raises:
        SiteError: the tree or the output cannot be used.
    """
    if not (root / "README.md").is_file():
        raise SiteError(f"{root} has no README.md")
    site = _Site(root)
    pages = site.render()
    _prepare(output)
    for page in pages:
        path = output / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(layout.html_of(page, pages), encoding="utf-8")
    for picture in sorted(site.pictures):
        (output / "pictures" / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / picture, output / "pictures" / picture)
    assets = pathlib.Path(__file__).parent
    for name in ("site.js", "search.js"):
        shutil.copyfile(assets / name, output / name)
    style = (assets / "style.css").read_text(encoding="utf-8") + highlight.style()
    (output / "style.css").write_text(style, encoding="utf-8")
    (output / "index.js").write_text(_index(pages), encoding="utf-8")
    return len(pages), site.wrong or check(output)
