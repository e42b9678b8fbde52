"""Tests that README.md and README.zh.md say the same: whoever changes one must change the other."""

import collections
import pathlib
import re

import pytest

markdown_it = pytest.importorskip("markdown_it", reason="needs Debian's python3-markdown-it")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Readme:
    """What does not depend on the language."""

    def __init__(self, text):
        tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
        self.structure = [(each.type, each.tag) for each in tokens
                          if re.fullmatch("(heading|table|tr|bullet_list|list_item)_open", each.type)]
        self.blocks = [each.content for each in tokens if each.type in ("fence", "code_block")]
        inline = [child for each in tokens if each.type == "inline" for child in each.children]
        self.links = [child.attrs["href"] for child in inline if child.type == "link_open"]
        self.code = collections.Counter(" ".join(child.content.split()) for child in inline
                                        if child.type == "code_inline")
        text = " ".join(child.content for child in inline if child.type == "text")
        self.numbers = collections.Counter(re.findall(r"\d+(?:[.,]\d+)*", text))
        self.marks = collections.Counter(child.type for child in inline if child.type in ("strong_open", "em_open"))


@pytest.fixture(scope="module")
def both():
    return tuple(Readme((ROOT / name).read_text(encoding="utf-8")) for name in ("README.md", "README.zh.md"))


def test_headings_lists_and_tables_are_the_same(both):
    english, chinese = both
    assert chinese.structure == english.structure


def test_code_blocks_are_the_same_bytes(both):
    english, chinese = both
    assert len(english.blocks) > 10
    assert chinese.blocks == english.blocks


def test_links_are_the_same_and_lead_to_each_other(both):
    english, chinese = both
    assert "README.zh.md" in english.links and "README.md" in chinese.links
    # The order of words may differ.
    assert sorted(set(chinese.links) - {"README.md"}) == sorted(set(english.links) - {"README.zh.md"})
    assert len(chinese.links) == len(english.links)


def test_numbers_and_names_are_the_same(both):
    english, chinese = both
    assert chinese.numbers == english.numbers
    assert chinese.code == english.code


def test_marks_of_bold_and_italics_are_marks(both):
    """A mark beside Chinese punctuation would stay an asterisk."""
    english, chinese = both
    assert chinese.marks == english.marks


def test_the_comparison_can_fail():
    base = "# A\n\nb `c` 1,000 [d](e) **f**\n\n    g\n"
    same = Readme(base)
    for old, new, name in (("# A", "## A", "structure"), ("g", "h", "blocks"), ("(e)", "(x)", "links"),
                           ("`c`", "`x`", "code"), ("1,000", "1,001", "numbers"), ("**f**", "f", "marks")):
        assert getattr(Readme(base.replace(old, new)), name) != getattr(same, name), name
