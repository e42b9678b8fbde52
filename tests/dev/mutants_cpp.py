"""C++ source as tokens, and changes of it behind a switch, so that one build holds many mutants.

A change replaces a piece of text. The whole expression or statement around it goes behind the switch:

  if (a < b && c)   with `<` to `<=`   becomes   if ((WEIR_MUTANT(7) ? (a <= b && c) : (a < b && c)))
  Sync(dir);        dropped            becomes   { if (WEIR_MUTANT(8)) { } else { Sync(dir); } }

The source must be laid out by clang-format: a `<` without a space before it opens template arguments. All mutants may
be off while static objects are made, before the environment is read.
"""

import bisect
import re

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\\\n)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<punct><=>|<<=|>>=|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"(?:[^\\\n]|\\.|\\\n)*")

ASSIGNMENTS = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="])
CONTROL = frozenset(["if", "for", "while", "switch", "constexpr"])
_WORDS = frozenset([";", "return", "throw", "else", "do", "case", "if", "for", "while", "switch", "break", "continue"])
_BORDERS = _WORDS | {","}
_TERNARY = frozenset(["?", ":"])
_OPEN = {"(": ")", "[": "]", "{": "}"}

# Reads the environment once. WEIR_MUTANTS_REACHED names a file with a byte for each mutant, set when control comes by.
SWITCH = """\
#ifndef WEIR_MUTANT
#ifdef __CUDA_ARCH__
#define WEIR_MUTANT(n) false
#else
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#define WEIR_MUTANT(n) (::weir_mutants::On(n))
namespace weir_mutants {
__attribute__((unused)) static const int number =
    ::getenv("WEIR_MUTANT") == nullptr ? 0 : ::atoi(::getenv("WEIR_MUTANT"));
__attribute__((unused)) static volatile unsigned char* const reached = []() -> volatile unsigned char* {
  const char* const path = ::getenv("WEIR_MUTANTS_REACHED");
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  void* const bytes = file < 0 ? MAP_FAILED : ::mmap(nullptr, %d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return bytes == MAP_FAILED ? nullptr : static_cast<volatile unsigned char*>(bytes);
}();
__attribute__((always_inline, unused)) static inline bool On(int n) {
  if (reached != nullptr) reached[n] = 1;
  return number == n;
}
}  // namespace weir_mutants
#endif
%s
#endif
#line 1
"""
# Warnings that a mutant may cause and the source does not.
_WARNINGS = [
    "bool-compare",
    "dangling-else",
    "dangling-pointer",
    "div-by-zero",
    "empty-body",
    "enum-compare",
    "extra",
    "implicit-fallthrough",
    "int-in-bool-context",
    "misleading-indentation",
    "narrowing",
    "nonnull",
    "parentheses",
    "pessimizing-move",
    "redundant-move",
    "return-type",
    "sequence-point",
    "sign-compare",
    "type-limits",
    "uninitialized",
    "unused",
    "unused-result",
    "unused-value",
]


class NotPossible(Exception):
    """The change cannot go behind a switch."""


class Token:
    __slots__ = ("kind", "text", "start", "end", "match", "angle")

    def __init__(self, kind, text, start):
        self.kind = kind
        self.text = text
        self.start = start
        self.end = start + len(text)
        self.match = None  # the other bracket's index
        self.angle = False  # a bracket of template arguments

    def opens(self):
        return self.match is not None and (self.angle and self.text == "<" or self.text in _OPEN)

    def closes(self):
        return self.match is not None and not self.opens()


