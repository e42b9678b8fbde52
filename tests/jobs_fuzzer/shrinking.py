"""Makes a failing case smaller, for as long as it fails in the same way."""

from __future__ import annotations

import copy
import time

import message


def shrink(case, failure, seconds, fails):
    """The smallest case found within so many seconds. `fails` runs a case and returns its Failure, or None."""
    end = time.monotonic() + seconds
    smallest = case

    def still(candidate):
        # What depends on moments may fail only now and then.
        for _ in range(2 if any(a.get("disturbance") for a in candidate["attempts"]) else 1):
            if time.monotonic() > end:
                return False
            found = fails(candidate)
            if found is not None:
                return failure.alike(found)
        return False

    again = True
    while again and time.monotonic() < end:
        again = False
        for candidate in _candidates(smallest):
            if time.monotonic() > end:
                break
            if still(candidate):
                smallest, again = candidate, True
                break
    return smallest


def _candidates(case):
    """Smaller cases, those that promise most first."""
    yield from _attempts(case)
    if case["shows"] != "bits" or case["mode"] == "per_host":
        yield from _sizes(case)
    yield from _data(case)
    yield from _fields(case)


def _with(case, **more):
    made = copy.deepcopy(case)
    made.update(copy.deepcopy(more))
    return made


def _attempts(case):
    attempts = case["attempts"]
    for i in range(len(attempts) - 1):
        yield _with(case, attempts=attempts[:i] + attempts[i + 1 :])
    for i, attempt in enumerate(attempts):
        smaller = []
        what = attempt.get("disturbance") or {}
        named = " ".join(str(what.get(k)) for k in ("fault", "victim"))
        # Else a resume has to have as many trainers, and perhaps servers: `_sizes`.
        if not attempt["local"] and case["shows"] == "bits" and case["mode"] != "per_host":
            for kind in ("servers", "trainers"):
                least = 1 if kind == "trainers" else 0
                for fewer in range(least, attempt[kind]):
                    if all("%s.%d" % (kind[:-1], n) not in named for n in range(fewer, attempt[kind])):
                        smaller.append({kind: fewer})
        for flag in ("keep_going", "long_tmp"):
            if attempt.get(flag):
                smaller.append({flag: False})
        if attempt["sets"]:
            smaller.append({"sets": []})
            smaller += [{"sets": attempt["sets"][:j] + attempt["sets"][j + 1 :]} for j in range(len(attempt["sets"]))]
        for one in smaller:
            yield _with(case, attempts=attempts[:i] + [dict(attempt, **one)] + attempts[i + 1 :])


def _sizes(case):
    """All attempts with fewer servers or trainers, in jobs whose result depends on them."""
    attempts = case["attempts"]
    said = str([a.get("disturbance") for a in attempts])
    for kind in ("servers", "trainers"):
        size = max(a[kind] for a in attempts)
        for fewer in range(1, size):
            if all("%s.%d" % (kind[:-1], n) not in said for n in range(fewer, size)):
                yield _with(case, attempts=[dict(a, **{kind: min(a[kind], fewer)}) for a in attempts])


def _data(case):
    columns = case["columns"]
    if case["lines"] > 16:
        yield _with(case, lines=case["lines"] // 2)
    if case["eval_lines"] > 5:
        yield _with(case, eval_lines=5)
    if case["predict"]:
        yield _with(case, predict=False)
    if case["late_s"]:
        yield _with(case, late_s=0)
    files = 2 if case["follow"] else 1
    for name, plain in (("files", files), ("packing", "plain"), ("order", "random"), ("wild", 0), ("bad", 0)):
        if columns[name] != plain:
            yield _with(case, columns=dict(columns, **{name: plain}))
    if columns["converted"]:
        made = _with(case, columns=dict(columns, converted=False))
        made["job"] = message.without_ending(made["job"], '.examples"')
        yield made


def _fields(case):
    """Without one field of the job, and without one layer, whose readers read its input instead."""
    job = case["job"]
    layers = message.get(message.get(job, "model"), "layer") and message.get(job, "model") or []
    for field in layers:
        if field[0] != "layer":
            continue
        kind = next(f for f in field[1] if f[0] != "name")
        source = kind[0] != "embedding" and message.get(kind[1], "input")
        if not source:
            continue
        made = copy.deepcopy(case)
        model = message.get(made["job"], "model")
        model[:] = [f for f in model if f != field]
        name = message.get(field[1], "name")
        for table_or_layer in [model]:
            table_or_layer[:] = message.renamed(table_or_layer, name, source)
        yield made
    fixed = {"name", "data.train", "data.batch_size", "train.lanes", "checkpoint.dir", "model", "data"}
    reader = case["columns"]["format"]
    for place in message.walk(job):
        names, fields = [], job
        for i in place:
            names.append(fields[i][0])
            fields = fields[i][1]
        path = ".".join(names)
        if path in fixed or path.startswith("data." + reader) or path.startswith("data.train") or names[-1] == "name":
            continue
        if path == "data.eval" or path == "data.follow":
            continue
        made = copy.deepcopy(case)
        made["job"] = message.without(made["job"], place)
        yield made
