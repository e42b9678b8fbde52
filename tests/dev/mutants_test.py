#!/usr/bin/env python3
"""Tests mutants without Bazel: chosen mutants apply, draws follow the seed, switches leave the source alone."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

# WORKSPACE among the test's files is a link to the real one.
ROOT = os.path.dirname(os.path.realpath("WORKSPACE"))
sys.dont_write_bytecode = True
_loader = importlib.machinery.SourceFileLoader("mutants", os.path.join(ROOT, "tests", "dev", "mutants"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", _loader))
_loader.exec_module(mutants)
chosen, cpp, drawn = mutants.mutants_chosen, mutants.mutants_cpp, mutants.mutants_drawn

FILES = mutants.Sources(ROOT)


def pool(under=()):
    return [m for path in mutants.sources(ROOT, under) for m in drawn.candidates(path, FILES[path])]


def is_target(label):
    """As far as it can be seen without Bazel: a source of that name, or the name in its BUILD file."""
    package, name = label.removeprefix("//").split(":")
    build = os.path.join(package, "BUILD")
    if not os.path.exists(os.path.join(ROOT, build)):
        return False
    return (
        name == "all"
        or os.path.exists(os.path.join(ROOT, package, name + ".cc"))
        or '"%s"' % name in mutants.read(ROOT, build)
    )


def unswitched(text):
    """The text with every switch off, as the compiler reads it."""
    tokens = cpp.Source(text).tokens
    pieces, at = [], 0
    for i, token in enumerate(tokens):
        if token.text != "WEIR_MUTANT":
            continue
        if tokens[i - 2].text == "if":  # { if (WEIR_MUTANT(n)) { new } else { old } }
            first = i - 3
            old = tokens[tokens[i - 1].match + 1].match + 2
            begin, end = tokens[old].end + 1, tokens[tokens[old].match].start - 1
        else:  # (WEIR_MUTANT(n) ? (new) : (old))
            first = i - 1
            old = tokens[i + 5].match + 2
            begin, end = tokens[old].end, tokens[tokens[old].match].start
        pieces += [text[at : tokens[first].start], text[begin:end]]
        at = tokens[tokens[first].match].end
    return "".join(pieces) + text[at:]


def switched(path, found):
    changes = [(m.start, m.end, m.new, m.region) for m in found]
    return cpp.switched(FILES[path].text, changes, range(1, len(found) + 1))


class ChosenTest(unittest.TestCase):
    def test_each_applies_to_the_source_as_it_is(self):
        problems = []
        found = mutants.chosen(FILES, problems)
        self.assertEqual(problems, [], "adapt tests/dev/mutants_chosen.py to the sources")
        self.assertEqual(len(found), len(chosen.CHOSEN))
        self.assertEqual(len({m.id for m in found}), len(found))

    def test_each_replaces_the_text_and_nothing_else(self):
        for mutant, row in zip(mutants.chosen(FILES), chosen.CHOSEN):
            text = FILES[row.file].text
            made = text[: mutant.start] + mutant.new + text[mutant.end :]
            self.assertEqual("".join(made.split()), "".join(text.replace(row.old, row.new).split()), row.id)

    def test_a_text_that_is_not_there_once_is_told(self):
        rows = chosen.CHOSEN
        try:
            chosen.CHOSEN = [
                chosen.Chosen("gone", "ops/adam_math.h", "no such text", "x"),
                chosen.Chosen("many", "ops/adam_math.h", "float", "double"),
            ]
            problems = []
            self.assertEqual(mutants.chosen(FILES, problems), [])
            self.assertRegex(problems[0], r"gone \(ops/adam_math.h\): the old text stands 0 times")
            self.assertRegex(problems[1], r"many .* stands \d+ times")
        finally:
            chosen.CHOSEN = rows

    def test_tests_that_are_named_exist(self):
        for row in chosen.CHOSEN:
            for label in row.tests or mutants.nearest(row.file):
                self.assertTrue(is_target(label), "%s of %s" % (label, row.id))


class DrawTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = pool()
        cls.drawn = drawn.draw(cls.pool, 1, 600)

    def test_a_seed_draws_the_same_and_another_seed_others(self):
        again = drawn.draw(pool(), 1, 600)
        self.assertEqual([m.id for m in again], [m.id for m in self.drawn])
        other = {m.id for m in drawn.draw(self.pool, 2, 600)}
        self.assertLess(len(other & {m.id for m in again}), 200)

    def test_fewer_are_the_first_of_more(self):
        self.assertEqual(drawn.draw(self.pool, 1, 50), self.drawn[:50])

    def test_all_operators_have_their_share(self):
        for operator in ("arguments", "comparison", "constant", "off by one", "sign", "statement"):
            # Most arguments that change places do not compile.
            at_least = 37 if operator == "arguments" else 110
            self.assertGreaterEqual(sum(m.operator == operator for m in self.drawn), at_least, operator)

    def test_each_changes_one_line_of_code(self):
        for mutant in self.drawn:
            text = FILES[mutant.file].text
            made = text[: mutant.start] + mutant.new + text[mutant.end :]
            before, after = text.split("\n"), made.split("\n")
            self.assertEqual(len(before), len(after), mutant)
            self.assertEqual([i + 1 for i, (b, a) in enumerate(zip(before, after)) if b != a], [mutant.line], mutant)
            # It is code that changes, and brackets stay in pairs.
            before, after = (cpp.Source(lines[mutant.line - 1]).tokens for lines in (before, after))
            self.assertNotEqual([t.text for t in before], [t.text for t in after], mutant)
            pairs = [
                [
                    sum(t.text == one for t in line) - sum(t.text == other for t in line)
                    for one, other in ("()", "[]", "{}")
                ]
                for line in (before, after)
            ]
            self.assertEqual(pairs[0], pairs[1], mutant)

    def test_ids_are_told_apart(self):
        self.assertEqual(len({m.id for m in self.pool}), len(self.pool))

    def test_switches_that_are_off_leave_the_source_as_it_is(self):
        by_file, taken = {}, {}
        for mutant in self.drawn + mutants.chosen(FILES):
            if drawn.free(mutant, taken):
                by_file.setdefault(mutant.file, []).append(mutant)
        for path, found in by_file.items():
            text = switched(path, found)
            self.assertEqual(text.count("\n"), FILES[path].text.count("\n"), path)
            self.assertEqual(text.count("WEIR_MUTANT("), len(found), path)
            self.assertEqual(unswitched(text), FILES[path].text, path)

    def test_rooms_have_files_and_tests(self):
        for patterns, labels in mutants.ROOMS:
            for pattern in patterns:
                # The file of an optimizer may only register it.
                self.assertTrue(
                    pattern.startswith("ops/") or any(mutants.matches(m.file, pattern) for m in self.pool), pattern
                )
            for label in labels:
                self.assertTrue(is_target(label), label)

    def test_under_takes_a_file_or_a_folder(self):
        self.assertEqual({m.file for m in pool(["transpiler/metrics/auc.cc"])}, {"transpiler/metrics/auc.cc"})
        self.assertIn("framework/wire/frame.cc", {m.file for m in pool(["framework/wire/"])})


def made_of(text):
    """The mutants of a function's body, as `operator: line`."""
    source = cpp.Source("int f() {\n%s\n}\n" % text)
    return ["%s: %s" % (m.operator, m.lines(source)[1]) for m in drawn.candidates("x.cc", source)]


