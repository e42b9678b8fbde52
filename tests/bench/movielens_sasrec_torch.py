"""The job of examples/movielens/sasrec.textproto in PyTorch: the same files, model, loss and optimizer.

Prints hit rate and NDCG of the first 10 among 101 candidates: of an order by popularity, and after every epoch of each
seed.

    examples/movielens/prepare --output=DIRECTORY
    python3 tests/bench/movielens_sasrec_torch.py DIRECTORY --seeds=8
"""
import argparse
import glob
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

FILMS, MOST, WIDTH, HEADS, BLOCKS, DROPOUT = 3650, 20, 32, 2, 2, 0.2
NEGATIVES, BATCH, EPOCHS, RATE = 64, 512, 8, 0.005
CANDIDATES, K = 101, 10  # the first candidate is the film that the user has rated


def examples_of(paths):
    """Films, lengths of their histories, and the histories [N, MOST] with 0 behind their lengths."""
    films, lengths, histories = [], [], []
    for path in paths:
        with open(path, encoding="ascii") as lines:
            for line in lines:
                _, _, _, _, _, film, count, *history = map(int, line.split())
                history = history[-MOST:]
                films.append(film)
                lengths.append(min(count, MOST))
                histories.append(history + [0] * (MOST - len(history)))
    return tuple(torch.tensor(column) for column in (films, lengths, histories))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.hidden, self.output = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        norm = self.norms[0](x)
        q, k, v = (project(norm).unflatten(2, (HEADS, -1)).transpose(1, 2) for project in self.projections[:3])
        # What is behind a length comes after it, where causal attention does not look.
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        y = x + self.dropout(self.projections[3](attended))
        return y + self.dropout(self.output(F.relu(self.hidden(self.norms[1](y)))))


class Sasrec(nn.Module):
    def __init__(self):
        super().__init__()
        self.films = nn.Embedding(FILMS + 1, WIDTH)
        self.places = nn.Embedding(MOST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        nn.init.normal_(self.films.weight, 0, 0.05)
        nn.init.normal_(self.places.weight, 0, 0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, histories, lengths):
        """States [B, WIDTH] behind the last film of each history."""
        steps = torch.arange(MOST)
        there = (steps < lengths.unsqueeze(1)).unsqueeze(2)
        places = self.places((lengths.unsqueeze(1) - 1 - steps).clamp(min=0))
        x = self.dropout((self.films(histories) + places) * there)
        for block in self.blocks:
            x = block(x)
        return self.norm(x[torch.arange(len(x)), lengths - 1])


def figures(scores):
    """Hit rate and NDCG of the first K, for the films of the first column; ties give the mean over their orders."""
    above, equal = (compare(scores[:, 1:], scores[:, :1]).sum(1) for compare in (torch.gt, torch.eq))
    places = torch.arange(scores.shape[1])
    hit = (places < K).double()
    result = []
    for gain in hit, hit / torch.log2(places + 2.0):
        up_to = F.pad(gain.cumsum(0), (1, 0))
        result.append(((up_to[above + equal + 1] - up_to[above]) / (equal + 1)).mean().item())
    return "hit_rate@{}={:.4f} ndcg@{}={:.4f}".format(K, result[0], K, result[1])


def evaluate(model, test):
    films, lengths, histories = test
    model.eval()
    with torch.no_grad():
        states = model(histories[::CANDIDATES], lengths[::CANDIDATES])
        return figures((model.films(films.view(-1, CANDIDATES)) * states.unsqueeze(1)).sum(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first_seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    films, lengths, histories = examples_of(sorted(glob.glob(args.directory + "/next-train-*.txt")))
    test = examples_of([args.directory + "/next-test.txt"])
    often = torch.bincount(films, minlength=FILMS + 1)
    print(f"popularity {figures(often[test[0]].view(-1, CANDIDATES))}", flush=True)
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        torch.manual_seed(seed)
        model = Sasrec()
        # Weir's Adam updates only the rows of a step. A step draws 32768 times from 3650 films, so it has nearly all.
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for epoch in range(1, EPOCHS + 1):
            model.train()
            for batch in torch.randperm(len(films)).split(BATCH):
                states = model(histories[batch], lengths[batch])
                # Of FILMS films but the one of the example, as `negatives` draws them.
                others = torch.randint(1, FILMS, (len(batch), NEGATIVES))
                others += others >= films[batch].unsqueeze(1)
                candidates = model.films(torch.cat([films[batch].unsqueeze(1), others], 1))
                scores = (candidates * states.unsqueeze(1)).sum(2)
                loss = F.cross_entropy(scores, torch.zeros(len(batch), dtype=torch.long))
                assert math.isfinite(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"seed={seed} epoch={epoch} {evaluate(model, test)}", flush=True)


if __name__ == "__main__":
    main()
