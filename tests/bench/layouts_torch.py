"""The jobs of examples/layouts, and the other jobs that its README names, in PyTorch: the same files read by parsers of
their own, the same columns, split, model and optimizers.

Prints the AUC and log loss of the evaluation for each seed, and their means. Rows of tables are updated like Weir's:
only those of a step, each with a count of its own.

    python3 tests/bench/layouts_torch.py bank examples/layouts/data/bank --seeds=4

Layouts: adult, avazu, bank, criteo, flights, libffm, libsvm, list_csv, nycflights, slot_sign, synthetic_ctr, tfrecord.
"""
import argparse
import bisect
import calendar
import collections
import csv
import datetime
import glob
import gzip
import math
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_parts import RowAdam, auc

RARE, MISSING = "\0rare", "\0missing"


def opened(path):
    return gzip.open(path, "rt", newline="") if path.endswith(".gz") else open(path, newline="")


def lines_of(pattern):
    for path in sorted(glob.glob(pattern)):
        with opened(path) as lines:
            for line in lines:
                yield line.rstrip("\r\n")


def number(text, missing=()):
    return math.nan if text == "" or text in missing else float(text)


# ------------------------------------------------------------------------------------------------------------- readers
# A reader yields (is it for training, label, numbers, slots). A slot is a text, "" if it is missing, or a list of pairs
# of value and weight.


def read_bank(directory):
    numbers = ["age", "balance", "campaign", "pdays", "previous"]
    with open(f"{directory}/bank-full.csv", newline="") as lines:
        for row in csv.DictReader(lines, delimiter=";"):
            slots = [row[name] for name in ("job", "marital", "education", "default", "housing", "loan", "contact",
                                            "day", "month", "poutcome")]
            yield (int(row["duration"]) % 5 != 4, float(row["y"] == "yes"),
                   [number(row[name], ("-1",) if name == "pdays" else ()) for name in numbers],
                   ["" if slot == "unknown" else slot for slot in slots])


def read_libffm(directory):
    for part in ("train", "test"):
        for line in lines_of(f"{directory}/{part}.ffm"):
            label, *words = line.split()
            slots = [[] for _ in range(13)]
            for word in words:
                field, feature, value = word.split(":")
                slots[int(field)].append((feature, float(value)))
            yield part == "train", float(label), [], slots


def read_libsvm(directory):
    for name in ("a9a", "a9a.t"):
        for line in lines_of(f"{directory}/{name}"):
            label, *words = line.split()
            pairs = [word.split(":") for word in words]
            yield name == "a9a", float(label == "+1"), [], [[(feature, float(value)) for feature, value in pairs]]


def read_list_csv(directory):
    with open(f"{directory}/ratings.csv", newline="") as lines:
        for row in csv.DictReader(lines):
            genres = [] if row["genres"] == "(no genres listed)" else [(g, 1.0) for g in row["genres"].split("|")]
            history = [(film, 1.0) for film in row["history"].split()]
            tags = [(tag, float(weight)) for tag, weight in (t.split(":") for t in row["tags"].split(";") if t)]
            yield (int(row["timestamp"]) < 1532000000, float(float(row["rating"]) >= 4), [],
                   [row["userId"], row["movieId"], genres, history, tags])


def criteo_lines(pattern, is_train):
    for line in lines_of(pattern):
        fields = line.split("\t")
        yield is_train, float(fields[0]), [number(field) for field in fields[1:14]], fields[14:]


def read_criteo(directory):
    yield from criteo_lines(f"{directory}/day_[0-4].gz", True)
    yield from criteo_lines(f"{directory}/day_5.gz", False)


def read_synthetic_ctr(directory):
    yield from criteo_lines(f"{directory}/train-*.tsv", True)
    yield from criteo_lines(f"{directory}/eval.tsv", False)


def read_flights(directory):
    yield from criteo_lines(f"{directory}/train-*.tsv", True)
    yield from criteo_lines(f"{directory}/test.tsv", False)


