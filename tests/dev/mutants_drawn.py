"""One-line mutants of C++ source by fixed operators, and the drawing of some by a seed.

  comparison  < to <=, == to !=, && to ||, min to max, !x to x
  statement   a call, an assignment or an `if` without else, on a line of its own, is dropped
  off by one  x + 1 to x, v.size() to v.size() - 1, v[i] to v[i + 1]
  sign        + to -, += to -=, -x to x, ++x to --x
  constant    a number to its neighbour, true to false
  arguments   two neighbouring arguments of a call change places

Only bodies of functions are changed, without what is computed at compile time, logged, checked by CHECK or put into
messages.
"""

import dataclasses
import hashlib
import re

import mutants_cpp

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
# Their arguments are text for people, known at compile time, or without effect on results.
_SILENT = re.compile(
    r"D?P?CHECK\w*|D?V?P?LOG\w*|static_assert|sizeof|alignas|alignof|decltype|noexcept|requires|StrCat|StrAppend\w*|"
    r"StrFormat|StrJoin|Substitute|\w*Error\w*|Describe\w*|ProfileSpan|ProfileName|HandledCall|Prefetch|"
    r"__builtin_prefetch|ABSL_\w+|REGISTER_\w+|"
    r"_mm\w+|_MM\w+|reserve|shrink_to_fit|swap|assert|AssertHeld|wrong|outside|memory_order\w*"
)
# A statement that begins with one of these is left as it is.
_LEFT = frozenset(
    [
        "constexpr",
        "static",
        "static_assert",
        "using",
        "case",
        "template",
        "typedef",
        "enum",
        "struct",
        "class",
        "default",
    ]
)
_KEYWORDS = frozenset(
    [
        "return",
        "co_return",
        "if",
        "for",
        "while",
        "else",
        "do",
        "case",
        "break",
        "continue",
        "using",
        "const",
        "auto",
        "static",
        "goto",
        "switch",
        "throw",
        "delete",
        "new",
        "default",
        "typename",
        "operator",
        "sizeof",
        "void",
        "bool",
        "int",
        "char",
        "float",
        "double",
        "unsigned",
        "try",
        "catch",
    ]
)
_OPERAND_END = frozenset([")", "]", "}"])


@dataclasses.dataclass(frozen=True)
class Mutant:
    id: str
    operator: str  # or "chosen"
    file: str
    start: int  # text [start, end) of the file becomes `new`
    end: int
    new: str
    region: tuple  # goes behind a switch (mutants_cpp.Source.place)
    line: int
    tests: tuple = ()  # instead of the room's

    def lines(self, source):
        """The line of the change before and after it."""
        begin = source.line_start(self.line)
        stop = source.text.find("\n", self.end)
        stop = len(source.text) if stop < 0 else stop
        before = source.text[begin:stop]
        after = source.text[begin : self.start] + self.new + source.text[self.end : stop]
        return " ".join(before.split()), " ".join(after.split()) or "(nothing)"


def bodies(source):
    """Token ranges of the bodies of functions that run, not of constexpr ones."""
    tokens = source.tokens
    found = []
    head, i = 0, 0
    while i < len(tokens):
        token = tokens[i]
        if token.text in (";", "}"):
            i += 1
            head = i
            continue
        if token.match is None or not token.opens() or token.angle:
            i += 1
            continue
        if token.text != "{":
            i = token.match + 1
            continue
        words = _outside_brackets(source, head, i)
        before = tokens[i - 1]
        if "=" in words and "operator" not in words:
            i = token.match + 1  # an initial value
        elif "(" in words and (before.text in (")", "}", "const", "noexcept", "override", "final") or "->" in words):
            if "constexpr" not in words and "consteval" not in words:
                found.append((i, token.match))
            i = head = token.match + 1
        elif {"namespace", "class", "struct", "union", "extern"} & words:
            i += 1
            head = i
        else:
            i = token.match + 1
    return found


def _outside_brackets(source, first, last):
    words, i = set(), first
    while i < last:
        token = source.tokens[i]
        words.add(token.text)
        i = token.match + 1 if token.opens() and token.match < last else i + 1
    return words


