"""Draws the columns of a job's data, and writes its files in any format.

A set of columns is JSON: a format, labels, floats, ids, and how the examples are ordered, divided and packed. Examples
are a function of it, so that files need not be kept.
"""

from __future__ import annotations

import gzip
import math
import os
import random
import struct
import time

from message import message, quoted

FORMATS = ("criteo", "csv", "multi_slot", "lib_svm", "slot_sign", "tf_record", "idx")
PIXELS = 6  # edge of a picture of `idx`
TIME0 = 1700000000


# Columns ------------------------------------------------------------------------------------------------------------


def draw(rng, zero_empty, text_ids, label):
    """Columns of one of the formats. `label`: "binary", "real", "count" or "class"."""
    kind = rng.choices(FORMATS, (5, 5, 4, 3, 3, 3, 2))[0]
    if kind == "idx" and label not in ("class", "real"):
        kind = "criteo"
    if kind == "criteo" and label == "class":
        kind = "csv"
    columns = {
        "format": kind,
        "seed": rng.randrange(1 << 30),
        "labels": [{"name": "label", "kind": label, "classes": rng.choice((2, 3, 5))}],
        "floats": [],
        "ids": [],
        "order": rng.choice(("random", "random", "sorted", "alternating")),
        "packing": rng.choices(("plain", "gzip", "zstd", "mixed"), (5, 2, 2, 1))[0],
        "files": rng.choice((1, 1, 2, 3, 5)),
        "converted": False,
        "wild": 0,
        "bad": 0,
    }
    if kind == "idx":
        columns["packing"] = rng.choice(("plain", "gzip"))
        columns["floats"] = [{"name": "image", "width": PIXELS * PIXELS, "missing": 0.0}]
        return columns
    missing = 0.0 if zero_empty and rng.random() < 0.6 else rng.choice((0.0, 0.05, 0.3))
    if kind == "criteo":
        columns["floats"] = [{"name": "dense", "width": rng.randint(1, 4), "missing": rng.choice((0.0, 0.1))}]
        columns["ids"] = [
            {"name": "cat", "slots": rng.randint(1, 4), "most": 1, "weighted": False, "text": False, "missing": missing}
        ]
    else:
        for i in range(rng.randint(1, 3)):
            width = rng.choice((1, 1, 2, 3))
            columns["floats"].append({"name": "f%d" % i, "width": width, "missing": rng.choice((0.0, 0.1))})
        for i in range(rng.randint(1, 3)):
            most = rng.choice((1, 1, 4))
            columns["ids"].append(
                {
                    "name": "u%d" % i,
                    "slots": 1,
                    "most": most,
                    "weighted": most > 1 and kind != "slot_sign" and rng.random() < 0.3,
                    "text": text_ids and kind in ("csv", "tf_record") and rng.random() < 0.4,
                    "missing": missing,
                }
            )
        if kind != "lib_svm" and rng.random() < 0.3:
            missing = rng.choice((0, 0.2))
            columns["labels"].append({"name": "label2", "kind": "binary", "classes": 2, "missing": missing})
        if kind == "csv" and rng.random() < 0.3:
            columns["time"] = rng.choice(("id", "time"))
            columns["time_zone"] = rng.randrange(-720, 721, 60)
        if kind == "csv":
            columns["header"] = rng.random() < 0.7
            columns["separator"] = rng.choice((",", ";", "\t"))
            columns["quotes"] = rng.random() < 0.3
            columns["words"] = label == "binary" and rng.random() < 0.3
            # Not of `rng`, from which all that follows is drawn.
            columns["dialect"] = random.Random(columns["seed"]).random() < 0.3
            if columns["dialect"]:
                columns["separator"] = "::"
    for ids in columns["ids"]:
        ids["values"] = rng.choice((5, 30, 200))
    if kind == "lib_svm":
        columns["fields"] = rng.random() < 0.4
    if kind == "slot_sign":
        columns["sign_first"] = rng.random() < 0.3
        columns["leading"] = rng.random() < 0.5
    if kind != "idx" and rng.random() < 0.25:
        columns["converted"] = True
    return columns


