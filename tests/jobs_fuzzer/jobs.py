"""Draws jobs: data, model, tables, optimizers and the training mode.

A drawn job is JSON: the message JobConfig without cluster, the columns of its data, and what a run of it must show:

  "bits"     every cluster has the bits of --role=local
  "own"      a cluster has the bits of an undisturbed one with as many trainers; with local_sgd, until a stop between
             two averages (checking.adds_an_average)
  "counts"   runs end well, and have trained on all examples
"""

from __future__ import annotations

import data
from message import get, inline, message, put, quoted


class _Draw:
    """One job in the making: what layers may read, and what has been drawn."""

    def __init__(self, rng):
        self.rng = rng
        self.layers, self.tables, self.derived, self.losses, self.metrics = [], [], [], [], []
        self.flat = []  # (name, width) of [B, W]
        self.cubes = []  # (name, slots, width) of [B, S, W]
        self.sequences = []  # (name, length, width, name of the lengths) of [B, T, W]
        self.ids = []  # ids variables: see `_ids_variables`
        self.metric_weight = None  # the float variable of weighted metrics
        self.serial = 0
        self.needs = {}  # what was drawn of tables: "distributed", "segments"

    def chance(self, p):
        return self.rng.random() < p

    def name(self, kind):
        self.serial += 1
        return "%s%d" % (kind, self.serial)

    def layer(self, kind, name=None, **fields):
        name = name or self.name(kind)
        self.layers.append(message(name=quoted(name), **{kind: message(**fields)}))
        return name


def draw(rng):
    d = _Draw(rng)
    d.family = rng.choices(("bits", "own", "async"), (72, 10, 18))[0]
    d.mode = _mode(d)
    d.label = rng.choices(("binary", "real", "count", "class"), (6, 2, 1, 2))[0]
    d.zero_empty = d.chance(0.4)
    d.columns = columns = data.draw(rng, d.zero_empty, not d.zero_empty or d.chance(0.3), d.label)
    if d.label == "binary" and any(x["kind"] == "binary" for x in columns["labels"]) and d.chance(0.2):
        d.label = "ranking" if columns["format"] not in ("idx", "criteo") else "binary"
    d.lanes = rng.choice((1, 2, 4, 4, 8, 8))
    d.batch = d.lanes * rng.choice((1, 2, 2, 3, 4, 6)) if d.lanes < 8 else d.lanes * rng.choice((1, 2, 3))
    if d.mode == "no_lanes":
        d.batch = max(d.batch, 4)
    d.steps = rng.randint(10, 28)
    d.accumulate = rng.choice((1, 1, 1, 1, 2, 3)) if d.mode != "half_async" else rng.choice((1, 1, 2))
    d.workers = rng.choice((2, 3)) if d.mode == "half_async" else 1
    d.epochs = rng.choice((1, 1, 2, 3))
    d.follow = columns["format"] != "idx" and d.chance(0.12)
    if d.follow:
        d.epochs = 1
        columns["files"] = max(2, columns["files"])
    d.lines = min(900, data.lines_for(d.steps, d.batch, d.accumulate * d.workers, d.epochs))
    d.evaluated = d.chance(0.85)
    skip_step = d.chance(0.25) and not (d.family == "async" and d.mode == "eager")
    if skip_step and columns["floats"] and columns["format"] not in ("idx",) and d.chance(0.7):
        columns["wild"] = rng.choice((1, 2, 5))

    text = columns["format"] not in ("idx", "tf_record")
    if text and d.chance(0.12):
        columns["bad"] = rng.choice((1, 3))
    # What a command writes cannot be an example file.
    d.pipe = columns["format"] != "idx" and not columns["converted"] and d.chance(0.08)

    _ids_variables(d)
    _derived(d)
    if d.shared:
        # The id of rare values is no row of a table with numbered rows.
        d.min_count = 0
    _inputs(d)
    for _ in range(rng.choice((0, 1, 2, 3, 4))):
        _layer(d)
    _heads(d)
    _remove_unread(d)
    _metrics(d)
    job = message(name=quoted("fuzzed"))
    job.append(["data", _data(d)])
    job.append(["model", message(layer=tuple(d.layers), loss=tuple(d.losses))])
    job += [["table", table] for table in d.tables]
    job += [["metric", metric] for metric in d.metrics]
    job.append(["optimizer", _optimizer(d, "job")])
    job.append(["train", _train(d, skip_step)])
    distribute = _distribute(d)
    if distribute:
        job.append(["distribute", distribute])
    job.append(["checkpoint", _checkpoint(d)])
    shows = {"bits": "bits", "own": "own", "async": "counts"}[d.family]
    if d.family == "own" and d.mode == "any_order":
        shows = "counts"
    return {
        "shows": shows,
        "mode": d.mode,
        "job": job,
        "columns": columns,
        "lines": d.lines,
        "eval_lines": rng.choice((20, 50, 90)) if d.evaluated else 0,
        "steps": d.steps,
        "lanes": d.lanes,
        "epochs": d.epochs,
        "follow": d.follow,
        "late_s": rng.choice((0.1, 0.3, 0.6)) if d.follow and d.chance(0.6) else 0,
        "predict": d.family == "bits" and d.evaluated and d.chance(0.3),
    }