class Source:
    """One file. Comments and preprocessor lines are no tokens."""

    def __init__(self, text):
        self.text = text
        self.tokens = []
        self._lines = [0] + [m.end() for m in re.finditer("\n", text)]
        self._read()
        self._match()

    def line(self, offset):
        return bisect.bisect_right(self._lines, offset)

    def line_text(self, line):
        end = self._lines[line] - 1 if line < len(self._lines) else len(self.text)
        return self.text[self._lines[line - 1] : end]

    def line_start(self, line):
        return self._lines[line - 1]

    def spaced(self, i):
        """Whether token i stands between spaces, as clang-format sets binary operators."""
        token = self.tokens[i]
        return self.text[token.start - 1 : token.start].isspace() and self.text[token.end : token.end + 1].isspace()

    def _read(self):
        at = 0
        fresh = True  # nothing but spaces on this line so far
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            kind, text = found.lastgroup, found.group()
            if kind == "delimiter":
                kind = "raw"
            if kind == "punct" and text == "#" and fresh:
                at = _DIRECTIVE.match(self.text, at).end()
                continue
            if kind == "space":
                fresh = fresh or "\n" in text
            elif kind != "comment":
                fresh = False
                # Two closers of template arguments, where no space stands before them.
                if text == ">>" and not self.text[at - 1].isspace():
                    self.tokens.append(Token(kind, ">", at))
                    self.tokens.append(Token(kind, ">", at + 1))
                else:
                    self.tokens.append(Token(kind, text, at))
            at = found.end()

    def _match(self):
        stack = []
        for i, token in enumerate(self.tokens):
            before = self.text[token.start - 1 : token.start]
            if token.kind != "punct":
                continue
            if token.text in _OPEN:
                stack.append(i)
            elif token.text == "<" and before and not before.isspace() and i > 0 and self.tokens[i - 1].kind == "name":
                token.angle = True
                stack.append(i)
            elif token.text == ">" and not before.isspace() and stack and self.tokens[stack[-1]].angle:
                token.angle = True
                self._pair(stack.pop(), i)
            elif token.text in (")", "]", "}"):
                while stack and self.tokens[stack[-1]].angle:
                    self.tokens[stack.pop()].angle = False
                if stack and _OPEN[self.tokens[stack[-1]].text] == token.text:
                    self._pair(stack.pop(), i)
        for i in stack:
            self.tokens[i].angle = False

    def _pair(self, i, j):
        self.tokens[i].match = j
        self.tokens[j].match = i

    def first_at(self, offset):
        """Index of the first token that ends behind the offset."""
        return bisect.bisect_right(self.tokens, offset, key=lambda t: t.end)

    def enclosing(self, i):
        """Index of the innermost open bracket before token i, or None."""
        i -= 1
        while i >= 0:
            token = self.tokens[i]
            if token.opens():
                return i
            i = token.match - 1 if token.closes() else i - 1
        return None

    def begins_statement(self, i):
        """Whether a statement can begin with token i, judged by what stands before it."""
        if i == 0:
            return False
        before = self.tokens[i - 1]
        if before.text in ("{", ";", "else", "do"):
            return True
        if before.text == ":":
            return not self._is_ternary(i - 1)
        if before.text == ")" and before.match is not None:
            return before.match > 0 and self.tokens[before.match - 1].text in CONTROL
        return before.text == "}" and self._after_block(i)

    def _after_block(self, i):
        token = self.tokens[i]
        return (
            token.kind in ("name", "number")
            or token.text in ("++", "--", "{")
            or (token.text in ("*", "(") and self.line(token.start) > self.line(self.tokens[i - 1].start))
        )

    def _is_ternary(self, colon):
        i = colon - 1
        while i >= 0:
            token = self.tokens[i]
            if token.text == "?":
                return True
            if token.opens() or token.text in (";", "case", "default"):
                return False
            i = token.match - 1 if token.closes() else i - 1
        return False

    def _widen(self, first, last, borders):
        """Widens tokens [first, last) to the brackets or borders around them."""
        while first > 0:
            token = self.tokens[first - 1]
            if token.opens() or token.text in borders:
                break
            if token.closes():
                if token.text == "}" and self._after_block(first):
                    break
                if token.text == ")" and token.match > 0 and self.tokens[token.match - 1].text in CONTROL:
                    break
                first = token.match
            else:
                first -= 1
        while last < len(self.tokens):
            token = self.tokens[last]
            if token.closes() or token.text in borders:
                break
            last = token.match + 1 if token.opens() else last + 1
        return first, last

    def place(self, start, end, new):
        """Narrows the change of text [start, end) to the tokens that differ. Returns (start, end, new, region).

        The region goes behind the switch: (start, end, whether it is statements) of the expression or statements
        around the change.
        """
        first, last = self.first_at(start), self.first_at(end)
        if (
            first < len(self.tokens)
            and self.tokens[first].start < start
            or last < len(self.tokens)
            and self.tokens[last].start < end
        ):
            raise NotPossible("begins or ends in the middle of a token")
        fresh = Source(new).tokens
        old = self.tokens[first:last]
        front = 0
        while front < min(len(old), len(fresh)) and old[front].text == fresh[front].text:
            front += 1
        back = 0
        while back < min(len(old), len(fresh)) - front and old[-1 - back].text == fresh[-1 - back].text:
            back += 1
        first, last, fresh = first + front, last - back, fresh[front : len(fresh) - back]
        if first == last and not fresh:
            raise NotPossible("changes nothing")
        if front or back:
            start, end = (
                (self.tokens[first].start, self.tokens[last - 1].end)
                if first < last
                else (self.tokens[first].start,) * 2
            )
            new = new[fresh[0].start : fresh[-1].end] if fresh else ""
            new = _apart(self.text[start - 1 : start], new) + new + _apart(new, self.text[end : end + 1])
        first, last = self._balance(first, last)
        changed = _outside_brackets(self.tokens[first:last]) | _outside_brackets(fresh)
        if changed & _WORDS:
            first, last = self._statements(first, last)
            return start, end, new, (self.tokens[first].start, self.tokens[last - 1].end, True)
        borders = _BORDERS
        if not changed & ASSIGNMENTS:
            borders = borders | ASSIGNMENTS if changed & _TERNARY else borders | ASSIGNMENTS | _TERNARY
        if "," in changed:
            bracket = self.enclosing(first)
            if bracket is None or self.tokens[bracket].text == "{":
                raise NotPossible("is no part of an expression")
            first, last = bracket, self.tokens[bracket].match + 1
        first, last = self._widen(first, last, borders)
        bracket = self.enclosing(first)
        if bracket is None or self.tokens[bracket].angle or first >= last:
            raise NotPossible("is no part of an expression")
        return start, end, new, (self.tokens[first].start, self.tokens[last - 1].end, False)

    def _balance(self, first, last):
        """Widens tokens [first, last) until every bracket in them has its other one there."""
        at = first
        while at < last:
            match = self.tokens[at].match
            if match is not None and match < first:
                first = at = match
                continue
            if match is not None:
                last = max(last, match + 1)
            at += 1
        return first, last

    def _statements(self, first, last):
        """Widens tokens [first, last) to whole statements."""
        while not self.begins_statement(first):
            first -= 1
            if first < 0 or self.tokens[first].opens():
                raise NotPossible("is no part of a statement")
            if self.tokens[first].closes():
                first = self.tokens[first].match
        while self.tokens[last - 1].text not in (";", "}"):
            if last >= len(self.tokens) or self.tokens[last].closes():
                raise NotPossible("is no part of a statement")
            last = self.tokens[last].match + 1 if self.tokens[last].opens() else last + 1
        return first, last


