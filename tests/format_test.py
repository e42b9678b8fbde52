#!/usr/bin/env python3
"""Tests that every file which git tracks is laid out as CONTRIBUTING.md says: clang-format changes nothing, no line is
longer than 120 characters, none ends in a blank, every file ends in one end of line, and a folder has at most 40."""

import collections
import concurrent.futures
import os
import re
import subprocess
import tempfile
import unittest

# WORKSPACE among the test's files is a link to the real one.
ROOT = os.path.dirname(os.path.realpath("WORKSPACE"))
COLUMNS = 120
FORMATTED = (".h", ".cc", ".c", ".cu", ".cuh", ".proto")
# Files directly in one folder, at most; operators are one file each.
FILES = 40
_OPERATORS = ("ops", "ops/device", "tests/ops")
# Bytes that tests read, and text whose line is one row of a table or one value.
_FREE = re.compile(r"\.(md|npz|bin|txt|golden)$|^tests/fuzz/seeds/|/golden/|/testdata/|^examples/grafana/.*\.json$")


def tracked():
    """Paths from the root; without git, as in an unpacked archive, all files but hidden and built ones."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if listed.returncode == 0:
        return [p for p in listed.stdout.decode().split("\0") if p and os.path.isfile(os.path.join(ROOT, p))]
    found = []
    for directory, below, names in os.walk(ROOT):
        below[:] = [b for b in below if not b.startswith((".", "bazel-"))]
        found += [os.path.relpath(os.path.join(directory, n), ROOT) for n in names]
    return found


def unformatted(root, paths):
    """Those that clang-format would change."""

    def look(some):
        done = subprocess.run(
            ["clang-format", "--dry-run", "--Werror", *some], cwd=root, stderr=subprocess.PIPE, text=True
        )
        found = set(re.findall(r"^(.+?):\d+:\d+: error: code should be clang-formatted", done.stderr, re.MULTILINE))
        return found if found or done.returncode == 0 else {done.stderr.strip()}

    chunks = [paths[i : i + 40] for i in range(0, len(paths), 40)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return sorted(set().union(*pool.map(look, chunks)))


def long_lines(root, paths):
    """path:line of those that are too long, in text that is not free."""
    found = []
    for path in paths:
        if _FREE.search(path):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                lines = file.read().split("\n")
        except UnicodeDecodeError:
            continue
        found += ["%s:%d" % (path, n) for n, line in enumerate(lines, 1) if len(line) > COLUMNS]
    return found


def untidy(root, paths):
    """path:line of blanks at an end of line, and files without an end of line at their end or with several."""
    found = []
    for path in paths:
        if _FREE.search(path) and not path.endswith(".md"):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue
        found += ["%s:%d" % (path, n) for n, line in enumerate(text.split("\n"), 1) if line != line.rstrip(" \t")]
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            found.append(path)
    return found


def full_folders(paths):
    """Folders with too many files directly in them, with their number."""
    counts = collections.Counter(os.path.dirname(path) for path in paths)
    return sorted("%s: %d" % each for each in counts.items() if each[1] > FILES and each[0] not in _OPERATORS)


class FormatTest(unittest.TestCase):
    def test_clang_format_changes_nothing(self):
        paths = [p for p in tracked() if p.endswith(FORMATTED)]
        self.assertGreater(len(paths), 500)
        self.assertEqual(unformatted(ROOT, paths), [], "run tools/format")

    def test_no_line_is_too_long(self):
        self.assertEqual(long_lines(ROOT, tracked()), [])

    def test_no_line_ends_in_a_blank(self):
        self.assertEqual(untidy(ROOT, tracked()), [])

    def test_no_folder_is_too_full(self):
        self.assertEqual(full_folders(tracked()), [], "divide them by what belongs together")

    def test_each_check_can_fail(self):
        self.assertEqual(full_folders(["a/b/%d.cc" % n for n in range(FILES + 1)] + ["a/c.cc"]), ["a/b: 41"])
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(ROOT, ".clang-format"), encoding="utf-8") as style:
                text = style.read()
            files = {
                ".clang-format": text,
                "good.cc": "int a = 1;\n",
                "bad.cc": "int  a=1;\n",
                "bad.proto": "message A{}\n",
                "long.py": "#" + COLUMNS * "é" + "\n",
                "right.py": COLUMNS * "é" + "\n",
                "blank.py": "a \n",
                "open.py": "a",
            }
            for name, text in files.items():
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            names = sorted(files)
            self.assertEqual(unformatted(root, [n for n in names if n.endswith(FORMATTED)]), ["bad.cc", "bad.proto"])
            self.assertEqual(long_lines(root, names), ["long.py:1"])
            self.assertEqual(untidy(root, names), ["blank.py:1", "open.py"])


if __name__ == "__main__":
    unittest.main()