def _mode(d):
    if d.family == "bits":
        return d.rng.choices(("servers", "adasum", "per_host"), (24, 2, 1))[0]
    if d.family == "own":
        return d.rng.choice(("lossy", "lossy", "compressed", "by_trainers", "local_sgd", "no_lanes", "any_order"))
    return d.rng.choice(("async", "async", "half_async", "geo", "bounded", "compensated", "eager", "async_tables"))


# Data ---------------------------------------------------------------------------------------------------------------


def _ids_variables(d):
    """What embeddings may read: name, slots, one id each, a bound of raw ids (0: none), texts, parts by name."""
    columns = d.columns
    d.shared = []
    at = 1 + sum(f["width"] for f in columns["floats"])
    for u in columns["ids"]:
        bound = 0 if u["text"] else u["values"]
        if columns["format"] == "lib_svm" and not columns["fields"]:
            bound = at + u["values"]
        at += u["values"]
        one = u["most"] == 1 and (u["missing"] == 0 or not d.zero_empty)
        parts = ["C%d" % (i + 1) for i in range(u["slots"])] if columns["format"] == "criteo" else [u["name"]]
        if u["slots"] == 1:
            parts = [u["name"]]
        d.ids.append(
            {
                "name": u["name"],
                "slots": u["slots"],
                "one": one,
                "bound": bound if d.zero_empty else 0,
                "text": u["text"],
                "parts": parts,
                "single": u["most"] == 1,
                "key": u["slots"] == 1 and u["most"] == 1 and u["missing"] == 0,
            }
        )
        if d.zero_empty and bound and d.chance(0.6):
            d.shared.append(u["name"])
    d.min_count = 2 if not d.shared and d.columns["format"] != "idx" and d.chance(0.15) else 0


def _derived(d):
    rng = d.rng
    parts = [(p, u) for u in d.ids for p in u["parts"]]
    floats = [f for f in d.columns["floats"] if d.columns["format"] != "idx"]
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
        kind = rng.choice(("cross", "hash", "bucketize", "vocabulary", "time", "frequency"))
        name, fields, bound, one = d.name("x"), None, 0, False
        if kind == "cross" and len(parts) >= 2:
            of = rng.sample(parts, 2)
            fields = message(of=tuple(quoted(p) for p, _ in of), buckets=rng.choice((None, 50)))
            bound = 50 if len(fields) == 3 else 0
            one = all(u["single"] and u["one"] for _, u in of)
        elif kind == "hash" and parts:
            part, u = rng.choice(parts)
            fields = message(of=quoted(part), buckets=20, seed=rng.choice((None, 7)))
            bound, one = 20, u["single"] and u["one"]
        elif kind == "bucketize" and floats:
            f = rng.choice(floats)
            of = f["name"] if f["width"] == 1 else "%s[%d]" % (f["name"], rng.randrange(f["width"]))
            edges = {"boundaries": ("1.0", "2.5", "10.0")} if d.chance(0.5) else {"quantiles": rng.randint(2, 5)}
            fields, bound = message(of=quoted(of), **edges), 8
            one = f["missing"] == 0
        elif kind == "vocabulary" and parts:
            part, u = rng.choice(parts)
            learned = message(min_count=rng.choice((None, 2)), most=rng.choice((None, 10)))
            fields = message(of=quoted(part), learned=learned, unknown_buckets=rng.choice((None, 3)))
            bound = u["bound"] + 203
        elif kind == "time" and "time" in d.columns:
            part = rng.choice(("HOUR", "WEEKDAY", "DAY", "MONTH"))
            fields = message(of=quoted("when"), part=part, utc_offset_minutes=d.columns["time_zone"])
            bound, one = 40, True
        elif kind == "frequency" and parts:
            part, u = rng.choice(parts)
            if u["single"]:
                d.derived.append(message(name=quoted(name), frequency=message(of=quoted(part))))
                d.flat.append((name, 1))
            continue
        if fields is None:
            continue
        d.derived.append(message(name=quoted(name), **{kind: fields}))
        single = kind in ("bucketize", "time") or one
        learned = kind == "vocabulary" or "quantiles" in [n for n, _ in fields]
        d.ids.append(
            {
                "name": name,
                "slots": 1,
                "one": one or (not d.zero_empty and single),
                "bound": bound if d.zero_empty else 0,
                "text": False,
                "parts": [name],
                "single": single,
                "key": False,
                "learned": learned,
            }
        )
        if d.zero_empty and bound and d.chance(0.6):
            d.shared.append(name)


