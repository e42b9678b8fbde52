"""The job of examples/adult/mmoe.textproto in PyTorch: the same columns, transforms, model, optimizer and split.

Prints the test AUC of both tasks for each seed.

    python3 tests/bench/adult_mmoe_torch.py DIRECTORY_OF_ADULT --seeds=3
"""
import argparse
import gzip
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_parts import auc

DENSE = [0, 4, 10, 11, 12]
TEXT = [1, 3, 6, 8, 9, 13]
MARITAL, INCOME = 5, 14
EXPERTS, WIDTH, BATCH, EPOCHS, RATE = 4, 8, 256, 8, 0.002


def rows_of(path):
    rows = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            fields = [field.strip() for field in line.strip().split(",")]
            if len(fields) == 15:
                rows.append(fields)
    return rows


class Mmoe(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.fields = nn.ModuleList(nn.Embedding(size, WIDTH) for size in sizes)
        for field in self.fields:
            nn.init.uniform_(field.weight, -0.05, 0.05)
        inputs = len(sizes) * WIDTH + len(DENSE)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()) for _ in range(EXPERTS))
        self.gates = nn.ModuleList(nn.Linear(inputs, EXPERTS) for _ in range(2))
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, ids, dense):
        x = torch.cat([field(ids[:, i]) for i, field in enumerate(self.fields)] + [dense], 1)
        experts = torch.stack([expert(x) for expert in self.experts], 1)
        return [tower((gate(x).softmax(1).unsqueeze(2) * experts).sum(1)).squeeze(1)
                for gate, tower in zip(self.gates, self.towers)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    train, test = (rows_of(f"{args.directory}/adult.{name}.gz") for name in ("data", "test"))
    values = [sorted({row[c] for row in train if row[c] != "?"}) for c in TEXT]
    index = [{value: i + 1 for i, value in enumerate(column)} for column in values]

    def tensors(rows):
        ids = torch.tensor([[index[i].get(row[c], 0) for i, c in enumerate(TEXT)] for row in rows])
        dense = torch.tensor([[float(row[c]) for c in DENSE] for row in rows])
        dense[:, 2:4] = torch.log1p(dense[:, 2:4])
        labels = torch.tensor([[float(row[INCOME].startswith(">50K")), float(row[MARITAL] == "Never-married")]
                               for row in rows])
        return ids, dense, labels

    (ids, dense, labels), (test_ids, test_dense, test_labels) = tensors(train), tensors(test)
    for c in (0, 1, 4):
        mean, deviation = dense[:, c].mean(), dense[:, c].std(correction=0)
        for part in (dense, test_dense):
            part[:, c] = (part[:, c] - mean) / deviation
    for seed in range(1, args.seeds + 1):
        torch.manual_seed(seed)
        model = Mmoe([len(column) + 1 for column in values])
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(train)).split(BATCH):
                logits = model(ids[batch], dense[batch])
                loss = sum(F.binary_cross_entropy_with_logits(logits[t], labels[batch, t]) for t in range(2))
                assert math.isfinite(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            logits = model(test_ids, test_dense)
        print(f"seed={seed} income_auc={auc(logits[0], test_labels[:, 0]):.4f} "
              f"married_auc={auc(logits[1], test_labels[:, 1]):.4f}", flush=True)


if __name__ == "__main__":
    main()
