"""The job of examples/movielens/two_tower.textproto in PyTorch: the same ratings, split, model and optimizers.

Prints the AUC, the AUC by user and the recall over all films of the evaluation for each seed.

    python3 tests/bench/movielens_two_tower_torch.py DIRECTORY_OF_MOVIELENS --seeds=3
"""
import argparse
import collections
import csv
import gzip
import math

import torch
import torch.nn as nn

from torch_parts import auc

WIDTH, BATCH, LANES, EPOCHS = 32, 1024, 4, 10


def auc_by_user(users, scores, labels):
    rows = collections.defaultdict(list)
    for i, user in enumerate(users.tolist()):
        rows[user].append(i)
    total = weight = 0.0
    for mine in rows.values():
        mine = torch.tensor(mine)
        if 0 < labels[mine].sum() < len(mine):
            total += auc(scores[mine], labels[mine]) * len(mine)
            weight += len(mine)
    return total / weight


def recall(queries, vectors, films, known, k):
    """Part of the films that are among the first k of the known ones; one that is not known is not found."""
    found = 0
    for query, film in zip(queries.split(1024), films.split(1024)):
        scores = (query @ vectors.T).masked_fill(~known, -math.inf)
        above = (scores > scores.gather(1, film[:, None])).sum(1)
        found += ((above < k) & known[film]).sum().item()
    return found / len(films)


class Tower(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.vectors = nn.Embedding(rows, WIDTH)
        nn.init.uniform_(self.vectors.weight, -0.05, 0.05)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, ids):
        return self.layers(self.vectors(ids))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(2)
    with gzip.open(f"{args.directory}/ratings.csv.gz", "rt") as lines:
        rows = [(int(r["userId"]), int(r["movieId"]), float(r["rating"]) >= 4, int(r["timestamp"]))
                for r in csv.DictReader(lines)]
    users, films = ({id: i for i, id in enumerate(sorted({row[c] for row in rows}))} for c in (0, 1))

    def tensors(rows):
        return (torch.tensor([users[r[0]] for r in rows]), torch.tensor([films[r[1]] for r in rows]),
                torch.tensor([float(r[2]) for r in rows]))

    train = tensors([row for row in rows if row[3] % 10 != 9])
    test = tensors([row for row in rows if row[3] % 10 == 9])
    counts = torch.bincount(train[1], minlength=len(films))
    known = counts > 0
    counts = counts.clamp(min=1).float()
    log_often = torch.log(counts / len(train[0]))
    for seed in range(1, args.seeds + 1):
        torch.manual_seed(seed)
        user_tower, film_tower = Tower(len(users)), Tower(len(films))
        tables = [user_tower.vectors.weight, film_tower.vectors.weight]
        dense = [p for tower in (user_tower, film_tower) for p in tower.layers.parameters()]
        # Weir divides by sqrt(sum + 0) + 1e-6.
        optimizers = [torch.optim.Adagrad(tables, lr=0.05, eps=1e-6), torch.optim.Adam(dense, lr=0.001)]
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(train[0])).split(BATCH):
                loss = 0
                for lane in batch.chunk(LANES):
                    u, f, liked = (part[lane] for part in train)
                    scores = user_tower(u) @ film_tower(f).T - log_often[f]
                    same = (f[:, None] == f[None, :]) & ~torch.eye(len(lane), dtype=torch.bool)
                    scores = scores.masked_fill(same, -math.inf)
                    loss = loss - (liked * scores.log_softmax(1).diagonal()).sum() / len(batch)
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
        with torch.no_grad():
            scores = (user_tower(test[0]) * film_tower(test[1])).sum(1)
            likes = test[2] > 0.5
            found = recall(user_tower(test[0][likes]), film_tower(torch.arange(len(films))), test[1][likes], known, 50)
        print(f"seed={seed} auc={auc(scores, test[2]):.4f} gauc={auc_by_user(test[0], scores, test[2]):.4f} "
              f"recall@50={found:.4f}", flush=True)


if __name__ == "__main__":
    main()