def _data(d):
    rng = d.rng
    fields = []
    files = ["%s/train-*" % ("inbox" if d.follow else "data")]
    labels = eval_labels = None
    ending = ".examples" if d.columns["converted"] else ""
    if d.columns["format"] == "idx":
        files, labels, eval_labels = ["data/train-images-*"], "data/train-labels-*", "data/eval-labels-*"
    where = None
    if d.columns["floats"] and d.columns["format"] != "idx" and d.chance(0.12) and not d.columns["wild"]:
        f = d.columns["floats"][0]
        of = f["name"] if f["width"] == 1 else f["name"] + "[0]"
        where = message(("of", quoted(of)), ("from", "2.0"), invert=d.chance(0.5))
    train = message(files=quoted(files[0] + ending), labels=labels and quoted(labels), where=where)
    fields.append(["train", train])
    evaluated = ("data/eval-images-*" if d.columns["format"] == "idx" else "data/eval-*") + ending
    if d.evaluated:
        fields.append(["eval", message(files=quoted(evaluated), labels=eval_labels and quoted(eval_labels))])
    fields.append(list(data.reader(d.columns)))
    fields += [["derived", each] for each in d.derived]
    if d.columns["bad"]:
        fields.append(["bad_line", "SKIP"])
    if d.pipe:
        fields.append(["pipe", quoted("cat {}")])
    transforms = ["NONE", "LOG1P", "STANDARDIZE"] if not d.columns["wild"] else ["NONE"]
    if d.columns["format"] != "idx":
        dense = message(transform=rng.choice(transforms))
        weights = inline([["loss", loss] for loss in d.losses])
        able = [f for f in d.columns["floats"] if "sample_weight: " + quoted(f["name"]) not in weights]
        if any(f["name"] == d.metric_weight for f in able):
            able = [f for f in able if f["name"] != d.metric_weight]
            dense.append(["column", message(variable=quoted(d.metric_weight), index=0, transform="NONE")])
        if able and d.chance(0.15) and not d.columns["wild"]:
            f = rng.choice(able)
            boundaries = ("0.5", "1.5", "5.0")
            column = message(variable=quoted(f["name"]), index=rng.randrange(f["width"]), transform="BUCKETIZE")
            dense.append(["column", column + message(boundaries=boundaries)])
        fields.append(["dense", dense])
    ids = message(shared=tuple(quoted(s) for s in d.shared), min_count=d.min_count or None)
    if d.zero_empty:
        ids.append(["empty", "ZERO"])
    fields.append(["ids", ids])
    shuffle = rng.choice(("ALL", "ALL", "WINDOW", "NO_SHUFFLE"))
    fields.append(["shuffle", shuffle])
    if shuffle == "WINDOW":
        fields.append(["shuffle_window", str(rng.choice((1, 4, 20)))])
    fields.append(["batch_size", str(d.batch)])
    if d.chance(0.2) and not d.follow:
        fields.append(["drop_last", "true"])
    if d.follow:
        follow = message(files_together=rng.choice((1, 1, 2)), until=quoted("inbox/DONE"))
        fields.append(["follow", follow + message(look_every_s=0.05, deadline_s=30)])
    return fields


# Tables -------------------------------------------------------------------------------------------------------------


def _table(d, u, width):
    """The name of a table for lookups of the variable: one that is there, or a new one."""
    rng = d.rng
    dense = bool(u["bound"]) and u["name"] in d.shared and d.chance(0.7)
    for name, its_width, bound in d.known:
        if its_width == width and (not bound or (dense and bound >= u["bound"])) and d.chance(0.5):
            return name
    name = d.name("t")
    fields = message(name=quoted(name), width=width)
    if dense:
        sparse = d.chance(0.6)
        fields += message(is_sparse=sparse, dict_size=u["bound"] + 1)
        if sparse:
            fields += message(fetch=rng.choice((None, "ROWS", "WHOLE") if d.mode != "geo" else (None, "WHOLE")))
        if d.chance(0.2):
            fields += message(optimizer=_optimizer(d, "dense"))
        d.known.append((name, width, u["bound"]))
    else:
        fields += message(is_sparse=True, is_distributed=True)
        fields += _distributed(d, width)
        d.known.append((name, width, 0))
        d.needs["distributed"] = True
    if d.chance(0.3):
        fields += message(initializer=rng.choice((message(uniform=message(min=-0.1, max=0.1)), message(constant=[]))))
    d.tables.append(fields)
    return name


def _distributed(d, width):
    rng, fields = d.rng, []
    geo = d.mode == "geo"
    own = d.chance(0.6)
    skip_row = d.chance(0.1)
    if own:
        fields += message(optimizer=_optimizer(d, "table", skip_row))
    shards = rng.choice((None, None, 16, 256))
    fields += message(logical_shards=shards)
    if width > 1 and not geo and d.chance(0.2) and not _has_norm(fields):
        d.needs["segments"] = True
        cut = rng.randint(1, width - 1)
        # What a segment does not name is the table's.
        first = message(width=cut, optimizer=_plain_rule(d) if d.chance(0.6) else None, after=rng.choice((None, 2)))
        fields += message(segment=(first, message(width=width - cut)))
    if not geo and d.chance(0.2):
        fields += message(storage=rng.choice(("FLOAT16", "BFLOAT16")))
        if d.chance(0.3):
            storage = dict((n, v) for n, v in fields)["storage"]
            fields += message(wire=message(pull="WIRE_" + storage))
    if not geo and d.chance(0.15):
        fields += message(min_value=-0.25, max_value=0.5)
    if skip_row and own:
        fields += message(bad_gradient="SKIP_ROW")
    if d.chance(0.15):
        fields += message(disk=message(dir=quoted("rows"), memory_mb=64))
    if not geo and d.chance(0.4):
        lifecycle, limited = _lifecycle(d)
        if limited:
            fields = [f for f in fields if f[0] != "logical_shards"] + message(logical_shards=16, dict_size=96)
        fields += message(lifecycle=lifecycle)
    if d.family == "async" and d.mode in ("async", "half_async") and d.chance(0.3):
        fields += message(cache=message(rows=50, max_steps=rng.choice((2, 3))))
    if d.chance(0.03):
        fields = [f for f in fields if f[0] in ("logical_shards", "storage", "disk")] + message(trainable=False)
    return fields