class OperatorTest(unittest.TestCase):
    def test_comparisons(self):
        self.assertEqual(
            made_of("  if (a < b && !c) {\n  }"),
            ["comparison: if (a <= b && !c) {", "comparison: if (a < b || !c) {", "comparison: if (a < b && c) {"],
        )
        self.assertEqual(made_of("  return std::min(a, b);"), ["comparison: return std::max(a, b);"])

    def test_statements(self):
        self.assertEqual(made_of("  Sync(dir);"), ["statement: (nothing)"])
        self.assertEqual(made_of("  a->b[c].d = e;")[0], "statement: (nothing)")
        self.assertEqual(made_of("  RETURN_IF_ERROR(Sync(dir));"), ["statement: (nothing)"])
        self.assertIn("statement: (nothing)", made_of("  if (a == b) return c;"))

    def test_declarations_are_no_statements_to_drop(self):
        for text in (
            "  Foo a(b);",
            "  std::vector<int> a(b);",
            "  const Foo& a = b;",
            "  auto a = b();",
            "  Foo* a = b();",
            "  Foo a;",
            "  a::Foo b{c};",
            "  ASSIGN_OR_RETURN(const int a, b());",
        ):
            self.assertEqual([m for m in made_of(text) if m.startswith("statement")], [], text)

    def test_off_by_one(self):
        self.assertIn("off by one: return a;", made_of("  return a + 1;"))
        self.assertIn("off by one: return a.size() - 1;", made_of("  return a.size();"))
        self.assertEqual(made_of("  return a[i];"), ["off by one: return a[i + 1];"])

    def test_signs(self):
        self.assertEqual(made_of("  return a + -b;"), ["sign: return a - -b;", "sign: return a + b;"])
        self.assertIn("sign: a -= b;", made_of("  a += b;"))
        self.assertIn("sign: --a;", made_of("  ++a;"))

    def test_constants(self):
        self.assertEqual(made_of("  return true;"), ["constant: return false;"])
        self.assertEqual(made_of("  return 0.5f;"), ["constant: return (2 * 0.5f);"])
        self.assertIn(made_of("  return 7;"), (["constant: return 8;"], ["constant: return 6;"]))

    def test_arguments(self):
        self.assertEqual(made_of("  return f(a, b);"), ["arguments: return f(b, a);"])
        self.assertEqual(made_of('  return f(a, "b");'), [])

    def test_what_is_text_or_known_at_compile_time_is_left(self):
        for text in (
            "  // if (a < b) c = 1;",
            '  return "a < b + 1";',
            "  CHECK(a < b) << c + 1;",
            "  LOG(INFO) << a + 1;",
            "  static_assert(a < b);",
            "  constexpr int a = 1;",
            '  return absl::InvalidArgumentError(absl::StrCat("a", b - 1));',
            "  std::array<int, 4> a;",
            "  switch (a) {\n    case 1:\n      break;\n  }",
            "#define A (b < c)",
        ):
            self.assertEqual(made_of(text), [], text)

    def test_only_bodies_of_functions_are_changed(self):
        source = cpp.Source("""\
#include "a+1"
int f(int a = 1);
constexpr int kA = 1;
const int kB[] = {1, 2};
class A : public B {
  A() : a_(1), b_{2} { Run(); }
  int a() const override { return a_ - 1; }
  static constexpr int c() { return 1; }
  int a_ = 1;
};
template <typename T>
auto g(T a) -> int {
  return a == 1;
}
""")
        self.assertEqual(sorted({m.line for m in drawn.candidates("x.h", source)}), [7, 13])


