"""The frame of every page: head, navigation, search, table of contents."""

from __future__ import annotations

import html
import itertools

from site_builder.page import Page, link, relative

SEARCH = """<h1>Search</h1>
<p id="found-count" role="status">Type words into the field above.</p>
<ol id="found"></ol>
<noscript><p>The search needs JavaScript.</p></noscript>
"""

# What the navigation calls a page in another language.
_LANGUAGES = {"zh": "中文"}

_PAGE = """<!doctype html>
<html lang="{language}" data-root="{root}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="{root}style.css">
<script defer src="{root}search.js"></script>
<script defer src="{root}site.js"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<label class="menu" for="menu">Menu</label>
<a class="name" href="{index}">Weir</a>
<form action="{root}search.html" role="search" autocomplete="off">
<input type="search" name="q" placeholder="Search ( / )" aria-label="Search">
<ul id="suggestions" hidden></ul>
</form>
</header>
<input type="checkbox" id="menu" aria-label="Show the menu">
<div class="columns">
<nav class="pages" aria-label="Pages">
{pages}</nav>
<main id="content">
{contents}{body}</main>
</div>
</body>
</html>
"""


def _pages(page: Page, pages: list[Page]) -> str:
    """Returns the navigation, where the page itself is marked."""
    parts = []
    for group, members in itertools.groupby((each for each in pages if each.group), key=lambda each: each.group):
        parts.append(f"<h2>{html.escape(group)}</h2>\n<ul>\n")
        for each in members:
            mark = ' aria-current="page"' if each is page else ""
            target = html.escape(relative(each.path, page.path))
            title = _LANGUAGES.get(each.language, each.title)
            parts.append(f'<li><a href="{target}"{mark}>{html.escape(title)}</a></li>\n')
        parts.append("</ul>\n")
    return "".join(parts)


def _contents(page: Page) -> str:
    """Returns the table of contents: headings of the second and third level."""
    shown = [each for each in page.headings if each.level in (2, 3)]
    if len(shown) < 2:
        return ""
    links = [(each.level, link(f"{page.path}#{each.anchor}", page.path, html.escape(each.text))) for each in shown]
    items = "".join(f'<li class="level{level}">{each}</li>\n' for level, each in links)
    title = "本页内容" if page.language == "zh" else "On this page"
    return (f'<nav class="contents" aria-label="{title}"><details><summary>{title}</summary>\n'
            f"<ul>\n{items}</ul>\n</details></nav>\n")


def html_of(page: Page, pages: list[Page]) -> str:
    """Returns the file of a page."""
    root = relative("x", page.path).removesuffix("x")
    title = page.title if page.title == "Weir" else f"{page.title} - Weir"
    return _PAGE.format(
        language=page.language, root=root, title=html.escape(title), index=relative("index.html", page.path),
        pages=_pages(page, pages), contents=_contents(page), body=page.body)