def _has_norm(fields):
    return "max_norm" in inline(fields)


def _lifecycle(d):
    rng = d.rng
    click = d.label in ("binary", "ranking") and d.chance(0.6)
    fields = []
    admission = rng.choice((None, "admit_after", "admit_probability", "admit_score"))
    if admission == "admit_score" and not click:
        admission = None
    if admission:
        value = {"admit_after": 2, "admit_probability": 0.5, "admit_score": 0.3}[admission]
        fields += message((admission, value))
    fields += message(ttl_steps=rng.choice((None, 3, 8)))
    limited = d.chance(0.3)
    if limited:
        fields += message(when_full=rng.choice(("EVICT_LEAST_RECENT", "EVICT_LEAST_FREQUENT")))
    if click:
        fields += message(click=quoted("label"))
        if d.chance(0.6):
            fields += message(decay_every_steps=rng.choice((1, 4)), decay=0.8, min_score=rng.choice((None, 0.1)))
    fields += message(tombstones=True if d.chance(0.3) else None)
    return fields, limited


# Optimizers ---------------------------------------------------------------------------------------------------------


def _plain_rule(d):
    rate = d.rng.choice((0.01, 0.05))
    kind = d.rng.choice(("sgd", "adagrad", "ftrl", "adam"))
    return message((kind, message(learning_rate=rate)))


def _optimizer(d, of, no_norms=False):
    """`of`: "job", "dense" (a table that is not distributed), or "table"."""
    rng = d.rng
    kinds = ["sgd", "momentum", "adagrad", "adam", "ftrl", "decayed_adagrad", "adamw", "adamax", "rmsprop"]
    # A job's optimizer is also that of tables without one.
    whole = of != "table" and d.mode not in ("eager", "geo", "async_tables", "local_sgd")
    if whole and not d.needs.get("distributed"):
        kinds += ["lars_momentum", "lamb"]
    kind = rng.choice(kinds)
    rule = message(learning_rate=rng.choice((0.001, 0.01, 0.05)))
    if kind == "momentum":
        rule += message(nesterov=d.chance(0.5))
    if kind == "adagrad" and of == "table":
        rule += message(per_row=d.chance(0.5))
    if kind == "rmsprop":
        rule += message(mu=rng.choice((0.0, 0.9)), centered=d.chance(0.5))
    if kind == "ftrl":
        rule += message(l1=rng.choice((0.0, 0.01)), l2=rng.choice((0.0, 0.1)))
    fields = message((kind, rule))
    if d.chance(0.35):
        fields += message(schedule=_schedule(d, fields))
    if d.chance(0.2):
        fields += message(l1_decay=rng.choice((None, 0.001)), l2_decay=0.01)
    if d.chance(0.35):
        no_norms = no_norms or of == "job" and d.needs.get("segments")
        clips = ["by_value"] if no_norms or not (whole or of == "table") else ["by_value", "by_norm", "by_global_norm"]
        if d.mode in ("eager", "geo", "async_tables", "local_sgd"):
            clips = ["by_value"]
        clip = rng.choice(clips)
        limit = rng.choice((0.01, 0.1, 1.0))
        fields += message(clip=message((clip, message(max=limit) if clip == "by_value" else message(max_norm=limit))))
    if of == "job" and d.chance(0.25):
        settings = message(name=quoted(rng.choice(("*.w", "*.b"))), learning_rate_factor=rng.choice((None, 0.5, 2.0)))
        settings += message(l2_decay=rng.choice((None, 0.1)), no_clip=True if d.chance(0.2) else None)
        fields += message(parameter=settings)
    return fields


def _schedule(d, optimizer):
    rng = d.rng
    kind = rng.choice(("exponential", "natural_exp", "inverse_time", "polynomial", "piecewise", "noam", "cosine"))
    stairs = message(staircase=d.chance(0.5))
    made = {
        "exponential": message(decay_steps=5, decay_rate=0.7) + stairs,
        "natural_exp": message(decay_steps=5, decay_rate=0.3) + stairs,
        "inverse_time": message(decay_steps=4, decay_rate=0.5) + stairs,
        "polynomial": message(decay_steps=8, power=1.5, cycle=d.chance(0.5)),
        "piecewise": message(boundaries=("4", "9"), values=("0.05", "0.02", "0.001")),
        "noam": message(d_model=16.0, warmup_steps=6),
        "cosine": message(decay_steps=12),
    }[kind]
    schedule = message((kind, made))
    if d.chance(0.4):
        end = 0.01 if kind == "piecewise" else None
        schedule += message(warm_up=message(steps=3, start_learning_rate=0.001, end_learning_rate=end))
    if kind == "piecewise":
        rule = optimizer[0][1]
        rule[:] = [f for f in rule if f[0] != "learning_rate"]
    return schedule


