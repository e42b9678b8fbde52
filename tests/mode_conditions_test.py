#!/usr/bin/env python3
"""Counts the conditions on a mode of a job (sync, staleness, async_tables, geo, per_host, servers_in_trainers, follow)
outside the rooms that choose by it, and keeps their number from growing.

A mode is asked for where the job is read (transpiler/job), where the server chooses its rules (pserver/consistency)
and where a trainer chooses its channels (one function of pserver/channels/channel_stack.cc). Everything else gets a
value or an interface without a mode in it: a new mode then needs no edit there. A change that removes conditions
lowers the limits; one that adds a condition raises them and says why."""

import os
import re
import subprocess
import sys
import unittest

# WORKSPACE among the test's files is a link to the real one.
ROOT = os.path.dirname(os.path.realpath("WORKSPACE"))
MOST_CONDITIONS = 17
MOST_FILES = 11
CHOOSING = ("pserver/consistency/", "pserver/channels/channel_stack.cc", "transpiler/job/")
APART = ("tests/", "examples/")

# A mode as a value: the name of a field, a variable or a call without arguments. `sync` alone is no call: fsync and
# sync() are of files.
_MODE = re.compile(
    r"(?<![\w\"/])(?:sync|staleness|async_tables|geo|has_geo|per_host|servers_in_trainers|follow(?=\(\))|has_follow|"
    r"follows(?=\(\))|sync_|geo_|staleness_|per_host_)\b(?!/|\.h)(?:\(\))?"
)
_CONDITION = re.compile(r"\bif\s*\(|\?|&&|\|\||\bwhile\s*\(|!\s*\w|\bswitch\s*\(|\breturn\b|==|!=")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def conditions(line):
    """Number of modes in a line of C++ that asks something."""
    code = _TEXT.sub('""', line.split("//")[0])
    return len(_MODE.findall(code)) if _CONDITION.search(code) else 0


def sources():
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if listed.returncode != 0:
        return []
    paths = listed.stdout.decode().split("\n")
    return [p for p in paths if p.endswith((".cc", ".h")) and not p.startswith(CHOOSING + APART)]


class ModeConditionsTest(unittest.TestCase):
    def test_their_number_does_not_grow(self):
        paths = sources()
        if not paths:
            self.skipTest("no git here")
        found = {}
        for path in paths:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                count = sum(conditions(line) for line in file)
            if count:
                found[path] = count
        table = "\n".join("%5d  %s" % (n, p) for p, n in sorted(found.items(), key=lambda each: -each[1]))
        total = sum(found.values())
        print("%s\n%5d  in %d files" % (table, total, len(found)))
        self.assertLessEqual(total, MOST_CONDITIONS, "see %s" % os.path.basename(sys.argv[0]))
        self.assertLessEqual(len(found), MOST_FILES, "see %s" % os.path.basename(sys.argv[0]))

    def test_what_counts(self):
        self.assertEqual(conditions("  if (options_.sync && options_.reproducible) return;"), 1)
        self.assertEqual(conditions("  return plan.sync() ? 1 : mode.staleness();"), 2)
        self.assertEqual(conditions("  const bool sync = plan.sync();"), 0)
        self.assertEqual(conditions('  if (failed) return Error("sync is off");'), 0)
        self.assertEqual(conditions("  if (x) Wait();  // in sync"), 0)


if __name__ == "__main__":
    unittest.main()