def reader(columns):
    """The reader of the job, as (field of data, message)."""
    kind, made = columns["format"], []
    labels = [label["name"] for label in columns["labels"]]
    if kind == "criteo":
        return kind, message(integers=columns["floats"][0]["width"], categoricals=columns["ids"][0]["slots"])
    if kind == "idx":
        return kind, message(values=PIXELS * PIXELS)
    if kind == "csv":
        for name in labels:
            classes = None
            if columns["words"] and name == "label":
                classes = (message(text=quoted("no")), message(text=(quoted("yes"), quoted("si"))))
            made.append(message(name=quoted(name), classes=classes))
        for f in columns["floats"]:
            more = {} if f["width"] == 1 else {"list": quoted("|"), "dim": f["width"]}
            made.append(message(name=quoted(f["name"]), **more))
        for u in columns["ids"]:
            more = {} if u["most"] == 1 else {"list": quoted("|")}
            if u["weighted"]:
                more["weight"] = quoted(":")
            made.append(message(name=quoted(u["name"]), type="TEXT" if u["text"] else "ID", **more))
        if "time" in columns:
            form = quoted("%Y-%m-%d %H:%M:%S") if columns["time"] == "time" else None
            made.append(message(name=quoted("when"), type=columns["time"].upper(), time_format=form))
        separator = {"\t": "\\t"}.get(columns["separator"], columns["separator"])
        more = {}
        if columns.get("dialect"):
            more = {"quote": quoted("'"), "comment": quoted("#"), "skip_lines": 1}
            more |= {"decimal_comma": True, "skip_blank_lines": True}
        return kind, message(column=tuple(made), header=columns["header"], separator=quoted(separator), **more)
    if kind == "lib_svm":
        at = 1
        for field, f in enumerate(columns["floats"] + columns["ids"]):
            size = f.get("width") or f["values"]
            more = {"field": field} if columns["fields"] else {}
            is_ids = "values" in f
            first, last = at, at + size - 1
            if columns["fields"] and is_ids:
                first, last = None, None
            kind = "IDS" if is_ids else "FLOAT"
            made.append(message(name=quoted(f["name"]), type=kind, first=first, last=last, **more))
            at += size
        return kind, message(slot=tuple(made), fields=columns["fields"])
    number = {"multi_slot": "slot", "slot_sign": "slot", "tf_record": "feature"}[kind]
    for name in labels:
        made.append(message(name=quoted(name), type="FLOAT"))
    for f in columns["floats"]:
        made.append(message(name=quoted(f["name"]), type="FLOAT", dim=f["width"]))
    for u in columns["ids"]:
        type_of = "IDS" if kind != "tf_record" else "TEXT" if u["text"] else "ID"
        weights = quoted(u["name"] + "_w") if kind == "tf_record" and u["weighted"] else None
        made.append(message(name=quoted(u["name"]), type=type_of, weights=weights))
    more = {}
    if kind == "slot_sign":
        more = {"sign_first": columns["sign_first"], "leading": quoted("label") if columns["leading"] else None}
    return kind, message((number, tuple(made)), **more)


# Examples -----------------------------------------------------------------------------------------------------------


def examples(columns, lines, seed):
    """So many examples: {"label": x, "dense": [..] or None, "cat": [[(id, weight), ..] per slot]}."""
    rng = random.Random("%d.%s" % (columns["seed"], seed))
    made = [_example(columns, rng) for _ in range(lines)]
    for i in range(min(columns["wild"], len(made))):
        # Finite, and too much for a model: the step that has it is skipped.
        floats = columns["floats"][0]
        made[(7 + 13 * i) % len(made)][floats["name"]] = [3e38] * floats["width"]
    if columns["order"] == "sorted":
        made.sort(key=lambda e: e["label"])
    elif columns["order"] == "alternating":
        low = sorted(made, key=lambda e: e["label"])
        half = (len(low) + 1) // 2
        made = [e for pair in zip(low[:half], low[half:] + [None]) for e in pair if e is not None]
    return made


def _example(columns, rng):
    made, signal = {}, 0.0
    for f in columns["floats"]:
        if rng.random() < f["missing"]:
            made[f["name"]] = None
            continue
        if columns["format"] == "idx":
            made[f["name"]] = [rng.randrange(256) for _ in range(f["width"])]
            signal += made[f["name"]][0] / 128 - 1
        else:
            made[f["name"]] = [rng.choice((0, 1, 2, 3, 7, 40)) * rng.choice((1, 0.5)) for _ in range(f["width"])]
            if columns["format"] == "criteo":
                made[f["name"]] = [int(x) if rng.random() > f["missing"] else None for x in made[f["name"]]]
            signal += 0.05 * (made[f["name"]][0] or 0)
    for u in columns["ids"]:
        slots = []
        for _ in range(u["slots"]):
            count = 0 if rng.random() < u["missing"] else rng.randint(1, u["most"])
            ids = [min(int(rng.expovariate(4 / u["values"])), u["values"] - 1) for _ in range(count)]
            slots.append([(i, rng.choice((0.5, 1, 2)) if u["weighted"] else 1) for i in ids])
            signal += 0.5 * sum(1 if i % 3 == 0 else -0.5 for i in ids)
        made[u["name"]] = slots
    for label in columns["labels"]:
        if rng.random() < label.get("missing", 0):
            made[label["name"]] = None
            continue
        noisy = signal + rng.gauss(0, 1)
        kind = label["kind"]
        made[label["name"]] = {
            "binary": int(noisy > 0.3),
            "real": round(noisy, 3),
            "count": min(int(abs(noisy) * 2), 9),
            "class": min(int(abs(noisy) * 2), label["classes"] - 1),
        }[kind]
    made["when"] = TIME0 + rng.randrange(100000000)
    return made


