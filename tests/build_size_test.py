#!/usr/bin/env python3
"""Programs stay as small as they are: whoever builds Weir pays for what they are made of.

The limits are below. Raise one on purpose: in the commit that needs it, with the reason in its message.
"""

import os
import re
import sys

# Sources of the tree that one test program is made of, at most, its own included; others as they stand here.
MOST_SOURCES = 490
MORE_SOURCES = {
    "//tests/e2e/checkpoints:tests": 640,
    "//tests/e2e/data:tests": 640,
    "//tests/e2e/modes:tests": 700,
    "//tests/e2e:device_tests": 700,
    "//tests/e2e:tests": 740,
    "//tests/examples:corners_test": 630,
    "//tests/pserver/channels:tests": 520,
    "//tests/tools:tests": 590,
    "//tests/trainer:tests": 730,
}
# The same for programs of tests with threads: ThreadSanitizer compiles their sources again. It sees nothing in the
# transpiler and in operators of models, which one thread runs; tests/testing/hand_made_job.h and
# tests/pserver/replica/replica_job.h make programs without them.
MOST_THREADED_SOURCES = 250
# Actions (sources compiled, archives, links) that build the programs of tools/quickstart from nothing, at most.
MOST_QUICKSTART_ACTIONS = 730


def main():
    root = os.path.dirname(os.path.realpath(os.path.join(os.environ["TEST_SRCDIR"], "weir", "WORKSPACE")))
    with open(os.path.join(os.environ["TEST_SRCDIR"], "weir", "tests", "build_sizes"), encoding="utf-8") as report:
        rows = [line.split() for line in report]
    sizes = {label: (int(sources), int(actions)) for label, sources, actions in rows}
    problems = []
    for label, (sources, actions) in sorted(sizes.items()):
        print("%5d sources %5d actions  %s" % (sources, actions, label))
        most = MORE_SOURCES.get(label, MOST_THREADED_SOURCES if label.endswith(":threaded_tests") else MOST_SOURCES)
        if label == "//tests:quickstart_programs":
            if actions > MOST_QUICKSTART_ACTIONS:
                problems.append("tools/quickstart builds %d actions, at most %d" % (actions, MOST_QUICKSTART_ACTIONS))
        elif sources > most:
            problems.append("%s is made of %d sources, at most %d" % (label, sources, most))
    for folder, _, files in os.walk(os.path.join(root, "tests")):
        if "BUILD" not in files:
            continue
        with open(os.path.join(folder, "BUILD"), encoding="utf-8") as build:
            for name in re.findall(r'^weir_cc_tests?\(\n    name = "(\w+)"', build.read(), re.MULTILINE):
                label = "//%s:%s" % (os.path.relpath(folder, root), name)
                if label not in sizes:
                    problems.append("%s is not in build_size_report in tests/BUILD" % label)
    for problem in problems:
        print("FAILED: %s (tests/build_size_test.py says how to raise a limit)" % problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
