"""The job of deepfm_bench in PyTorch: the same shapes, tower, optimizers and kind of batches.

Prints examples per second, and processor time of all processes an example.

    python3 tests/bench/deepfm_torch.py                    one process, two threads
    python3 tests/bench/deepfm_torch.py --processes=2      DistributedDataParallel over gloo, a thread each
    ... --fused --static_graph --bucket_view --compile     what newer versions have
    ... --bf16                                             autocast to bfloat16

Embeddings are sparse with Adagrad, the tower has Adam. Batches are made before the timer, as in deepfm_bench; the loss
of the last step must be finite and the weights must have moved, or there is no figure.
"""
import argparse
import math
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

FIELDS, IDS, DENSE, BATCH, WIDTH, TOWER = 26, 100_000, 13, 2048, 16, 400


class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vectors = nn.Embedding(FIELDS * IDS, WIDTH, sparse=True)
        self.weights = nn.EmbeddingBag(FIELDS * IDS, 1, sparse=True, mode="sum")
        nn.init.uniform_(self.vectors.weight, -WIDTH**-0.5, WIDTH**-0.5)
        nn.init.zeros_(self.weights.weight)
        sizes = [FIELDS * WIDTH + DENSE, TOWER, TOWER, TOWER]
        layers = []
        for i in range(3):
            layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
        self.tower = nn.Sequential(*layers, nn.Linear(TOWER, 1))

    def forward(self, ids, dense):
        x = self.vectors(ids)
        total = x.sum(1)
        fm = 0.5 * (total * total - (x * x).sum(1)).sum(1, keepdim=True)
        return self.weights(ids) + fm + self.tower(torch.cat([x.flatten(1), dense], 1))


def batches(count, size, seed):
    generator = torch.Generator().manual_seed(seed)
    base = torch.arange(FIELDS) * IDS
    for _ in range(count):
        yield (torch.randint(0, IDS, (size, FIELDS), generator=generator) + base,
               torch.rand(size, DENSE, generator=generator) - 0.5,
               (torch.rand(size, 1, generator=generator) < 0.25).float())


def train(rank, args):
    torch.set_num_threads(args.threads if args.processes == 1 else 1)
    torch.manual_seed(1)
    model = DeepFM()
    run = torch.compile(model) if args.compile else model
    if args.processes > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(args.port))
        dist.init_process_group("gloo", rank=rank, world_size=args.processes)
        run = nn.parallel.DistributedDataParallel(
            run, static_graph=args.static_graph, gradient_as_bucket_view=args.bucket_view)
    rows = torch.optim.Adagrad([model.vectors.weight, model.weights.weight], lr=0.05)
    tower = torch.optim.Adam(model.tower.parameters(), lr=0.001, **({"fused": True} if args.fused else {}))
    before = model.tower[0].weight.detach().clone()
    data = list(batches(args.warmup + args.steps, BATCH // args.processes, 1 + rank))
    for step, (ids, dense, label) in enumerate(data):
        if step == args.warmup:
            start, cpu = time.perf_counter(), time.process_time()
        rows.zero_grad(set_to_none=True)
        tower.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            logit = run(ids, dense)
        loss = F.binary_cross_entropy_with_logits(logit.float(), label)
        loss.backward()
        rows.step()
        tower.step()
    seconds = time.perf_counter() - start
    cpu = torch.tensor(time.process_time() - cpu, dtype=torch.float64)
    if args.processes > 1:
        dist.all_reduce(cpu)
    if not math.isfinite(loss.item()) or torch.equal(before, model.tower[0].weight):
        raise SystemExit("the model did not train: no figure")
    if rank == 0:
        examples = BATCH * args.steps
        print(f"torch {torch.__version__}, {args.processes} process(es): {examples / seconds:.1f} examples/s   "
              f"{1e6 * cpu.item() / examples:.1f} us of processor time each")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=10)
    for option in ("bf16", "fused", "static_graph", "bucket_view", "compile"):
        parser.add_argument("--" + option, action="store_true")
    parser.add_argument("--port", type=int, default=29533)
    arguments = parser.parse_args()
    if arguments.processes == 1:
        train(0, arguments)
    else:
        mp.spawn(train, (arguments,), nprocs=arguments.processes)
