#!/usr/bin/env python3
"""Finds circles among files: file A (A.h and its sources) includes B, and B includes A, directly or over others. In
python/weir modules that import each other are such a circle, too."""

import ast
import os
import re
import subprocess
import unittest

# WORKSPACE among the test's files is a link to the real one.
ROOT = os.path.dirname(os.path.realpath("WORKSPACE"))
MOST_CIRCLES = 0
APART = ("tests/", "examples/")
_INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.M)


def circles(needs):
    """Returns the circles of a graph, a dict from node to nodes: sorted lists of nodes that reach each other."""
    number, lowest, path, found = {}, {}, [], []

    def visit(node):
        number[node] = lowest[node] = len(number)
        path.append(node)
        for other in sorted(needs.get(node, ())):
            if other not in number:
                visit(other)
            if other in path:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == number[node]:
            at = path.index(node)
            if len(path) - at > 1:
                found.append(sorted(path[at:]))
            del path[at:]

    for node in sorted(needs):
        if node not in number:
            visit(node)
    return found


def includes(texts):
    """Returns what each file of C++ includes. `texts`: contents by path. "a/b.h" and "a/b.cc" are one file, "a/b"."""
    needs = {}
    for path, text in texts.items():
        own = os.path.splitext(path)[0]
        theirs = {os.path.splitext(each)[0] for each in _INCLUDE.findall(text) if each in texts}
        needs.setdefault(own, set()).update(theirs - {own})
    return needs


def imports(texts):
    """Returns what each module imports. `texts`: contents by path below python/."""
    modules = {os.path.splitext(path)[0].replace("/", "."): path for path in texts}
    needs = {}
    for module, path in modules.items():
        package = module.rpartition(".")[0]
        names = set()
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                origin = ".".join(filter(None, [package if node.level else "", node.module]))
                names |= {origin} | {"%s.%s" % (origin, each.name) for each in node.names}
        needs[module] = names & set(modules) - {module}
    return needs


def listed():
    """Returns the paths of the tracked files that are there; none without git."""
    paths = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout.decode()
    return [each for each in paths.split("\n") if os.path.isfile(os.path.join(ROOT, each))]


def contents(paths, below=""):
    texts = {}
    for path in paths:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            texts[path[len(below):]] = file.read()
    return texts


class FileCirclesTest(unittest.TestCase):
    def test_there_is_none_in_the_tree(self):
        paths = listed()
        if not paths:
            self.skipTest("no git here")
        sources = [each for each in paths if each.endswith((".cc", ".h", ".cu")) and not each.startswith(APART)]
        modules = [each for each in paths if each.endswith(".py") and each.startswith("python/weir/")]
        found = circles(includes(contents(sources))) + circles(imports(contents(modules, "python/")))
        text = "\n".join("circle of " + ", ".join(each) for each in found)
        self.assertLessEqual(len(found), MOST_CIRCLES, "\n%s\nmove what both need to a file of its own" % text)

    def test_a_header_and_its_source_are_one_file(self):
        direct = {"a.h": "", "a.cc": '#include "a.h"\n#include "b.h"\n', "b.h": '#include "a.h"\n'}
        self.assertEqual(circles(includes(direct)), [["a", "b"]])
        self.assertEqual(circles(includes({**direct, "b.h": '#include "c.h"\n', "c.h": "#include <a.h>\n"})), [])

    def test_a_circle_goes_over_other_files(self):
        needs = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
        self.assertEqual(circles(needs), [["d", "e"], ["a", "b", "c"]])

    def test_modules_that_import_each_other_are_a_circle(self):
        texts = {"weir/a.py": "from weir import b", "weir/b.py": "def f():\n  from .a import g"}
        texts["weir/c.py"] = "import weir.a"
        self.assertEqual(circles(imports(texts)), [["weir.a", "weir.b"]])


if __name__ == "__main__":
    unittest.main()
