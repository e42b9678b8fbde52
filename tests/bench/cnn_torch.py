"""The job of cnn_bench in PyTorch: the same network, values to begin with, pictures and optimizer.

Prints milliseconds of a step.

    bazel-bin/tests/bench/cnn_bench --peer="python3 tests/bench/cnn_torch.py"

--dir holds a file of float32 for each parameter, images.f32 and labels.f32, which cnn_bench writes. First, without
dropout, batch normalisation measures each of the eight lanes of a batch by itself, as Weir does, and the losses of the
first steps are printed for cnn_bench to compare. Then the same network is timed as one writes it in PyTorch: normalised
by the whole batch, with dropout.
"""
import argparse
import os
import statistics
import time

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LANES = 256, 8


class LaneNorm(nn.BatchNorm2d):
    """Normalises each lane by itself."""

    def forward(self, x):
        return torch.cat([super(LaneNorm, self).forward(lane) for lane in x.chunk(LANES)])


class Network(nn.Module):
    def __init__(self, norm, dropout):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.norm1 = norm(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.norm2 = norm(64)
        self.hidden = nn.Linear(64 * 7 * 7, 128)
        self.logits = nn.Linear(128, 10)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = F.relu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        x = F.relu(self.norm2(F.max_pool2d(self.conv2(x), 2)))
        return self.logits(self.dropout(F.relu(self.hidden(x.flatten(1)))))


def read(directory, name):
    return torch.from_numpy(numpy.fromfile(os.path.join(directory, name + ".f32"), dtype=numpy.float32))


def start(directory, norm, dropout):
    network = Network(norm, dropout)
    names = {"conv1.weight": "conv1.w", "conv2.weight": "conv2.w",
             "norm1.weight": "norm1.scale", "norm1.bias": "norm1.shift",
             "norm2.weight": "norm2.scale", "norm2.bias": "norm2.shift",
             "hidden.weight": "hidden.0.w", "hidden.bias": "hidden.0.b",
             "logits.weight": "logits.w", "logits.bias": "logits.b"}
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            values = read(directory, names[name])
            # A Linear has its weights the other way round.
            linear = parameter.dim() == 2
            parameter.copy_(values.view(parameter.shape[1], parameter.shape[0]).t() if linear
                            else values.view(parameter.shape))
    network.train()
    return network, torch.optim.Adam(network.parameters(), lr=0.002)


def step(network, adam, images, labels, n):
    batch = slice(n * BATCH, (n + 1) * BATCH)
    adam.zero_grad(set_to_none=True)
    loss = F.cross_entropy(network(images[batch]), labels[batch])
    loss.backward()
    adam.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--checked", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    images, labels = read(args.dir, "images").view(-1, 1, 28, 28), read(args.dir, "labels").long()

    network, adam = start(args.dir, LaneNorm, 0)
    print("losses", *(f"{step(network, adam, images, labels, n):.6f}" for n in range(args.checked)))

    network, adam = start(args.dir, nn.BatchNorm2d, 0.3)
    times = []
    for n in range(args.warmup + args.steps):
        begin = time.perf_counter()
        step(network, adam, images, labels, n)
        times.append(time.perf_counter() - begin)
    print(f"torch {torch.__version__}: {1000 * statistics.median(times[args.warmup:]):.1f} ms a step")


if __name__ == "__main__":
    main()
