"""The job of examples/flights/xdeepfm.textproto in PyTorch: the same columns, transforms, model, optimizer and split.

Prints the test AUC and log loss for each seed, and their means. Rows of tables are updated like Weir's: only those of a
step, each with a count of its own.

    python3 tests/bench/flights_xdeepfm_torch.py DIRECTORY_OF_PREPARED_DATA --seeds=4
"""
import argparse
import collections
import glob
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_parts import RowAdam, auc

NUMBERS, FIELDS, WIDTH, CIN, BATCH, RATE, MIN_COUNT = 13, 26, 8, (32, 32), 512, 0.002, 5


def rows_of(paths):
    return [line.rstrip("\n").split("\t") for path in sorted(paths) for line in open(path)]


class XDeepFm(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.vectors = nn.Parameter(torch.empty(values, WIDTH).uniform_(-0.05, 0.05))
        self.weights = nn.Parameter(torch.zeros(values, 1))
        self.linear = nn.Linear(NUMBERS, 1, bias=False)
        self.cin = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(vectors * FIELDS, size))
            for vectors, size in zip((FIELDS, CIN[0] // 2), CIN))
        self.deep = nn.Sequential(nn.Linear(FIELDS * WIDTH + NUMBERS, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.out = nn.Linear(CIN[0] // 2 + CIN[1] + 32, 1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, ids, dense):
        fields = self.vectors[ids]
        x, sums = fields, []
        for layer, w in enumerate(self.cin):
            z = torch.einsum("bhd,bmd->bdhm", x, fields).flatten(2)
            x = (z @ w).transpose(1, 2)
            if layer + 1 < len(self.cin):
                first, x = x.chunk(2, 1)
                sums.append(first.sum(2))
            else:
                sums.append(x.sum(2))
        deep = self.deep(torch.cat([fields.flatten(1), dense], 1))
        wide = self.weights[ids].squeeze(2).sum(1)
        return wide + self.linear(dense).squeeze(1) + self.out(torch.cat(sums + [deep], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    train, test = (rows_of(glob.glob(f"{args.directory}/{name}.tsv")) for name in ("train-*", "test"))
    # Each slot has ids of its own: of what is seen MIN_COUNT times, of what is rarer, and of what is missing.
    counts = collections.Counter(value for row in train for value in enumerate(row[1 + NUMBERS:]))
    known = sorted(value for value, n in counts.items() if n >= MIN_COUNT or not value[1])
    known += [(slot, "rare") for slot in range(FIELDS)] + [(slot, "") for slot in range(FIELDS)]
    index = {value: i for i, value in enumerate(dict.fromkeys(known))}

    def tensors(rows):
        ids = torch.tensor([[index.get(value, index[value[0], "rare"]) for value in enumerate(row[1 + NUMBERS:])]
                            for row in rows])
        dense = torch.tensor([[float(text) if text else math.nan for text in row[1:1 + NUMBERS]] for row in rows])
        return ids, dense, torch.tensor([float(row[0]) for row in rows])

    parts = [tensors(train), tensors(test)]
    dense = parts[0][1].double()
    mean = dense.nanmean(0)
    deviation = (dense - mean).square().nanmean(0).sqrt()
    for _, part, _ in parts:
        part[:] = ((part.double() - mean) / deviation).nan_to_num(0.0).float()
    (ids, dense, labels), (test_ids, test_dense, test_labels) = parts
    results = []
    for seed in range(1, args.seeds + 1):
        torch.manual_seed(seed)
        model = XDeepFm(len(index))
        tables = [RowAdam(model.vectors, RATE), RowAdam(model.weights, RATE)]
        others = [p for p in model.parameters() if p is not model.vectors and p is not model.weights]
        optimizer = torch.optim.Adam(others, lr=RATE)
        for batch in torch.randperm(len(train)).split(BATCH):
            loss = F.binary_cross_entropy_with_logits(model(ids[batch], dense[batch]), labels[batch])
            assert math.isfinite(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows = torch.unique(ids[batch])
            for table in tables:
                table.step(rows)
        with torch.no_grad():
            logits = torch.cat([model(*part) for part in zip(test_ids.split(4096), test_dense.split(4096))])
        results.append((auc(logits, test_labels),
                        F.binary_cross_entropy_with_logits(logits, test_labels).item()))
        print(f"seed={seed} auc={results[-1][0]:.4f} loss={results[-1][1]:.4f}", flush=True)
    print(f"mean auc={sum(r[0] for r in results) / len(results):.4f} "
          f"loss={sum(r[1] for r in results) / len(results):.4f}")


if __name__ == "__main__":
    main()