# Files --------------------------------------------------------------------------------------------------------------


def split(lines, files, seed):
    """Divides lines unevenly over files; each has one at least."""
    rng = random.Random("split.%d" % seed)
    weights = [rng.choice((1, 1, 4)) for _ in range(files)]
    sizes = [max(1, lines * w // sum(weights)) for w in weights]
    sizes[-1] = max(1, lines - sum(sizes[:-1]))
    return sizes


def write(columns, directory, lines, seed, prefix, files):
    """Writes files prefix-0, prefix-1, ... with the examples. Returns their names."""
    os.makedirs(directory, exist_ok=True)
    rng = random.Random("packing.%d" % columns["seed"])
    made, names = examples(columns, lines, seed), []
    for i, count in enumerate(split(lines, files, columns["seed"])):
        some, made = made[:count], made[count:]
        packing = columns["packing"]
        if packing == "mixed":
            packing = rng.choice(("plain", "gzip", "zstd"))
        if columns["format"] == "idx":
            parts = _idx(some)
            names.append("%s-images-%d" % (prefix, i))
            _pack(os.path.join(directory, "%s-labels-%d" % (prefix, i)), parts[1], packing)
            _pack(os.path.join(directory, names[-1]), parts[0], packing)
            continue
        names.append("%s-%d%s" % (prefix, i, {"plain": "", "gzip": ".gz", "zstd": ".zst"}[packing]))
        _pack(os.path.join(directory, names[-1]), _bytes(columns, some), packing)
    return names


def _pack(path, content, packing):
    if packing == "gzip":
        content = gzip.compress(content, 1, mtime=0)
    elif packing == "zstd":
        content = zstd_frame(content)
    with open(path, "wb") as file:
        file.write(content)


def zstd_frame(content):
    """A frame of zstd whose blocks are not compressed."""
    made = struct.pack("<IBI", 0xFD2FB528, 0xA0, len(content))
    pieces = [content[at : at + 100000] for at in range(0, len(content), 100000)] or [b""]
    for i, piece in enumerate(pieces):
        made += struct.pack("<I", len(piece) << 3 | (i == len(pieces) - 1))[:3] + piece
    return made


def _bytes(columns, some):
    kind = columns["format"]
    if kind == "tf_record":
        return b"".join(_record(columns, e) for e in some)
    lines = [_LINES[kind](columns, e) for e in some]
    for i in range(columns["bad"]):
        lines.insert((5 + 11 * i) % len(lines), "this is no line")
    if kind == "csv" and columns["header"]:
        names = [x["name"] for x in columns["labels"] + columns["floats"] + columns["ids"]]
        names += ["when"] if "time" in columns else []
        lines.insert(0, columns["separator"].join(names))
    if columns.get("dialect"):
        for at in range(len(lines), -1, -7):
            lines[at:at] = ["", "# no line", " "]
        lines.insert(0, "about the data,\"::")
    return "".join(line + "\n" for line in lines).encode("ascii")


def _number(x):
    return "" if x is None else "%g" % x


def _word(i):
    return "w%d" % i


def _id(u, i, weight):
    name = _word(i) if u["text"] else "%d" % i
    return "%s:%g" % (name, weight) if u["weighted"] else name


def _criteo(columns, e):
    dense = e["dense"] or [None] * columns["floats"][0]["width"]
    words = ["%g" % e["label"]] + [_number(x) for x in dense]
    return "\t".join(words + ["".join("%x" % i for i, _ in slot) for slot in e["cat"]])


def _csv(columns, e):
    words = []
    for label in columns["labels"]:
        value = e[label["name"]]
        words.append(("no", "yes")[value] if columns["words"] and label["name"] == "label" else _number(value))
    for f in columns["floats"]:
        words.append("|".join(_number(x) for x in e[f["name"]] or []))
    for u in columns["ids"]:
        words.append("|".join(_id(u, i, w) for i, w in e[u["name"]][0]))
    if columns.get("time") == "id":
        words.append("%d" % e["when"])
    elif columns.get("time") == "time":
        words.append(_time_text(e["when"]))
    if columns.get("dialect"):
        words = [w.replace(".", ",") for w in words]
    if columns["quotes"]:
        quote = "'" if columns.get("dialect") else '"'
        words = [quote + w + quote if w else w for w in words]
    return columns["separator"].join(words)


def _time_text(seconds):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _multi_slot(columns, e):
    words = []
    for label in columns["labels"]:
        value = e[label["name"]]
        words += ["0"] if value is None else ["1", "%g" % value]
    for f in columns["floats"]:
        values = e[f["name"]] or []
        words += ["%d" % len(values)] + ["%g" % x for x in values]
    for u in columns["ids"]:
        ids = e[u["name"]][0]
        words += ["%d" % len(ids)] + [_id(u, i, w) for i, w in ids]
    return " ".join(words)


def _lib_svm(columns, e):
    words, at = ["%g" % e["label"]], 1
    for field, f in enumerate(columns["floats"] + columns["ids"]):
        head = "%d:" % field if columns["fields"] else ""
        if "values" in f:
            first = 0 if columns["fields"] else at
            words += ["%s%d:%g" % (head, first + i, w) for i, w in sorted(dict(e[f["name"]][0]).items())]
            at += f["values"]
        else:
            words += ["%s%d:%g" % (head, at + i, x) for i, x in enumerate(e[f["name"]] or [])]
            at += f["width"]
    return " ".join(words)


def _slot_sign(columns, e):
    words = []
    for label in columns["labels"]:
        if not (columns["leading"] and label["name"] == "label") and e[label["name"]] is not None:
            words.append((label["name"], "%g" % e[label["name"]]))
    for f in columns["floats"]:
        words += [(f["name"], "%g" % x) for x in e[f["name"]] or []]
    for u in columns["ids"]:
        words += [(u["name"], "%d" % i) for i, _ in e[u["name"]][0]]
    pairs = ["%s:%s" % (s, n) if columns["sign_first"] else "%s:%s" % (n, s) for n, s in words]
    return " ".join((["%g" % e["label"]] if columns["leading"] else []) + pairs)


_LINES = {"criteo": _criteo, "csv": _csv, "multi_slot": _multi_slot, "lib_svm": _lib_svm, "slot_sign": _slot_sign}


def _idx(some):
    images = struct.pack(">IIII", 0x803, len(some), PIXELS, PIXELS) + b"".join(bytes(e["image"]) for e in some)
    labels = struct.pack(">II", 0x801, len(some)) + bytes(max(0, min(255, int(e["label"]))) for e in some)
    return images, labels


# TFRecord -----------------------------------------------------------------------------------------------------------


def _crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


_CRC = _crc_table()


def _masked_crc(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(n):
    made = bytearray()
    while n > 127:
        made.append(n & 127 | 128)
        n >>= 7
    made.append(n)
    return bytes(made)


def _field(number, content):
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _feature(name, kind, values):
    if kind == "float":
        inner = _field(2, _field(1, struct.pack("<%df" % len(values), *values)))
    elif kind == "id":
        inner = _field(3, _field(1, b"".join(_varint(v) for v in values)))
    else:
        inner = _field(1, b"".join(_field(1, v.encode("ascii")) for v in values))
    return _field(1, _field(1, name.encode("ascii")) + _field(2, inner))


def _record(columns, e):
    labels = [x["name"] for x in columns["labels"] if e[x["name"]] is not None]
    features = b"".join(_feature(name, "float", [e[name]]) for name in labels)
    for f in columns["floats"]:
        if e[f["name"]] is not None:
            features += _feature(f["name"], "float", e[f["name"]])
    for u in columns["ids"]:
        ids = e[u["name"]][0]
        values = [_word(i) if u["text"] else i for i, _ in ids]
        features += _feature(u["name"], "text" if u["text"] else "id", values)
        if u["weighted"]:
            features += _feature(u["name"] + "_w", "float", [w for _, w in ids])
    content = _field(1, features)
    head = struct.pack("<Q", len(content))
    return head + struct.pack("<I", _masked_crc(head)) + content + struct.pack("<I", _masked_crc(content))


def lines_for(steps, batch, accumulate, epochs):
    """Examples of a file set with which a job of so many steps is about right."""
    return max(8, math.ceil(steps * batch * accumulate / epochs))
