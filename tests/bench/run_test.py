#!/usr/bin/env python3
"""tests/bench/run: figures and ratios of fake benchmarks; a disturbed machine gives no ratio."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import tempfile
import unittest

LOADER = importlib.machinery.SourceFileLoader("bench_run", "tests/bench/run")
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", LOADER))
LOADER.exec_module(bench)


def says(figure, peer=""):
    return bench.Row(f"says {figure}", f"/bin/echo rate {figure} x/s", r"rate ([\d.]+)", peer)


class BenchRunTest(unittest.TestCase):
    def setUp(self):
        # A machine on which nobody else runs.
        self.others = [0.0]
        self.clock = 0.0
        bench.busy_and_taken = self.busy_and_taken
        bench.children_seconds = lambda: 0.0

    def busy_and_taken(self):
        self.clock += self.others[0]
        return self.clock, 0.0

    def table(self, rows, ratios, turns=3):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            bench.measure(rows, turns, "")
            good = bench.print_table(rows, ratios, "x/s", turns)
        return good, out.getvalue()

    def test_a_ratio_is_to_the_best_of_the_others(self):
        good, out = self.table([says(30), says(10), says(20)], [("says 30", ["says 10", "says 20"])])
        self.assertTrue(good)
        self.assertIn("says 30 : says 20 = 1.50", out)
        self.assertRegex(out, r"says 10 +10\.0 x/s  \(10\.0 to 10\.0\)")

    def test_a_disturbed_machine_gives_no_ratio(self):
        self.others[0] = 1e6
        good, out = self.table([says(30), says(10)], [("says 30", ["says 10"])])
        self.assertTrue(good)
        self.assertIn("no ratio of says 30 to says 10: says 30: 0 of 3 undisturbed", out)
        self.assertIn("no undisturbed run  (6 disturbed)", out)
        self.assertNotIn(" = ", out)

    def test_a_command_that_fails_is_named_with_what_it_said(self):
        wrong = bench.Row("wrong", "/bin/sh -c 'echo out of luck; exit 3'", r"rate ([\d.]+)")
        good, out = self.table([wrong, says(10)], [("wrong", ["says 10"])])
        self.assertFalse(good)
        self.assertIn("failed: ended with 3 and said: out of luck", out)
        self.assertNotIn(" = ", out)

    def test_rows_of_one_command_are_of_one_run(self):
        with tempfile.TemporaryDirectory() as directory:
            calls = os.path.join(directory, "calls")
            command = f"/bin/sh -c 'echo >> {calls}; echo first 4 second 2'"
            rows = [bench.Row(name, command, name + r" (\d+)") for name in ("first", "second")]
            good, out = self.table(rows, [("first", ["second"])])
            with open(calls, encoding="ascii") as file:
                self.assertEqual(len(file.readlines()), 3)
        self.assertTrue(good)
        self.assertIn("first : second = 2.00", out)

    def test_a_row_whose_figure_is_missing_fails_alone(self):
        rows = [bench.Row(name, "/bin/echo first 4", name + r" (\d+)") for name in ("first", "second")]
        good, out = self.table(rows, [])
        self.assertFalse(good)
        self.assertRegex(out, r"first +4\.0 x/s")
        self.assertRegex(out, "second +failed: ended with 0 and said: first 4")

    def test_lines_of_the_peers_of_deepfm_are_found(self):
        figures = "50000.5 examples/s   30.1 us of processor time each, loss 0.5000"
        for pattern, line in ((bench.TORCH_RATE, "torch 2.14.1, 2 process(es): "),
                              (bench.TORCH_RATE, "torchrec on torch 2.14.1, 1 process(es): "),
                              (bench.PADDLE_RATE, "paddle 3.0.0, 1 process: "),
                              (bench.PADDLE_RATE, "paddle 3.0.0, 2 servers + 2 trainers, async: ")):
            row = bench.Row("peer", "none", pattern)
            row.book(row.pattern.search(line + figures))
            self.assertEqual((row.figures, row.cpu), ([50000.5], [30.1]))

    def test_rows_of_tables_find_their_figures(self):
        out = "\n".join(f"{name}, uniform   26.0 M/s  best 30.5  of processor time {rate}  17 % of the ceiling"
                        for name, rate in (("look-ups", "26.5"), ("look-ups and Adagrad updates", "12.5")))
        rows, _ = bench.rows_of_tables()
        found = {row.name: row.pattern.search(out) for row in rows}
        self.assertEqual(found["look-ups, 1 M rows"].group(1), "26.5")
        self.assertEqual(found["both, 10 M rows"].group(1), "12.5")
        self.assertIsNone(found["updates, 1 M rows"])

    def test_peers_that_are_not_there_are_left_out_by_name(self):
        with tempfile.TemporaryDirectory() as peers, contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertFalse(bench.is_there(says(1, "ps-lite"), ""))
            self.assertFalse(bench.is_there(says(2, "ps-lite"), peers))
            open(os.path.join(peers, "ps-lite"), "w", encoding="ascii").close()
            os.chmod(os.path.join(peers, "ps-lite"), 0o755)
            self.assertTrue(bench.is_there(says(3, "ps-lite"), peers))
        self.assertIn("left out: says 1: no --peers", out.getvalue())
        self.assertRegex(out.getvalue(), "left out: says 2: no .*/ps-lite")
        with self.assertRaises(SystemExit):
            bench.is_there(bench.Row("not built", "bazel-bin/nothing", "x"), "")

    def test_every_ratio_names_rows_of_its_table(self):
        for _, _, _, rows, ratios in bench.tables():
            names = [row.name for row in rows]
            for name, others in ratios:
                self.assertLessEqual({name, *others}, set(names))


if __name__ == "__main__":
    unittest.main()
