"""Tests of tools/site: what it writes holds together, its search finds, and what is broken is named."""

import html
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import pytest

pytest.importorskip("markdown_it", reason="the site needs Debian's python3-markdown-it")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Names of Chromium on Debian and elsewhere.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def build(output, root=ROOT):
    return subprocess.run(
        ["/usr/bin/python3", str(ROOT / "tools/site"), f"--root={root}", str(output)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    output = tmp_path_factory.mktemp("site")
    done = build(output)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"site: \d+ pages in .*\n", done.stdout)
    return output


class Elements(html.parser.HTMLParser):
    """Keeps (tag, attributes) of every element, and the text."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.text = [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): Elements(path) for path in sorted(site.rglob("*.html"))}


def test_every_document_has_a_page_in_the_navigation(site, pages):
    linked = {attributes.get("href") for tag, attributes in pages["index.html"].elements if tag == "a"}
    for source in ROOT.glob("docs/*.md"):
        assert f"docs/{source.stem}.html" in linked
    for source in ROOT.glob("examples/*/README.md"):
        assert f"examples/{source.parent.name}/index.html" in linked
    assert {"CONTRIBUTING.html", "reference/job.html", "errors/exit_2.html"} <= linked


def test_every_link_and_anchor_leads_somewhere(site, pages):
    ids = {name: {attributes["id"] for _, attributes in page.elements if "id" in attributes}
           for name, page in pages.items()}
    checked = 0
    for name, page in pages.items():
        for _, attributes in page.elements:
            for target in filter(None, (attributes.get("href"), attributes.get("src"))):
                if re.match("https?:|mailto:", target):
                    continue
                path, _, anchor = target.partition("#")
                path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
                assert (site / path).is_file(), (name, target)
                assert not anchor or urllib.parse.unquote(anchor) in ids[path], (name, target)
                checked += 1
    assert checked > 5000


def test_no_page_loads_anything_from_a_network(site, pages):
    for name, page in pages.items():
        for tag, attributes in page.elements:
            for key, value in attributes.items():
                if key in ("src", "srcset", "poster", "data", "style") or key == "href" and tag != "a":
                    assert "//" not in (value or ""), (name, tag, value)
    for path in [*site.glob("*.css"), site / "site.js", site / "search.js"]:
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttpRequest", path.read_text()), path


def test_headings_have_the_anchors_of_github(pages):
    ids = {attributes.get("id") for tag, attributes in pages["docs/cluster.html"].elements if tag in ("h1", "h2", "h3")}
    assert "under-torchrun-mpirun-srun" in ids


def test_two_headings_of_one_name_have_two_anchors():
    code = ("import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True\n"
            "from site_builder.page import Slugs\n"
            "slugs = Slugs()\n"
            "print([slugs.make(each) for each in ('A b', 'A, B!', 'a-b', '`x_y`: 表 z', 'a-b-1')])")
    done = subprocess.run(
        ["/usr/bin/python3", "-c", code, str(ROOT / "tools")], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "['a-b', 'a-b-1', 'a-b-2', 'x_y-表-z', 'a-b-1-1']\n"


def test_every_message_and_field_of_the_job_is_in_the_manual(site, pages):
    from google.protobuf.descriptor import FieldDescriptor
    from weir.protos import job_pb2

    ids = {attributes["id"] for name, page in pages.items() if name.startswith("reference/")
           for _, attributes in page.elements if "id" in attributes}
    todo, seen = [job_pb2.JobConfig.DESCRIPTOR], set()
    while todo:
        message = todo.pop()
        if message.full_name in seen or not message.full_name.startswith("weir.v1."):
            continue
        seen.add(message.full_name)
        short = message.full_name[len("weir.v1."):]
        assert short in ids
        for field in message.fields:
            assert f"{short}.{field.name}" in ids
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                todo.append(field.message_type)
            elif field.type == FieldDescriptor.TYPE_ENUM and field.enum_type.full_name.startswith("weir.v1."):
                name = field.enum_type.full_name[len("weir.v1."):]
                assert {f"{name}.{each.name}" for each in field.enum_type.values} <= ids
    assert len(seen) > 100


def test_the_manual_says_type_default_comment_and_agreement(site):
    text = (site / "reference/job.html").read_text(encoding="utf-8")
    field = text[text.index('<dt id="Train.threads">'):]
    field = re.sub("<[^>]*>", "", field[:field.index("</dd>")])
    assert "int32, default 0, may differ between processes" in field
    assert "Threads of this process; 0 = all cores." in field
    assert '<a href="optimizer.html#Optimizer">' in text


def test_names_of_documents_sections_and_fields_are_links(site):
    assert '<a href="../../docs/program.html#updates-step-scope-role-optimize"><code>docs/program.md</code></a>' in (
        site / "examples/fashion_mnist/index.html").read_text(encoding="utf-8")
    assert '<a href="../reference/job.html#Train.lanes"><code>train.lanes</code></a>' in (
        site / "docs/errors.html").read_text(encoding="utf-8")


def test_commands_with_their_output_are_wrapped(site):
    text = (site / "docs/errors.html").read_text(encoding="utf-8")
    assert text.count('<pre class="code session">') > 20


def test_lines_of_chinese_are_joined_without_a_blank(site):
    text = (site / "README.zh.html").read_text(encoding="utf-8")
    assert '<html lang="zh"' in text and "推荐模型。用户用 protobuf 文本" in text


def test_every_exit_code_has_a_page(site):
    header = (ROOT / "framework/base/exit_code.h").read_text()
    codes = re.findall(r"kExit\w+ = (\d+)", header)
    assert len(codes) >= 5
    for code in codes:
        assert (site / f"errors/exit_{code}.html").is_file()
    assert "<code>INVALID_ARGUMENT</code>" in (site / "errors/exit_2.html").read_text()


def test_the_same_sources_give_the_same_bytes(site, tmp_path):
    assert build(tmp_path / "again").returncode == 0
    files = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*")
                           if path.is_file())
    assert [each for each in files if (site / each).read_bytes() != (tmp_path / "again" / each).read_bytes()] == []


# -------------------------------------------------------------------------------------------------------------- search


def browse(url):
    """Returns the page as it is when its scripts have run."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here (apt-get install chromium): the search is not run")
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--virtual-time-budget=3000", "--dump-dom", url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        timeout=120)
    assert done.returncode == 0
    return done.stdout


