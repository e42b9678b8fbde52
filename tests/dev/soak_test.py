#!/usr/bin/env python3
"""Tests tests/dev/soak: reads logs and scores rightly, tells of broken promises; two scenes pass on real processes."""

import array
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
_loader = importlib.machinery.SourceFileLoader("soak", os.path.join("tests", "dev", "soak"))
soak = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak", _loader))
_loader.exec_module(soak)


def run(*flags):
    """Returns (exit status, output, what is left in the working directory)."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as work:
        done = subprocess.run(
            [sys.executable, "tests/dev/soak", "--dir=" + os.path.join(work, "runs"), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        left = [os.path.relpath(os.path.join(at, f), work) for at, _, files in os.walk(work) for f in files]
    return done.returncode, done.stdout, left


class ReadingTest(unittest.TestCase):
    def test_the_culprit_is_whom_the_line_names_as_lost(self):
        for line, named in [
            ("pserver: trainer 1 (host:7) is dead: no sign of life for 2 s, at step 5", "trainer.1"),
            (
                "trainer: trainer 0 (host:8): server 1 at 127.0.0.1:99 (host:9) is dead: trainer 0 (host:8) has not "
                "heard from it for 2.1 s",
                "server.1",
            ),
            ("trainer: trainer 2 has not joined server 0 (host:9) within 8 s", "trainer.2"),
            (
                "pserver: trainer 0 (host:8): trainer 0 (host:8) has waited 8 s for server 1 at 127.0.0.1:99: to join; "
                "the last try: server 1 at 127.0.0.1:99: refused",
                "server.1",
            ),
        ]:
            self.assertEqual(soak.culprits(line), {named}, line)
        two = "trainer: trainers 0, 2 have not joined server 0 (host:9) within 8 s"
        self.assertEqual(soak.culprits(two), {"trainer.0", "trainer.2"})
        self.assertEqual(soak.culprits("done steps=60 examples=3840"), set())

    def test_figures_of_scores_are_those_of_the_metrics(self):
        # Of the four pairs three are in order and one stands in one bucket.
        scores = array.array("f", [0.75, 0.5, 0.5, 0.25])
        said = soak.counted(scores, [True, True, False, False])
        self.assertEqual(said, "examples=4 loss=0.490415 auc=0.875000 auc_error=1.2e-01")
        self.assertTrue(soak.alike(said, said.replace("0.490415", "0.490416")))
        self.assertFalse(soak.alike(said, said.replace("0.490415", "0.490418")))
        self.assertFalse(soak.alike(said, said.replace("0.875000", "0.875001")))

    def test_the_last_evaluation_counts(self):
        log = "eval step=20 examples=9 loss=0.5\neval step=40 examples=9 loss=0.4\ndone steps=40 examples=80\n"
        self.assertEqual(soak.figures(log), "examples=9 loss=0.4")
        self.assertEqual(soak.done_steps(log), 40)
        self.assertIsNone(soak.figures("step=20 examples=9 loss=0.5\n"))


class RunTest(unittest.TestCase):
    def test_a_broken_promise_is_told_and_its_logs_stay(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as programs:
            for name in ("pserver", "trainer", "checkpoint"):
                with open(os.path.join(programs, name), "w", encoding="ascii") as file:
                    file.write("#!/bin/sh\necho all is well\n")
                os.chmod(file.name, 0o755)
            status, out, left = run("--scene=kills", "--runs=1", "--binaries=" + programs)
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"server\.1 ended with 0, expected 3: all is well")
        self.assertRegex(out, r"failed: runs \[0\]")
        self.assertIn("runs/kills.1.0/run/server.1.log", left)

    def test_without_programs_nothing_is_said(self):
        self.assertEqual(run("--scene=kills", "--binaries=/nowhere")[0], 2)

    def test_a_death_at_work_is_named_by_all(self):
        status, out, left = run("--scene=kills", "--runs=1", "--first=12", "--binaries=.")
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"named (server|trainer)\.\d: ok")
        self.assertEqual(left, [])

    def test_the_last_evaluation_is_of_what_was_saved(self):
        status, out, _ = run("--scene=evaluation", "--runs=1", "--binaries=.")
        self.assertEqual(status, 0, out)


if __name__ == "__main__":
    unittest.main()