def _apart(left, right):
    """The space that two texts need between them to stay two tokens."""
    if not left or not right:
        return ""
    words = (left[-1].isalnum() or left[-1] == "_") and (right[0].isalnum() or right[0] == "_")
    return " " if words or left[-1] in "+-*/%<>=&|!:" and right[0] in "+-*/%<>=&|!:" else ""


def _outside_brackets(tokens):
    """The texts of tokens that stand in no bracket among them."""
    found, depth = set(), 0
    for token in tokens:
        if token.text in _OPEN or token.angle and token.text == "<":
            depth += 1
        elif token.text in _OPEN.values() or token.angle:
            depth = max(0, depth - 1)
        elif depth == 0:
            found.add(token.text)
    return found


def one_line(text):
    """The text without comments and line ends."""
    source = Source(text)
    parts, at = [], None
    for token in source.tokens:
        if at is not None and token.start > at:
            parts.append(" ")
        parts.append(token.text)
        at = token.end
    return "".join(parts)


def switched(text, changes, numbers):
    """The text of a file with all changes behind switches; lines keep their numbers.

    changes: as Source.place() gives them, none inside another.
    numbers: of the mutants, one for each change.
    """
    for (start, end, new, (first, last, statement)), number in sorted(zip(changes, numbers), key=lambda c: -c[0][3][0]):
        old = text[first:last]
        mutated = one_line(text[first:start] + new + text[end:last])
        if statement:
            both = "{ if (WEIR_MUTANT(%d)) { %s } else { %s } }" % (number, mutated, old)
        else:
            both = "(WEIR_MUTANT(%d) ? (%s) : (%s))" % (number, mutated, old)
        text = text[:first] + both + text[last:]
    return text


def switch(most):
    """Text to put before a file with mutants; numbers go up to `most`."""
    pragmas = "\n".join('#pragma GCC diagnostic ignored "-W%s"' % each for each in _WARNINGS)
    return SWITCH % (most + 1, pragmas)