# Model --------------------------------------------------------------------------------------------------------------


def _inputs(d):
    """Embeddings of all ids, and the float columns."""
    rng = d.rng
    d.known = []
    for f in d.columns["floats"]:
        if d.columns["format"] == "idx":
            _pictures(d)
        else:
            d.flat.append((f["name"], f["width"]))
    for u in d.ids:
        width = rng.choice((1, 2, 4, 4, 5))
        name = d.name("e")
        table = _table(d, u, width)
        how = rng.choice(("pooled", "pooled", "slots", "slots", "sequence"))
        if how == "slots" and u["one"]:
            d.layer("embedding", name, ids=quoted(u["name"]), table=quoted(table))
            d.cubes.append((name, u["slots"], width))
        elif how == "sequence" and u["slots"] == 1 and not u["one"]:
            length = rng.choice((2, 4))
            d.layer("embedding", name, ids=quoted(u["name"]), table=quoted(table), sequence=length)
            d.sequences.append((name, length, width, name + ".length"))
        else:
            per_slot = d.chance(0.3)
            padding = rng.choice((None, None, None, 1))
            pooling = rng.choice(("SUM", "MEAN", "SQRT_N"))
            fields = {"ids": quoted(u["name"]), "table": quoted(table), "pooling": pooling, "padding_id": padding}
            if u["text"] or u.get("learned"):
                fields["padding_id"] = None
            d.layer("embedding", name, per_slot=per_slot or None, **fields)
            if per_slot:
                d.cubes.append((name, u["slots"], width))
            else:
                d.flat.append((name, width))


def _pictures(d):
    rng = d.rng
    edge = data.PIXELS
    picture = d.layer("reshape", input=quoted("image"), dims=("1", str(edge), str(edge)))
    for _ in range(rng.choice((1, 1, 2))):
        filters = rng.choice((2, 3))
        padding = rng.choice((0, 1))
        activation = rng.choice(("RELU", "TANH", "IDENTITY"))
        fields = {"filters": filters, "kernel": ("3",), "padding": (str(padding),), "activation": activation}
        picture = d.layer("conv2d", input=quoted(picture), **fields)
        edge += 2 * padding - 2
        if d.chance(0.4):
            picture = d.layer("batch_norm", input=quoted(picture))
        if edge < 4:
            break
    if d.chance(0.6):
        picture = d.layer("pool2d", input=quoted(picture), type=rng.choice(("MAX", "AVERAGE")), kernel=("2",))
    picture = d.layer("fc", input=quoted(picture), size=6, activation="RELU")
    d.flat.append((picture, 6))


def _activation(d):
    return d.rng.choice(("RELU", "SIGMOID", "TANH", "SOFTMAX"))


def _initializer(d):
    return d.rng.choice((None, None, None, message(gaussian=message(stddev=0.2)),
                         message(xavier=message(uniform=False))))


def _layer(d):
    """One more layer over what is there."""
    rng = d.rng
    kinds = []
    if d.flat:
        kinds += [_flat_layer] * 3
    if d.cubes:
        kinds += [_cube_layer] * 2
    if d.sequences:
        kinds += [_sequence_layer] * 3
    if kinds:
        rng.choice(kinds)(d)


def _flat_layer(d):
    rng = d.rng
    name, width = rng.choice(d.flat)
    of = quoted(name)
    kind = rng.choice(
        ("fc", "fc", "mlp", "batch_norm", "batch_norm", "layer_norm", "prelu", "dice", "dropout", "activation")
        + ("cross", "scale", "square", "mul", "split", "reduce_sum")
    )
    if kind == "fc":
        size = rng.choice((1, 3, 6, 40))
        fields = {"size": size, "activation": _activation(d), "bias": d.chance(0.7)}
        d.flat.append((d.layer("fc", input=of, weight_initializer=_initializer(d), **fields), size))
    elif kind == "mlp":
        sizes = [rng.choice((3, 8, 24)) for _ in range(rng.choice((1, 2, 3)))]
        dropout = rng.choice((None, None, 0.3))
        made = d.layer("mlp", input=of, sizes=tuple(map(str, sizes)), activation=_activation(d), dropout=dropout)
        d.flat.append((made, sizes[-1]))
    elif kind in ("batch_norm", "dice"):
        d.flat.append((d.layer(kind, input=of, momentum=rng.choice((None, 0.5))), width))
    elif kind == "prelu":
        d.flat.append((d.layer(kind, input=of, per_column=d.chance(0.5)), width))
    elif kind == "layer_norm" and width > 1:
        d.flat.append((d.layer(kind, input=of), width))
    elif kind == "dropout":
        d.flat.append((d.layer(kind, input=of, rate=rng.choice((0.1, 0.5))), width))
    elif kind == "activation":
        d.flat.append((d.layer(kind, input=of, type=_activation(d)), width))
    elif kind == "cross":
        rank = 2 if width > 2 and d.chance(0.5) else None
        d.flat.append((d.layer(kind, input=of, layers=rng.choice((1, 2)), rank=rank), width))
    elif kind == "scale":
        d.flat.append((d.layer(kind, input=of, scale=0.5, bias=rng.choice((0.0, 1.0))), width))
    elif kind == "square":
        d.flat.append((d.layer(kind, input=of), width))
    elif kind == "mul":
        a = d.layer("fc", input=of, size=4)
        b = d.layer("fc", input=quoted(rng.choice(d.flat)[0]), size=4)
        d.flat.append((d.layer(rng.choice(("mul", "add", "sub")), input=(quoted(a), quoted(b))), 4))
    elif kind == "split" and width > 1:
        cut = rng.randint(1, width - 1)
        made = d.layer("split", input=of, sizes=(str(cut), str(width - cut)))
        d.flat += [(made + ".0", cut), (made + ".1", width - cut)]
    elif kind == "reduce_sum":
        d.flat.append((d.layer("reduce_sum", input=of, keep_dim=True), 1))