# What must be among the first five sections for some words.
FOUND = {
    "min_count": "docs/data.html#ids",
    "train.epochs": "reference/job.html#Train.epochs",
    "data.ids.min_count": "reference/job.html#IdTransform.min_count",
    "exit code 3": "errors/exit_3.html#exit-code-3",
    "torchrun mpirun srun": "docs/cluster.html#under-torchrun-mpirun-srun",
    "参数服务器": "README.zh.html#weir",
    "SASRec": "examples/movielens/index.html#sasrec",
    "no file matches": "docs/errors.html#no-file-matches",
}


def test_search_finds(site, tmp_path):
    """Runs the search for all words in one page."""
    (tmp_path / "probe.html").write_text(
        f"<!doctype html><meta charset=utf-8><script src='{(site / 'index.js').as_uri()}'></script>"
        f"<script src='{(site / 'search.js').as_uri()}'></script><pre id=found></pre><script>"
        "document.getElementById('found').textContent = JSON.stringify("
        f"{json.dumps([*FOUND, 'epochs zebrafish', ' '])}.map((query) => weirFind(weirIndex, query)"
        ".map((each) => each.page + '#' + each.anchor)))</script>", encoding="utf-8")
    text = browse((tmp_path / "probe.html").as_uri())
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', text)[1]))
    for (query, first), links in zip(FOUND.items(), found):
        assert first in links[:5], query
    assert found[len(FOUND):] == [[], []]


def test_the_page_of_results_shows_what_is_found(site):
    text = browse(f"{(site / 'search.html').as_uri()}?q=train.epochs")
    links = re.findall(r'<li><a href="([^"]+)">', text[text.index('<ol id="found">'):text.index("</ol>")])
    assert "reference/job.html#Train.epochs" in links[:5]
    assert re.search(r'id="found-count"[^>]*>\d+ sections?', text) and "<mark>" in text


def test_search_takes_markup_as_text(site):
    text = browse(f"{(site / 'search.html').as_uri()}?q={urllib.parse.quote('<img src=x onerror=alert(1)>')}")
    assert "Nothing has all of these words" in text and "<img" not in text


def test_every_section_is_in_the_index(site, pages):
    text = (site / "index.js").read_text(encoding="utf-8")
    assert text.startswith("window.weirIndex = ") and text.endswith(";\n")
    index = json.loads(text[len("window.weirIndex = "):-2])
    there = {(index["pages"][page][0], anchor) for page, anchor, _, _ in index["sections"]}
    for name, page in pages.items():
        if name.startswith("docs/"):
            for tag, attributes in page.elements:
                if re.fullmatch("h[1-6]", tag) and "id" in attributes:
                    assert (name, attributes["id"]) in there


# ------------------------------------------------------------------------------------------------- what cannot be built