class _File:
    """The candidates of one file."""

    def __init__(self, path, source):
        self.path = path
        self.source = source
        self.tokens = source.tokens
        self.changes = []  # (operator, start, end, new)
        for first, last in bodies(source):
            for i in range(first + 1, last):
                if not self._silent(i):
                    self._comparison(i)
                    self._statement(i)
                    self._off_by_one(i)
                    self._sign(i)
                    self._constant(i)
                    self._arguments(i)

    def _add(self, operator, start, end, new):
        self.changes.append((operator, start, end, new))

    def _text(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def _silent(self, i):
        """Whether token i is in a message, a check, or known at compile time."""
        at = i
        while True:
            # Towards the begin of the statement, out of brackets.
            at -= 1
            if at < 0:
                return True
            token = self.tokens[at]
            if token.opens():
                if token.angle:
                    return True
                if token.text == "{" and self._is_block(at):
                    break
                if token.text == "(" and _SILENT.fullmatch(self._text(at - 1)):
                    return True
            elif token.closes():
                if token.text == "}" and self.source.begins_statement(at + 1):
                    break
                if token.text == ")" and self._text(token.match - 1) in mutants_cpp.CONTROL:
                    break
                at = token.match
            elif token.text in (";", "else", "do"):
                break
        first = self.tokens[at + 1]
        return first.text in _LEFT or _SILENT.fullmatch(first.text) is not None

    def _is_block(self, i):
        return self._text(i - 1) in (")", "]", ";", "{", "}", ":", "else", "do", "try", "mutable", "const") or "->" in (
            self._text(i - 2),
            self._text(i - 3),
        )

    def _is_operand_end(self, i):
        token = self.tokens[i]
        return (
            token.kind in ("number", "char", "string")
            or token.text in _OPERAND_END
            or token.angle
            or (token.kind == "name" and token.text not in _KEYWORDS)
        )

    def _is_binary(self, i):
        return self.source.spaced(i) and self._is_operand_end(i - 1) and not self.tokens[i].angle

    def _is_prefix(self, i):
        token = self.tokens[i]
        return not self._is_operand_end(i - 1) and self.tokens[i + 1].start == token.end

    def _comparison(self, i):
        token = self.tokens[i]
        if token.kind == "punct" and token.text in COMPARISONS and self._is_binary(i):
            self._add("comparison", token.start, token.end, COMPARISONS[token.text])
        elif token.text == "!" and self._is_prefix(i):
            self._add("comparison", token.start, token.end, "")
        elif token.text in ("min", "max") and self._text(i - 1) == "::" and self._text(i + 1) in ("(", "<"):
            self._add("comparison", token.start, token.end, "max" if token.text == "min" else "min")

    def _statement(self, i):
        token = self.tokens[i]
        line = self.source.line(token.start)
        if token.text == "if":
            self._guard(i)
        if not self.source.begins_statement(i) or token.text in _KEYWORDS or token.text in _LEFT:
            return
        if token.kind != "name" and token.text not in ("++", "--", "*"):
            return
        if self.source.text[self.source.line_start(line) : token.start].strip():
            return
        acts = token.text in ("++", "--")
        at, named = i + (token.kind != "name"), False
        while True:
            each = self.tokens[at]
            if self.source.line(each.start) != line:
                return
            if each.text == ";":
                break
            if each.text in mutants_cpp.ASSIGNMENTS or each.text in ("++", "--"):
                acts = True
            if each.kind == "name" and not acts:
                # Two names in a row declare something; so do a type and a name behind * or &.
                if named or self._text(at - 1) in ("*", "&", "&&") and at - 1 > i or self.tokens[at - 1].angle:
                    return
                if _SILENT.fullmatch(each.text):
                    return
                named = True
            else:
                named = False
            if each.opens():
                if each.text == "(":
                    acts = True
                if self.tokens[each.match].text == "}" and not acts:
                    return
                at = each.match
            at += 1
        if acts and token.text != "ASSIGN_OR_RETURN":
            self._add("statement", token.start, self.tokens[at].end, "")

    def _guard(self, i):
        """An `if` on one line, without else."""
        token = self.tokens[i]
        line = self.source.line(token.start)
        at = i
        while self._text(at) != ";" and at + 1 < len(self.tokens):
            each = self.tokens[at]
            at = each.match + 1 if each.opens() else at + 1
        if (
            self.source.line(self.tokens[at].start) == line
            and self._text(at + 1) != "else"
            and self.source.begins_statement(i)
        ):
            if not self.source.text[self.source.line_start(line) : token.start].strip():
                self._add("statement", token.start, self.tokens[at].end, "")

    def _off_by_one(self, i):
        token = self.tokens[i]
        if (
            token.text in ("+", "-")
            and self._is_binary(i)
            and self._text(i + 1) == "1"
            and self._text(i + 2) not in ("*", "/", "%", "<<")
        ):
            self._add("off by one", self.tokens[i - 1].end, self.tokens[i + 1].end, "")
        elif (
            token.text == "size"
            and self._text(i - 1) in (".", "->")
            and self._text(i + 1) == "("
            and self._text(i + 2) == ")"
        ):
            self._add("off by one", self.tokens[i + 2].end, self.tokens[i + 2].end, " - 1")
        elif (
            token.text == "["
            and token.match is not None
            and self._is_operand_end(i - 1)
            and self.tokens[i - 1].end == token.start
        ):
            before = self.tokens[i - 2]
            declares = before.angle or (before.kind == "name" and before.text not in ("return", "else", "in"))
            inside = self.tokens[i + 1 : token.match]
            plain = all(
                t.kind in ("name", "number") or t.angle or t.text in ("+", "-", "*", ".", "->", "(", ")", "::", "++")
                for t in inside
            )
            if inside and plain and not declares and not any(t.text == "const" for t in inside):
                close = self.tokens[token.match]
                self._add("off by one", close.start, close.start, " + 1")

    def _sign(self, i):
        token = self.tokens[i]
        turned = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
        if token.text in turned and self._is_binary(i):
            self._add("sign", token.start, token.end, turned[token.text])
        elif token.text == "-" and self._is_prefix(i):
            self._add("sign", token.start, token.end, "")
        elif token.text in ("++", "--") and self.source.begins_statement(i):
            self._add("sign", token.start, token.end, "--" if token.text == "++" else "++")

    def _constant(self, i):
        token = self.tokens[i]
        if token.text in ("true", "false"):
            self._add("constant", token.start, token.end, "false" if token.text == "true" else "true")
        elif token.kind == "number" and self._text(i - 1) not in ("case", "["):
            whole = re.fullmatch(r"(\d+)([uUlL]*)", token.text)
            if whole:
                value = int(whole[1])
                # Down at every other place, so that both are tried.
                value = value - 1 if value > 0 and i % 2 == 0 else value + 1
                self._add("constant", token.start, token.end, "%d%s" % (value, whole[2]))
            elif re.fullmatch(r"[\d.]+(e[-+]?\d+)?f?", token.text):
                zero = float(token.text.rstrip("f")) == 0
                new = "1.0" + ("f" if token.text.endswith("f") else "") if zero else "(2 * %s)" % token.text
                self._add("constant", token.start, token.end, new)

    def _arguments(self, i):
        token = self.tokens[i]
        if (
            token.text != "("
            or token.match is None
            or self.tokens[i - 1].kind != "name"
            or self._text(i - 1) in _KEYWORDS
        ):
            return
        name = self._text(i - 1)
        if name in ("min", "max") or _SILENT.fullmatch(name) or name.isupper():
            return
        # A name before the callee's would make it a declaration.
        at = i - 1
        while self._text(at - 1) in ("::", ".", "->") and self.tokens[at - 2].kind == "name":
            at -= 2
        before = self.tokens[at - 1]
        if before.angle or before.kind == "name" and before.text not in ("return", "else"):
            return
        arguments, first = [], i + 1
        at = i + 1
        while at <= token.match:
            each = self.tokens[at]
            if at == token.match or each.text == ",":
                arguments.append((first, at))
                first = at + 1
            at = each.match + 1 if each.opens() else at + 1
        for (a, a_end), (b, b_end) in zip(arguments, arguments[1:]):
            if self._path(a, a_end) is None or self._path(a, a_end) != self._path(b, b_end):
                continue
            start, end = self.tokens[a].start, self.tokens[b_end - 1].end
            one, other = (
                self.source.text[start : self.tokens[a_end - 1].end],
                self.source.text[self.tokens[b].start : end],
            )
            if one != other:
                self._add("arguments", start, end, "%s, %s" % (other, one))

    def _path(self, first, last):
        """Returns a word that is equal for two arguments which may have one type, or None."""
        given = self.tokens[first:last]
        if not all(t.kind in ("name", "number") or t.text in (".", "->", "(", ")", "::", "[", "]") for t in given):
            return None
        if any(t.text in ("true", "false", "nullptr", "this", "memory_order_relaxed") for t in given) or given[
            -1
        ].text in ("data", "size"):
            return None
        return given[-3].text if given[-1].text == ")" and len(given) > 2 else ""


def _digest(*parts):
    return hashlib.sha256("\0".join(str(p) for p in parts).encode()).hexdigest()


def candidates(path, source):
    """All mutants of a file. An id stays what it is while the line, and the number of lines like it before, do."""
    found, seen = [], {}
    for operator, start, end, new in _File(path, source).changes:
        line = source.line(start)
        if source.line(max(start, end - 1)) != line:
            continue
        try:
            change = source.place(start, end, new)
        except mutants_cpp.NotPossible:
            continue
        text = source.line_text(line)
        indent = len(text) - len(text.lstrip())
        key = (path, operator, text.strip(), start - source.line_start(line) - indent, end - start, new)
        seen[key] = seen.get(key, 0) + 1
        found.append(Mutant(_digest(*key, seen[key])[:8], operator, path, *change, line))
    return found


def draw(found, seed, count):
    """Draws `count` mutants, or as many as there are, none inside another: operators in turn, by digests of the seed.

    Arguments have their turn every third time: most that change places have different types and do not compile.
    """
    by_operator = {}
    for mutant in found:
        by_operator.setdefault(mutant.operator, []).append(mutant)
    queues = []
    for operator in sorted(by_operator):
        queues.append(sorted(by_operator[operator], key=lambda m: _digest(seed, m.id), reverse=True))
    drawn, taken, turn = [], {}, 0
    while len(drawn) < count and any(queues):
        turn += 1
        for queue in queues:
            if queue and queue[-1].operator == "arguments" and turn % 3 != 1:
                continue
            while queue and len(drawn) < count:
                mutant = queue.pop()
                if free(mutant, taken):
                    drawn.append(mutant)
                    break
    return drawn


def free(mutant, taken):
    """Whether the mutant's region overlaps none of taken[file]; adds it if so."""
    first, last, _ = mutant.region
    regions = taken.setdefault(mutant.file, [])
    if any(first < end and start < last for start, end in regions):
        return False
    regions.append((first, last))
    return True