def _cube_layer(d):
    rng = d.rng
    name, slots, width = rng.choice(d.cubes)
    of = quoted(name)
    kind = rng.choice(("fm_interaction", "dot_interaction", "self_attention", "bilinear", "cin", "reduce_sum",
                       "reshape"))
    if kind == "fm_interaction":
        d.flat.append((d.layer(kind, input=of), 1))
    elif kind == "dot_interaction" and slots > 1:
        self_too = d.chance(0.5)
        pairs = slots * (slots + 1) // 2 if self_too else slots * (slots - 1) // 2
        d.flat.append((d.layer(kind, input=of, self_interaction=self_too), pairs))
    elif kind == "self_attention":
        length = quoted("")
        d.cubes.append((d.layer(kind, input=of, heads=rng.choice((1, 2)), size=4, length=length), slots, width))
    elif kind == "bilinear" and slots > 1:
        type_of = rng.choice(("ALL", "EACH", "INTERACTION"))
        d.cubes.append((d.layer(kind, input=of, type=type_of), slots * (slots - 1) // 2, width))
    elif kind == "cin":
        sizes = [rng.choice((2, 4)) for _ in range(rng.choice((1, 2)))]
        fields = {"sizes": tuple(map(str, sizes)), "activation": rng.choice(("IDENTITY", "RELU"))}
        d.flat.append((d.layer(kind, input=of, **fields), sum(sizes)))
    elif kind == "reduce_sum":
        d.flat.append((d.layer(kind, input=of, axis=("1",)), width))
    else:
        d.flat.append((d.layer("reshape", input=of, dims=("-1",)), slots * width))


def _sequence_layer(d):
    rng = d.rng
    name, length, width, lengths = rng.choice(d.sequences)
    of, its = quoted(name), quoted(lengths)
    kind = rng.choice(("sequence_pool", "sequence_pool", "attention_pool", "gru", "self_attention", "add_positions"))
    if kind == "sequence_pool":
        type_of = rng.choice(("SUM", "MEAN", "SQRT_N", "MAX", "FIRST", "LAST"))
        d.flat.append((d.layer(kind, input=of, type=type_of, length=its), width))
    elif kind == "attention_pool":
        query = d.layer("fc", input=quoted(rng.choice(d.flat)[0]), size=width) if d.flat else None
        if query:
            fields = {"query": quoted(query), "sequence": of, "length": its, "sizes": ("3",), "softmax": d.chance(0.5)}
            d.flat.append((d.layer(kind, **fields), width))
    elif kind == "gru":
        d.flat.append((d.layer(kind, input=of, size=3, length=its), 3))
    elif kind == "self_attention":
        made = d.layer(kind, input=of, causal=d.chance(0.5), length=its)
        d.sequences.append((made, length, width, lengths))
    else:
        d.sequences.append((d.layer(kind, input=of, length=its, from_end=d.chance(0.5)), length, width, lengths))


def _heads(d):
    """Brings everything together, and losses over it."""
    rng = d.rng
    for name, length, width, lengths in d.sequences:
        pooled = d.layer("sequence_pool", input=quoted(name), type=rng.choice(("MEAN", "SUM")), length=quoted(lengths))
        d.flat.append((pooled, width))
    for name, slots, width in d.cubes:
        d.flat.append((d.layer("reshape", input=quoted(name), dims=("-1",)), slots * width))
    chosen = rng.sample(d.flat, min(len(d.flat), rng.randint(2, 6)))
    # What nothing reads would be refused or removed: the newest of each kind are read.
    chosen += [x for x in d.flat[-3:] if x not in chosen]
    body = chosen[0][0]
    if len(chosen) > 1:
        body = d.layer("concat", "body", input=tuple(quoted(n) for n, _ in chosen))
    if d.chance(0.3):
        body = d.layer("batch_norm", input=quoted(body))
    if d.chance(0.6):
        size = rng.choice((4, 10, 70, 300))
        body = d.layer("fc", input=quoted(body), size=size, activation=rng.choice(("RELU", "TANH")))
        if size == 300:
            # A parameter that servers and trainers cut.
            body = d.layer("fc", input=quoted(body), size=40, activation="RELU")
    second = next((x["name"] for x in d.columns["labels"] if x["name"] == "label2"), None)
    bodies = [body]
    if second and d.chance(0.5):
        kind = rng.choice(("mmoe", "ple"))
        fields = {"mmoe": {"experts": 2}, "ple": {"task_experts": 1, "shared_experts": 1, "levels": rng.choice((1, 2))}}
        made = d.layer(kind, input=quoted(body), sizes=("4",), tasks=2, **fields[kind])
        bodies = [made + ".0", made + ".1"]
    d.losses.append(_loss(d, bodies[0], "label", d.label, "head"))
    if second and (len(bodies) > 1 or d.chance(0.3)):
        more = _loss(d, bodies[-1], second, "binary", "head_b")
        more += message(name=quoted("second"), weight=rng.choice((0.5, 1.0)))
        if d.columns["labels"][1]["missing"]:
            more += message(label_may_be_missing=True)
        if d.chance(0.3):
            more += message(learned_weight=True)
        d.losses.append(more)


def _remove_unread(d):
    """Without layers that no loss depends on, and their tables: jobs with such are refused."""
    read = inline([["loss", loss] for loss in d.losses])
    kept = []
    for layer in reversed(d.layers):
        name = get(layer, "name")[1:-1]
        if any('"%s%s' % (name, end) in read for end in ('"', ".")):
            kept.insert(0, layer)
            read += " " + inline(layer)
    d.layers = kept
    d.tables = [t for t in d.tables if "table: " + get(t, "name") in read]


def _weights(d):
    """The names of floats that every example has, and that are not negative."""
    if d.columns["format"] in ("idx", "criteo") or d.columns["wild"]:
        return []
    return [f["name"] for f in d.columns["floats"] if f["width"] == 1 and not f["missing"]]


def _loss(d, body, label, kind, name):
    rng = d.rng
    its = {"label": quoted(label)}
    weights = _weights(d)
    if weights and d.chance(0.15):
        its["sample_weight"] = quoted(rng.choice(weights))
    if kind == "ranking":
        made = _ranking_loss(d, its)
        if made is not None:
            return made
        kind = "binary"
    if kind == "class":
        classes = d.columns["labels"][0]["classes"]
        d.layer("fc", name, input=quoted(body), size=classes)
        return message(softmax_cross_entropy=message(logits=quoted(name), **its))
    choices = {
        "binary": ("sigmoid_cross_entropy", "sigmoid_cross_entropy", "log_loss", "focal_loss", "hinge_loss"),
        "real": ("square_error", "huber_loss", "quantile_loss"),
        "count": ("poisson_loss", "square_error"),
    }[kind]
    loss = rng.choice(choices)
    activation = "SIGMOID" if loss == "log_loss" else None
    d.layer("fc", name, input=quoted(body), size=1, activation=activation)
    field = {"log_loss": "probability", "hinge_loss": "scores", "poisson_loss": "log_rate"}.get(loss)
    field = field or ("logits" if kind == "binary" else "input")
    return message((loss, message((field, quoted(name)), **its)))


def _ranking_loss(d, its):
    """Vectors of two ids variables and of drawn negatives; None without two such variables."""
    rng = d.rng
    able = [u for u in d.ids if u["slots"] == 1 and u["single"] and not u["text"] and not u.get("learned")]
    able = [u for u in able if not u["name"].startswith("x")]
    if len(able) < 2 or d.min_count:
        return None
    user, item = rng.sample(able, 2)
    users, items = d.name("t"), d.name("t")
    for table in (users, items):
        fields = message(name=quoted(table), width=3, is_sparse=True, is_distributed=True)
        d.tables.append(fields + _distributed(d, 3))
        d.needs["distributed"] = True
    query = d.layer("embedding", ids=quoted(user["name"]), table=quoted(users), pooling="SUM")
    vector = d.layer("embedding", ids=quoted(item["name"]), table=quoted(items), pooling="SUM")
    if d.chance(0.3):
        fields = {"query": quoted(query), "item": quoted(vector), "temperature": rng.choice((0.5, 1.0)), **its}
        if item["key"]:
            fields["item_id"] = quoted(item["name"])
        return message(in_batch_softmax=message(**fields))
    drawn = d.name("n")
    if d.chance(0.5):
        source = {"uniform": message(first=0, items=500)}
    else:
        source = {"popularity": message(alpha=0.75)}
    d.derived.append(message(name=quoted(drawn), negatives=message(of=quoted(item["name"]), count=2, **source)))
    others = d.layer("embedding", ids=quoted(drawn), table=quoted(items), sequence=2)
    score = d.layer("dot", x=quoted(query), y=quoted(vector))
    scores = d.layer("dot", x=quoted(query), y=quoted(others))
    loss = rng.choice(("bpr_loss", "pairwise_hinge_loss", "sampled_softmax"))
    return message((loss, message(positive=quoted(score), negative=quoted(scores), **its)))


# Training -----------------------------------------------------------------------------------------------------------


def _metrics(d):
    rng = d.rng
    if not d.evaluated or not d.chance(0.4):
        return
    key = next((u["name"] for u in d.ids if u["key"]), None)
    kinds = {
        "binary": ["gauc", "confusion", "calibration", "normalized_entropy"],
        "ranking": ["gauc", "ndcg", "hit_rate"],
        "class": ["accuracy", "confusion"],
        "real": ["rmse", "mae"],
        "count": ["rmse", "mae"],
    }[d.label]
    loss = d.losses[0][0][0]
    for kind in rng.sample(kinds, rng.randint(1, min(2, len(kinds)))):
        fields = []
        if kind in ("gauc", "ndcg", "hit_rate"):
            if key is None or d.min_count:
                continue
            fields = message(key=quoted(key))
        if kind in ("calibration", "normalized_entropy") and loss in ("hinge_loss", "focal_loss", "bpr_loss"):
            continue
        if kind == "accuracy" and rng.random() < 0.5:
            fields = message(k=2)
        by = next((u["name"] for u in d.ids if u["key"]), None)
        more = []
        if by and not d.min_count and kind not in ("confusion", "ndcg", "hit_rate") and d.chance(0.3):
            more = message(name=quoted("sliced_" + kind), by=quoted(by), most_values=3)
        weights = _weights(d) if kind not in ("ndcg", "hit_rate") else []
        if weights and d.chance(0.3):
            d.metric_weight = d.metric_weight or rng.choice(weights)
            more = more + message(weight=quoted(d.metric_weight))
        d.metrics.append(more + message((kind, fields)))


def _train(d, skip_step):
    rng = d.rng
    fields = message(epochs=d.epochs, seed=rng.randrange(1, 1000), lanes=d.lanes if d.mode != "no_lanes" else 0)
    fields += message(log_every_seconds=0.001)
    if d.family != "async":
        fields += message(digest_every_steps=rng.choice((1, 1, 2, 5)))
    if d.evaluated and d.chance(0.5):
        fields += message(eval_every_steps=rng.choice((3, 5, 7)))
        if d.family != "async" and d.chance(0.35):
            fields += message(early_stop=message(patience=rng.choice((1, 2)), min_delta=rng.choice((0.0, 0.05))))
    if d.chance(0.2):
        fields += message(max_steps=rng.randint(3, d.steps))
    fields += message(nan_policy="SKIP_STEP" if skip_step else None)
    fields += message(accumulate_steps=d.accumulate if d.accumulate > 1 else None)
    fields += message(workers=d.workers if d.workers > 1 else None)
    if d.chance(0.15) and d.mode != "eager":
        fields += message(loss_scaling=message(initial=rng.choice((65536.0, 16777216.0)), growth_every=4))
    if d.chance(0.1):
        fields += message(arithmetic="AVX2")
    return fields


def _distribute(d):
    rng, fields = d.rng, []
    # Sums for running averages need the range of float32.
    averages = any(kind in inline([["layer", layer] for layer in d.layers]) for kind in ("batch_norm {", "dice {"))
    formats = ("WIRE_BFLOAT16",) if averages else ("WIRE_FLOAT16", "WIRE_BFLOAT16", "WIRE_INT8")
    if d.mode == "adasum":
        put(fields, "dense", "ALL_REDUCE")
        put(fields, "all_reduce.reduction", "ADASUM")
    elif d.mode == "lossy":
        put(fields, "reproducible", "false")
        put(fields, "wire.push", rng.choice(formats))
        if d.chance(0.5):
            put(fields, "wire.pull", rng.choice(formats))
    elif d.mode == "compressed":
        put(fields, "reproducible", "false")
        put(fields, "dense", "ALL_REDUCE")
        put(fields, "all_reduce.compression", rng.choice(("FLOAT16", "BFLOAT16")))
        if d.chance(0.4):
            put(fields, "all_reduce.bucket_bytes", 4096)
            put(fields, "all_reduce.first_bucket_bytes", 4096)
    elif d.mode == "by_trainers":
        put(fields, "average", "BY_TRAINERS")
        put(fields, "reproducible", "false")
    elif d.mode == "local_sgd":
        put(fields, "reproducible", "false")
        put(fields, "dense", "ALL_REDUCE")
        put(fields, "local_sgd.every_steps", rng.choice((1, 2, 4)))
    elif d.mode == "no_lanes":
        put(fields, "reproducible", "false")
    elif d.mode == "any_order":
        put(fields, "reproducible", "false")
        put(fields, "dense", "ALL_REDUCE")
    elif d.mode == "async_tables":
        put(fields, "reproducible", "false")
        put(fields, "async_tables", "true")
    elif d.family == "async":
        put(fields, "sync", "false")
        if d.mode == "half_async":
            put(fields, "half_async", [])
        elif d.mode == "geo":
            put(fields, "geo.every_steps", rng.choice((1, 3, 5)))
        elif d.mode == "bounded":
            put(fields, "bounded_staleness.steps", rng.choice((0, 1, 3)))
        elif d.mode == "compensated":
            put(fields, "delay_compensation", [])
        elif d.mode == "eager":
            put(fields, "async_apply", "EAGER")
        if d.mode not in ("geo",) and d.chance(0.25):
            put(fields, "wire.push", rng.choice(formats))
    return fields


def _checkpoint(d):
    rng = d.rng
    fields = message(dir=quoted("checkpoints"), every_steps=rng.choice((2, 3, 5)), keep_last=rng.choice((1, 2, 3)))
    if d.evaluated and d.chance(0.2):
        fields += message(keep_best=1)
    if d.mode == "per_host":
        fields += message(per_host=True)
    return fields