@pytest.fixture
def tree(tmp_path):
    """A tree with the real files and documents of its own."""
    root = tmp_path / "tree"
    root.mkdir()
    for each in ROOT.iterdir():
        if each.name != "docs" and not each.name.startswith((".", "bazel-")):
            (root / each.name).symlink_to(each)
    shutil.copytree(ROOT / "docs", root / "docs")
    return root


@pytest.mark.parametrize("text, wrong", [
    ("# A\n\nSee [b](nowhere.md).\n",
     "docs/made_up.md:3: broken link 'nowhere.md': there is no docs/nowhere.md"),
    ("# A\n\nSee\n[b\nc](../tools/nothing) now.\n",
     "docs/made_up.md:5: broken link '../tools/nothing': there is no tools/nothing"),
    ("# A\n\n| a | b |\n|---|---|\n| c | d |\n| e | [f](data.md#no-such) |\n",
     "docs/made_up.md:6: broken anchor 'data.md#no-such': docs/data.md has #data, #formats, "),
    ("# A\n\n- b\n\n  - [c](#none)\n\n## D\n",
     "docs/made_up.md:5: broken anchor '#none': docs/made_up.md has #a, #d"),
    ("# A\n\n![a picture](picture.png)\n",
     "docs/made_up.md:3: broken link 'picture.png': there is no docs/picture.png"),
    ("# A\n\nThe [tools](../tools)\n",
     "docs/made_up.md:3: broken link '../tools': tools has no README.md, so there is no page of it"),
    ("# A\n\nText\n(`docs/data.md`, \"No such part\").\n",
     'docs/made_up.md:4: docs/data.md has no section "No such part"'),
])
def test_what_is_broken_is_named_with_file_and_line(tree, tmp_path, text, wrong):
    (tree / "docs/made_up.md").write_text(text)
    done = build(tmp_path / "out", tree)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith(wrong) and len(lines) == 2
    assert lines[1] == "site: 1 broken links, anchors or names of sections"


def test_a_comment_that_names_a_section_that_is_not_there_is_named(tree, tmp_path):
    (tree / "proto").unlink()
    shutil.copytree(ROOT / "proto", tree / "proto")
    path = tree / "proto/job.proto"
    lines = path.read_text().split("\n")
    at = lines.index("  // Passes over data.train.")
    lines[at] = '  // Passes over data.train (docs/data.md, "Formatted").'
    path.write_text("\n".join(lines))
    done = build(tmp_path / "out", tree)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f'proto/job.proto:{at + 1}: docs/data.md has no section "Formatted"'


def test_a_document_that_is_whole_is_built(tree, tmp_path):
    (tree / "docs/made_up.md").write_text(
        "# A\n\n[b](data.md#ids) [c](#a) [d](../examples/flights) <https://example.org> <b>&amp;\n\n    x < y\n")
    done = build(tmp_path / "out", tree)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out/docs/made_up.html").read_text()
    assert '<a href="data.html#ids">b</a> <a href="#a">c</a> <a href="../examples/flights/index.html">d</a>' in text
    assert "&lt;b&gt;&amp;" in text and "x &lt; y" in text
    assert 'href="docs/made_up.html"' in (tmp_path / "out/index.html").read_text()


def test_pictures_are_copied_and_html_is_text(tree, tmp_path):
    (tree / "docs/picture.png").write_bytes(b"\x89PNG")
    (tree / "docs/made_up.md").write_text(
        "# A\n\n<!-- not shown -->\n![a](picture.png) H<sub>2</sub>O <script src=https://example.org></script>\n\n"
        "<details>\n<summary>more</summary>\n\nText\n\n</details>\n\n<img src=https://example.org>\n")
    done = build(tmp_path / "out", tree)
    assert done.returncode == 0, done.stderr
    page = Elements(tmp_path / "out/docs/made_up.html")
    assert [attributes["src"] for tag, attributes in page.elements if tag == "img"] == ["../pictures/docs/picture.png"]
    assert (tmp_path / "out/pictures/docs/picture.png").read_bytes() == b"\x89PNG"
    assert {"sub", "details", "summary"} <= {tag for tag, _ in page.elements}
    assert not [tag for tag, attributes in page.elements if "example.org" in str(attributes)]
    assert "not shown" not in "".join(page.text)


def test_a_file_that_is_no_text_cannot_be_linked_to(tree, tmp_path):
    (tree / "docs/data.npz").write_bytes(b"\xff\xfe\x00")
    (tree / "docs/made_up.md").write_text("# A\n\n[b](data.npz)\n")
    done = build(tmp_path / "out", tree)
    assert done.returncode == 1 and "docs/data.npz, which a document links to, is neither text" in done.stderr


def test_a_directory_with_files_of_others_stays_as_it_is(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = build(tmp_path)
    assert done.returncode == 1 and "files that are not of this program" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]
