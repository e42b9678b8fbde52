"""Look-ups and updates of embedding_bench in FBGEMM's tables on the CPU, on one thread.

    python3 tests/bench/peers/rows_fbgemm.py --rows=1000000
    ... --tables=26         the rows spread over as many tables; they have as many ids each, but for chance
    ... --shuffled          ids in no order

Tables of 16 values and 16 of exact Adagrad's state a row; batches of 53,248 uniform ids, made distinct before the timer
and, as those of embedding_bench, in the order of the table. A look-up is the forward pass of bags of one id, an update
the backward pass from a gradient at hand, in which FBGEMM sorts the ids and updates the rows; as a backward pass needs
its forward pass, rows to update were read just before. Ids are positions in tables of a fixed size. Look-ups, updates
and Adagrad's state are checked before the timer, and that rows have moved after it.

Prints millions of rows a second, by the clock and of processor time of all threads, medians of --repetitions.

Packages: those of deepfm_torchrec.py; torchrec itself is not used.
"""
import argparse
import ctypes
import gc
import logging
import os
import statistics
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
# Before torch is loaded: huge pages for tables; and memory that was freed stays with the process (M_MMAP_THRESHOLD and
# M_TRIM_THRESHOLD of mallopt(3)), so that no step waits for new pages.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
for setting, most in ((-3, 32 << 20), (-1, 2**31 - 1)):
    ctypes.CDLL(None).mallopt(setting, most)

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

WIDTH, BATCH_IDS, BATCHES, RATE, EPSILON = 16, 26 * 2048, 32, 0.1, 1e-10


def make_tables(rows, tables):
    result = SplitTableBatchedEmbeddingBagsCodegen(
        [(-(-rows // tables), WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)] * tables,
        optimizer=EmbOptimType.EXACT_ADAGRAD, learning_rate=RATE, eps=EPSILON, pooling_mode=PoolingMode.SUM,
        bounds_check_mode=BoundsCheckMode.NONE)
    result.init_embedding_weights_uniform(-1, 1)
    return result


class Batch:
    """Distinct ids as FBGEMM takes them: table by table, in as many bags each, the last ones of which may be empty."""

    def __init__(self, ids, rows, tables):
        each = -(-rows // tables)
        parts = [ids[ids // each == table] - table * each for table in range(tables)]
        bags = max(len(part) for part in parts)
        lengths = torch.cat([(torch.arange(bags) < len(part)).long() for part in parts])
        self.count = len(ids)
        self.ids, self.offsets = torch.cat(parts), torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        self.gradient = torch.full((bags, tables * WIDTH), 0.01)


def draw(args, generator):
    ids = torch.unique(torch.randint(0, args.rows, (BATCH_IDS,), generator=generator))
    return ids[torch.randperm(len(ids), generator=generator)] if args.shuffled else ids


def expect(good, what):
    if not good:
        raise SystemExit(f"{what}: no figure")


def check(tables):
    """Looks up and updates rows of the first table; equal ids of a batch are one update of their sum."""
    weights = tables.split_embedding_weights()
    ids = torch.tensor([5, 7, 5, 11])
    offsets = torch.cat([torch.arange(5)] + [torch.full((4,), 4)] * (len(weights) - 1))
    before = weights[0][ids].clone()
    for step, (gradient, moved) in enumerate(((0.01, RATE), (0.02, RATE * 2 / 5**0.5))):
        found = tables(ids, offsets)
        expect(torch.equal(found[:, :WIDTH], before), f"look-up {step} is wrong")
        # Adagrad: rate * g / sqrt(sum of g * g), whatever the number of equal ids.
        found.backward(torch.full_like(found, gradient))
        after = weights[0][ids].clone()
        expect(torch.allclose(before - after, torch.full_like(before, moved), atol=1e-5), f"update {step} is wrong")
        before = after


def measure(tables, batches, repetitions):
    """Name -> rates by the clock, and by processor time."""
    parts = {"look-ups": (0, 1), "Adagrad updates": (1, 2), "look-ups and Adagrad updates": (0, 2)}
    rates = {name: ([], []) for name in parts}
    gc.collect()
    gc.freeze()
    for repetition in range(-2, repetitions):
        batch = batches[(repetition + 2) % len(batches)]
        times = [(time.perf_counter(), time.process_time())]
        found = tables(batch.ids, batch.offsets)
        times.append((time.perf_counter(), time.process_time()))
        found.backward(batch.gradient)
        times.append((time.perf_counter(), time.process_time()))
        if repetition < 0:
            continue
        for name, (begin, end) in parts.items():
            for kind in (0, 1):
                rates[name][kind].append(1e-6 * batch.count / (times[end][kind] - times[begin][kind]))
    return rates


def main(args):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    tables = make_tables(args.rows, args.tables)
    check(tables)
    batches = [Batch(draw(args, generator), args.rows, args.tables) for _ in range(BATCHES)]
    before = tables(batches[0].ids, batches[0].offsets).detach().clone()
    rates = measure(tables, batches, args.repetitions)
    moved = (tables(batches[0].ids, batches[0].offsets) != before).sum().item()
    expect(moved >= 0.99 * batches[0].count * WIDTH, f"only {moved} values of {batches[0].count} rows moved")
    print(f"fbgemm on torch {torch.__version__}, {args.rows} rows in {args.tables} table(s), "
          f"{batches[0].count} distinct ids a batch")
    for name, (wall, cpu) in rates.items():
        print(f"{name + ', uniform':<40} {statistics.median(wall):6.1f} M/s  best {max(wall):6.1f}  "
              f"of processor time {statistics.median(cpu):6.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--shuffled", action="store_true")
    main(parser.parse_args())