def read_avazu(directory):
    names = ("C1 banner_pos site_id site_domain site_category app_id app_domain app_category device_id device_ip "
             "device_model device_type device_conn_type C14 C15 C16 C17 C18 C19 C20 C21").split()
    with gzip.open(f"{directory}/train.gz", "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            time = datetime.datetime.strptime(row["hour"], "%y%m%d%H")
            yield (calendar.timegm(time.timetuple()) < 1414627200, float(row["click"]), [],
                   [row[name] for name in names] +
                   [str(time.hour), str(time.weekday()), f"{row['site_id']} {row['app_id']}"])


def read_nycflights(directory):
    numbers = "temp dewp humid wind_speed precip pressure visib distance seats plane_year".split()
    texts = "month dow origin dest carrier flight tailnum manufacturer model engine".split()

    def hour(text, boundaries):
        return "" if text == "" else str(bisect.bisect_right(boundaries, float(text)))

    with gzip.open(f"{directory}/flights.csv.gz", "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            yield (int(row["day"]) % 10 != 0, float(row["late"]), [number(row[name]) for name in numbers],
                   [row[name] for name in texts] +
                   [hour(row["sched_dep"], range(600, 2201, 100)),
                    hour(row["sched_arr"], [400, *range(800, 2201, 200)]),
                    f"{row['carrier']} {row['origin']} {row['dest']}"])


def read_adult(directory):
    for part in ("data", "test"):
        for line in lines_of(f"{directory}/adult.{part}.gz"):
            fields = [field.strip() for field in line.split(",")]
            if len(fields) != 15:
                continue
            yield (part == "data", float(fields[14].startswith(">50K")),
                   [number(fields[c]) for c in (0, 4, 10, 11, 12)],
                   ["" if fields[c] == "?" else fields[c] for c in (1, 3, 5, 6, 7, 8, 9, 13)])


def read_slot_sign(directory):
    for part in ("part", "eval"):
        for line in lines_of(f"{directory}/{part}-*"):
            slots = collections.defaultdict(list)
            for word in line.split():
                slot, sign = word.split(":")
                slots[slot].append(sign)
            yield (part == "part", float(slots["click"][0]),
                   [float(slots[name][0]) if slots[name] else math.nan for name in ("dwell", "rank", "age_days")],
                   [[(sign, 1.0) for sign in slots[str(101 + i)]] for i in range(10)])


def fields_of(data):
    """Numbers and values of the fields of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            yield key >> 3, data[at:at + size]
            at += size


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def features_of(data):
    """tf.train.Example: by name a list of texts, numbers or integers."""
    features = {}
    for _, entries in fields_of(data):
        for _, entry in fields_of(entries):
            entry = dict(fields_of(entry))
            for kind, values in fields_of(entry[2]):
                values = [value for _, value in fields_of(values)]
                if kind == 1:
                    features[entry[1].decode()] = [value.decode() for value in values]
                elif kind == 2:
                    packed = b"".join(values)
                    features[entry[1].decode()] = list(struct.unpack(f"<{len(packed) // 4}f", packed))
                else:
                    features[entry[1].decode()] = [v for value in values for v in varints(value)]
    return features


def read_tfrecord(directory):
    for part in ("train", "test"):
        for path in sorted(glob.glob(f"{directory}/{part}-*.tfrecord")):
            with open(path, "rb") as file:
                while head := file.read(12):
                    size = struct.unpack("<Q", head[:8])[0]
                    features = features_of(file.read(size))
                    file.read(4)
                    yield (part == "train", float(features["label"][0]),
                           [float(features.get(name, [math.nan])[0]) for name in ("price", "age", "visits")],
                           [str(features.get(name, [""])[0])
                            for name in ("country", "device", "site", "campaign", "item")] +
                           [list(zip(map(str, features.get("topics", [])), features.get("topic_weights", [])))])


# ---------------------------------------------------------------------------------------------------------------- jobs


def adam(rate):
    return lambda table: RowAdam(table, rate)


def adagrad(rate):
    return lambda table: RowAdagrad(table, rate)


def ftrl(rate):
    return lambda table: RowFtrl(table, rate)


# transforms: of each number, "log", "standard" or "". mean: vectors of a slot are averaged instead of added.
# shared: slots with the ids of an earlier slot. lists: slots whose weights are averaged and in a table of their own.
# zero: last layers begin with 0.
DEFAULT = dict(transforms="", min_count=0, empty_zero=False, mean=False, shared={}, lists=(), width=8, bound=0.05,
               fm=True, linear=True, linear_bias=True, deep=(), deep_dense=True, zero=True)
JOBS = {
    "adult": dict(read=read_adult, transforms="standard standard log log standard", deep=(64, 32), linear_bias=False,
                  zero=False, vectors=adam(.002), weights=adam(.002), rate=.002, batch=256, epochs=8),
    # The job's batch of 4096 is for 40 million lines.
    "avazu": dict(read=read_avazu, min_count=5, width=16, bound=.01, linear=False, deep=(128, 64), zero=False,
                  vectors=adagrad(.05), weights=ftrl(.05), rate=.001, batch=512, epochs=1),
    "bank": dict(read=read_bank, transforms="standard log log log log", vectors=adam(.005), weights=adam(.005),
                 rate=.005, batch=256, epochs=4),
    "criteo": dict(read=read_criteo, transforms="log " * 13, min_count=5, bound=.02, deep=(32, 16), linear_bias=False,
                   vectors=adam(.004), weights=adam(.004), rate=.004, batch=512, epochs=3),
    "flights": dict(read=read_flights, transforms="standard " * 13, min_count=5, deep=(64, 32), linear_bias=False,
                    zero=False, vectors=adam(.002), weights=adam(.002), rate=.002, batch=512, epochs=1),
    "libffm": dict(read=read_libffm, empty_zero=True, linear=False, vectors=adam(.002), weights=adam(.002), rate=.002,
                   batch=512, epochs=2),
    "libsvm": dict(read=read_libsvm, empty_zero=True, fm=False, linear=False, deep=(32, 16), vectors=adam(.002),
                   weights=adam(.002), rate=.002, batch=512, epochs=2),
    "list_csv": dict(read=read_list_csv, mean=True, shared={3: 1}, lists=(2, 3, 4), linear=False, vectors=adagrad(.05),
                     weights=adagrad(.05), rate=.05, batch=512, epochs=2),
    "nycflights": dict(read=read_nycflights, transforms="standard " * 10, min_count=5, vectors=adam(.001),
                       weights=adam(.001), rate=.001, batch=512, epochs=1),
    "slot_sign": dict(read=read_slot_sign, transforms="log log log", mean=True, vectors=adam(.004), weights=adam(.004),
                      rate=.004, batch=512, epochs=2),
    "synthetic_ctr": dict(read=read_synthetic_ctr, transforms="log " * 13, bound=.02, deep=(64, 32), linear_bias=False,
                          zero=False, vectors=adagrad(.02), weights=adagrad(.05), rate=.001, batch=512, epochs=1),
    "tfrecord": dict(read=read_tfrecord, transforms="log standard log", mean=True, fm=False, linear=False,
                     deep=(32, 16), vectors=adam(.002), weights=adam(.002), rate=.002, batch=512, epochs=2),
}


class RowAdagrad:
    def __init__(self, table, rate):
        self.table, self.rate = table, rate
        self.square = torch.zeros_like(table)

    def step(self, rows):
        grad = self.table.grad[rows]
        self.square[rows] += grad * grad
        with torch.no_grad():
            self.table[rows] -= self.rate * grad / (self.square[rows].sqrt() + 1e-6)
        self.table.grad = None


class RowFtrl:
    """FTRL-proximal without decay; sums of squares begin with 0.1."""

    def __init__(self, table, rate):
        self.table, self.rate = table, rate
        self.square, self.linear = torch.full_like(table, 0.1), torch.zeros_like(table)

    def step(self, rows):
        grad = self.table.grad[rows]
        before = self.square[rows]
        after = before + grad * grad
        with torch.no_grad():
            linear = self.linear[rows] + grad - (after.sqrt() - before.sqrt()) / self.rate * self.table[rows]
            self.square[rows], self.linear[rows] = after, linear
            self.table[rows] = -linear * self.rate / after.sqrt()
        self.table.grad = None


# --------------------------------------------------------------------------------------------------------------- model


class Data:
    """Examples as tensors. Lists are padded with row 0, which counts 0 times."""

    def __init__(self, rows, job):
        train = [row[0] for row in rows]
        slots = [[row[3][s] for row in rows] for s in range(len(rows[0][3]))]
        for s, column in enumerate(slots):
            if any(isinstance(value, list) for value in column):
                if not job["empty_zero"]:
                    slots[s] = [value or [(MISSING, 1.0)] for value in column]
            else:
                slots[s] = [[(value or MISSING, 1.0)] for value in column]
        index, ids, of_vector, of_weight, self.sizes = {(None, None): 0}, [], [], [], []
        second = []
        for s, column in enumerate(slots):
            space = job["shared"].get(s, s)
            if job["min_count"]:
                counts = collections.Counter(
                    value for row, is_train in zip(column, train) if is_train for value, _ in row)
                column = [[(value if value == MISSING or counts[value] >= job["min_count"] else RARE, weight)
                           for value, weight in row] for row in column]
            most = max(len(row) for row in column)
            self.sizes.append(most)
            padded = [row + [None] * (most - len(row)) for row in column]
            ids.append(torch.tensor([[index.setdefault((space, pair[0]), len(index)) if pair else 0 for pair in row]
                                     for row in padded]))
            weight = torch.tensor([[pair[1] if pair else 0.0 for pair in row] for row in padded])
            average = weight / weight.sum(1, keepdim=True).clamp(min=1e-9)
            of_vector.append(average if job["mean"] else weight)
            of_weight.append(average if s in job["lists"] else weight)
            second += [s in job["lists"]] * most
        self.rows = len(index)
        self.ids, self.of_vector, self.of_weight = (torch.cat(parts, 1) for parts in (ids, of_vector, of_weight))
        self.second = torch.tensor(second).long()
        self.labels = torch.tensor([row[1] for row in rows])
        dense = torch.tensor([row[2] for row in rows], dtype=torch.double)
        is_train = torch.tensor(train)
        for c, transform in enumerate(job["transforms"].split()):
            if transform == "log":
                dense[:, c] = dense[:, c].sign() * dense[:, c].abs().log1p()
            elif transform == "standard":
                known = dense[is_train, c]
                mean = known.nanmean()
                dense[:, c] = (dense[:, c] - mean) / (known - mean).square().nanmean().sqrt()
        self.dense = dense.nan_to_num(0.0).float()
        self.train, self.test = (torch.nonzero(part).squeeze(1) for part in (is_train, ~is_train))


class Model(nn.Module):
    def __init__(self, data, job):
        super().__init__()
        self.data, self.job = data, job
        self.vectors = nn.Parameter(torch.empty(data.rows, job["width"]).uniform_(-job["bound"], job["bound"]))
        self.weights = nn.Parameter(torch.zeros(2 * data.rows, 1))
        slots, numbers = len(data.sizes), data.dense.shape[1]
        self.slot_of = torch.zeros(sum(data.sizes), slots)
        self.slot_of[torch.arange(sum(data.sizes)), torch.arange(slots).repeat_interleave(torch.tensor(data.sizes))] = 1
        self.is_single = max(data.sizes) == 1 and not job["empty_zero"]
        lasts = []
        if job["linear"] and numbers:
            self.linear = nn.Linear(numbers, 1, bias=job["linear_bias"])
            lasts.append(self.linear)
        if job["deep"]:
            layers, inputs = [], slots * job["width"] + numbers
            for size in job["deep"]:
                layers += [nn.Linear(inputs, size), nn.ReLU()]
                inputs = size
            self.deep = nn.Sequential(*layers, nn.Linear(inputs, 1))
            lasts.append(self.deep[-1])
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for last in lasts if job["zero"] else []:
            nn.init.zeros_(last.weight)

    def forward(self, batch):
        data, job = self.data, self.job
        ids, dense = data.ids[batch], data.dense[batch]
        fields = self.vectors[ids]
        if not self.is_single:
            fields = torch.einsum("bpw,ps->bsw", fields * data.of_vector[batch].unsqueeze(2), self.slot_of)
        logit = (self.weights[ids + data.rows * data.second].squeeze(2) * data.of_weight[batch]).sum(1)
        if job["fm"]:
            logit = logit + 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(1)
        if hasattr(self, "linear"):
            logit = logit + self.linear(dense).squeeze(1)
        if job["deep"]:
            logit = logit + self.deep(torch.cat([fields.flatten(1), dense], 1)).squeeze(1)
        return logit


def train(data, job):
    model = Model(data, job)
    vectors, weights = job["vectors"](model.vectors), job["weights"](model.weights)
    others = [p for p in model.parameters() if p is not model.vectors and p is not model.weights]
    optimizer = torch.optim.Adam(others, lr=job["rate"]) if others else None
    order = torch.cat([data.train[torch.randperm(len(data.train))] for _ in range(job["epochs"])])
    for batch in order.split(job["batch"]):
        if len(batch) < job["batch"] / 2:
            break  # as Weir, whose last step would have too few examples
        loss = F.binary_cross_entropy_with_logits(model(batch), data.labels[batch])
        assert math.isfinite(loss.item())
        if optimizer:
            optimizer.zero_grad()
        loss.backward()
        if optimizer:
            optimizer.step()
        vectors.step(torch.unique(data.ids[batch]))
        weights.step(torch.unique(data.ids[batch] + data.rows * data.second))
    with torch.no_grad():
        logits = torch.cat([model(part) for part in data.test.split(4096)])
    labels = data.labels[data.test]
    return auc(logits, labels), F.binary_cross_entropy_with_logits(logits, labels).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("layout", choices=sorted(JOBS))
    parser.add_argument("directory")
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    job = {**DEFAULT, **JOBS[args.layout]}
    rows = [(is_train, label, numbers, [sys.intern(slot) if isinstance(slot, str) else slot for slot in slots])
            for is_train, label, numbers, slots in job["read"](args.directory)]
    data = Data(rows, job)
    del rows
    print(f"lines={len(data.train)} eval_lines={len(data.test)} rows={data.rows - 1}", flush=True)
    results = []
    for seed in range(1, args.seeds + 1):
        torch.manual_seed(seed)
        results.append(train(data, job))
        print(f"seed={seed} auc={results[-1][0]:.4f} loss={results[-1][1]:.4f}", flush=True)
    print(f"mean auc={sum(r[0] for r in results) / len(results):.4f} "
          f"loss={sum(r[1] for r in results) / len(results):.4f}")


if __name__ == "__main__":
    main()
