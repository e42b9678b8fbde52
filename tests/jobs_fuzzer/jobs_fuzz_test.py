#!/usr/bin/env python3
"""Runs fuzz_jobs on the seeds that every test run tries, and shows that it tells of wrong bits and of missing programs.

WEIR_PROGRAMS is the directory of the programs; default: the runfiles.
"""

import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

FUZZ_JOBS = os.path.join("tests", "jobs_fuzzer", "fuzz_jobs")
sys.dont_write_bytecode = True
_loader = importlib.machinery.SourceFileLoader("fuzz_jobs", FUZZ_JOBS)
fuzz_jobs = importlib.util.module_from_spec(importlib.util.spec_from_loader("fuzz_jobs", _loader))
_loader.exec_module(fuzz_jobs)
import checking  # noqa: E402
import message  # noqa: E402
import shrinking  # noqa: E402

PROGRAMS = os.environ.get("WEIR_PROGRAMS", ".")
SEEDS = 20

# Stands in for launch: says wrong digests from step 5 on when there are several trainers.
WRONG = """#!%s
import re, subprocess, sys
trainers = int(next(a for a in sys.argv if a.startswith("--trainers=")).split("=")[1])
done = subprocess.run([%r] + sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
def wrong(found):
    return found.group(0)[:-4] + "0000" if trainers > 1 and int(found.group(1)) >= 5 else found.group(0)
sys.stdout.write(re.sub(r"digest step=(\\d+) values=\\w+ state=\\w+", wrong, done.stdout))
sys.exit(done.returncode)
"""


def run(*flags):
    """Returns (exit status, output)."""
    done = subprocess.run(
        [sys.executable, FUZZ_JOBS, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


class JobsFuzzTest(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self._work = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self._work.cleanup)
        self.work = self._work.name

    def test_a_seed_draws_the_same_job_each_time(self):
        first = run("--draw", "--seeds=30")
        self.assertEqual(first[0], 0, first[1])
        self.assertEqual(run("--draw", "--seeds=30"), first)
        self.assertNotEqual(run("--draw", "--seeds=30", "--first_seed=2"), first)

    def test_without_programs_nothing_is_said(self):
        status, out = run("--programs=/nowhere")
        self.assertEqual(status, 2, out)
        self.assertRegex(out, "no program trainer: looked for /nowhere/trainer/trainer")

    def test_wrong_bits_are_found(self):
        bin_dir = os.path.join(self.work, "bin")
        os.makedirs(bin_dir)
        for package, name in (
            ("trainer", "trainer"),
            ("pserver", "pserver"),
            ("transpiler", "transpile"),
            ("tools", "checkpoint"),
            ("tools", "convert"),
            ("tools", "launch"),
        ):
            at = os.path.abspath(os.path.join(PROGRAMS, package, name))
            at = at if os.path.isfile(at) else os.path.abspath(os.path.join(PROGRAMS, name))
            if name == "launch":
                with open(os.path.join(bin_dir, name), "w", encoding="ascii") as file:
                    file.write(WRONG % (sys.executable, at))
                os.chmod(file.name, 0o755)
            else:
                os.symlink(at, os.path.join(bin_dir, name))
        case = fuzz_jobs.draw(5, 0)
        case["attempts"] = [dict(case["attempts"][-1], servers=1, trainers=3)]
        at = os.path.join(self.work, "case.json")
        fuzz_jobs.save(case, at)
        found = os.path.join(self.work, "found")
        status, out = run("--case=" + at, "--dir=" + found, "--programs=" + bin_dir, "--shrink_s=0")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"seed 5: FAILED: .*: bits: attempt 1, step \d+: 'values=\w+ state=\w+0000', undisturbed")
        self.assertTrue(os.path.isfile(os.path.join(found, "again.5", "run", "attempt.1", "output")), out)

    def test_a_stop_of_local_sgd_between_averages_is_known(self):
        def job(**distribute):
            return message.message(
                train=message.message(digest_every_steps=5),
                checkpoint=message.message(every_steps=6),
                distribute=message.message(**distribute),
            )

        local_sgd = job(local_sgd=message.message(every_steps=4))
        steps = [step for step in range(14) if checking.adds_an_average(local_sgd, step, last=13)]
        self.assertEqual(steps, [1, 2, 3, 7, 9, 11])
        self.assertFalse(checking.adds_an_average(job(servers=1), 7, last=13))

    def test_a_failing_case_becomes_smaller(self):
        case = fuzz_jobs.draw(1, 0)
        self.assertIn("table", dict(case["job"]))
        self.assertGreater(len(case["attempts"]), 1)
        case["attempts"][-1].update(trainers=4, local=False)
        case["shows"] = "bits"
        failure = checking.Failure("bits", "step 5")
        tries = []

        def fails(tried):
            tries.append(tried)
            several = tried["attempts"][-1]["trainers"] > 1
            return failure if several and message.get(tried["job"], "table") else None

        smallest = shrinking.shrink(case, failure, 60, fails)
        self.assertEqual([a["trainers"] for a in smallest["attempts"]], [2])
        self.assertEqual(smallest["attempts"][0]["sets"], [])
        self.assertEqual(smallest["lines"], 10)
        kept = [name for name, _ in smallest["job"]]
        self.assertEqual([kept.count("table"), kept.count("optimizer")], [1, 0])
        self.assertLess(len(tries), 300)

    def test_every_promise_is_kept(self):
        found = os.path.join(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", self.work), "found")
        status, out = run("--seeds=%d" % SEEDS, "--first_seed=1", "--programs=" + PROGRAMS, "--dir=" + found,
                          "--shrink_s=60")
        print(out)
        self.assertEqual(status, 0, out)
        self.assertEqual(len(re.findall(r"^seed \d+: ok", out, re.MULTILINE)), SEEDS, out)


if __name__ == "__main__":
    unittest.main()