class SwitchTest(unittest.TestCase):
    def check(self, text, old, new, expected):
        source = cpp.Source("void f() {\n%s\n}\n" % text)
        start = source.text.index(old)
        start, end, new, region = source.place(start, start + len(old), new)
        made = cpp.switched(source.text, [(start, end, new, region)], [7])
        self.assertEqual(" ".join(made.split()), "void f() { %s }" % expected)
        self.assertEqual(made.count("\n"), source.text.count("\n"))

    def test_the_whole_expression_goes_behind_the_switch(self):
        self.check("x = a * b + c;", "*", "/", "x = (WEIR_MUTANT(7) ? (a / b + c) : (a * b + c));")
        self.check(
            "for (int i = 0; i < n; ++i) {\n}",
            "i < n",
            "i <= n",
            "for (int i = 0; (WEIR_MUTANT(7) ? (i <= n) : (i < n)); ++i) { }",
        )
        self.check("g(a, b.c() + 1, d);", " + 1", "", "g(a, (WEIR_MUTANT(7) ? (b.c()) : (b.c() + 1)), d);")
        self.check("return a ? b < c : d;", "<", ">", "return a ? (WEIR_MUTANT(7) ? (b > c) : (b < c)) : d;")
        self.check("a += b;", "+=", "-=", "(WEIR_MUTANT(7) ? (a -= b) : (a += b));")
        self.check("if (x) ++a;", "++", "--", "if (x) (WEIR_MUTANT(7) ? (--a) : (++a));")
        self.check(
            "x = static_cast<pair<int, int>>(a) + b;",
            "+",
            "-",
            "x = (WEIR_MUTANT(7) ? (static_cast<pair<int, int>>(a) - b) : (static_cast<pair<int, int>>(a) + b));",
        )
        self.check("h = f(a,\n b);", "a,\n b", "b, a", "h = (WEIR_MUTANT(7) ? (f(b, a)) : (f(a, b)));")
        self.check(
            "x = (a + b) + c;", "(a + b) + c", "a + (b + c)", "x = (WEIR_MUTANT(7) ? (a + (b + c)) : ((a + b) + c));"
        )

    def test_whole_statements_go_behind_the_switch(self):
        self.check("a();\nb(c, d);", "b(c, d);", "", "a(); { if (WEIR_MUTANT(7)) { } else { b(c, d); } }")
        self.check("if (a)\n  b();", "b();", "return 1;", "if (a) { if (WEIR_MUTANT(7)) { return 1; } else { b(); } }")
        self.check(
            "if (a) return b;",
            "if (a) return b;",
            "return b;",
            "{ if (WEIR_MUTANT(7)) { return b; } else { if (a) return b; } }",
        )
        self.check(
            "if (a) {\n  b();\n  c();",
            "if (a) {\n  b();",
            "if (a) {",
            "if (a) { { if (WEIR_MUTANT(7)) { } else { b(); } } c();",
        )

    def test_what_cannot_be_switched_is_refused(self):
        for text, old, new in (
            ("std::array<int, 4> a;", "4", "5"),
            ("abc = 1;", "b", "d"),
            ("a = b;", "a = b;", "a = b;"),
        ):
            source = cpp.Source("void f() {\n%s\n}\n" % text)
            start = source.text.index(old)
            with self.assertRaises(cpp.NotPossible, msg=text):
                source.place(start, start + len(old), new)

    def test_one_build_holds_all_and_says_which_are_reached(self):
        source = cpp.Source("""\
#include <cstdio>
int Add(int a, int b) {
  if (a == 100) return 0;
  return a + b;
}
int main() {
  int sum = Add(2, 3);
  sum += 10;
  return std::printf("%d line %d", sum, __LINE__) == 0;
}
""")
        found = [m for m in drawn.candidates("x.cc", source) if m.operator in ("sign", "statement")]
        taken = {}
        found = [m for m in found if drawn.free(m, taken)]
        self.assertEqual([(m.operator, m.line) for m in found], [("statement", 3), ("sign", 4), ("statement", 8)])
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "x.cc")
            with open(path, "w", encoding="utf-8") as file:
                file.write(
                    cpp.switch(3)
                    + cpp.switched(source.text, [(m.start, m.end, m.new, m.region) for m in found], [1, 2, 3])
                )
            subprocess.run(
                ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", path, "-o", work + "/x"], check=True
            )
            reached = os.path.join(work, "reached")
            with open(reached, "wb") as file:
                file.write(bytes(4096))
            said = []
            for number in range(4):
                done = subprocess.run(
                    [work + "/x"],
                    env={"WEIR_MUTANT": str(number), "WEIR_MUTANTS_REACHED": reached},
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                said.append(done.stdout)
            self.assertEqual(said[0], "15 line 9")
            self.assertEqual(said[2:], ["9 line 9", "5 line 9"])
            with open(reached, "rb") as file:
                self.assertEqual(file.read(5), bytes([0, 1, 1, 1, 0]))


class RunTest(unittest.TestCase):
    def test_what_does_not_compile_is_found_by_its_line(self):
        found = [m for m in mutants.chosen(FILES) if m.file == "framework/membership/roster.cc"]
        line = found[1].line
        output = "%s:%d:9: error: no match\n" % (found[1].file, line)
        self.assertEqual(mutants.broken(output, found, FILES), {1})
        # From a template elsewhere: the line that uses it.
        output = "framework/base/x.h:3:9: error: no match\n%s:%d:9:   required from here\n" % (found[1].file, line)
        self.assertEqual(mutants.broken(output, found, FILES), {1})
        # Nothing but the file.
        self.assertEqual(mutants.broken("%s:1:1: error: x\n" % found[1].file, found, FILES), set(range(len(found))))
        self.assertEqual(mutants.broken("ERROR: no such package\n", found, FILES), set())

    def test_tests_come_by_name_then_as_the_room_has_them_and_only_those_that_reach(self):
        mutant = drawn.Mutant("x", "sign", "pserver/params/learning_rates.cc", 0, 1, "", (0, 1, False), 1)
        names = [
            "//t:quick_test",
            "//t:rates_test",
            "//t:far_test",
            "//t:slow_test",
            "//t:learning_rates_test",
            "//t:blind_test",
        ]
        places = [0, 0, 1, 0, 1, 0]
        tests = [(name, name, place) for name, place in zip(names, places)]
        times = {name: (9 if "slow" in name else 1, bytes([0, 0 if "blind" in name else 1])) for name in names}
        self.assertEqual(
            mutants.in_order(mutant, 1, tests, times),
            ["//t:learning_rates_test", "//t:rates_test", "//t:quick_test", "//t:slow_test", "//t:far_test"],
        )

    def test_a_test_passes_fails_or_runs_out_of_time(self):
        def one(script, limit=20):
            return mutants.run_test(mutants.Test("//t:t", ["/bin/sh", "-c", script], "/", False), 3, limit)[0]

        self.assertEqual(one('test "$WEIR_MUTANT" = 3 && test -d "$TEST_TMPDIR"'), "passed")
        self.assertEqual(one("exit 1"), "failed")
        self.assertEqual(one("kill -SEGV $$"), "failed")
        self.assertEqual(one("sleep 100 & wait", limit=0.1), "timed out")

    def test_every_file_that_is_drawn_from_has_tests(self):
        tests = mutants.nearest("pserver/tables/sparse_table.cc")
        self.assertEqual(tests[0], "//tests/pserver/tables:sparse_table_test")
        self.assertIn("//tests/pserver/client:all", mutants.nearest("pserver/client/client.cc"))
        with self.assertRaises(mutants.Stop):
            mutants.nearest("framework/base/clock.cc")


if __name__ == "__main__":
    unittest.main()
