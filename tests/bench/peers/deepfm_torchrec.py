"""The job of deepfm_bench with its rows in FBGEMM's tables on the CPU: the fastest way of TorchRec that we have found.

Prints examples per second, and processor time of all processes an example.

    python3 tests/bench/peers/deepfm_torchrec.py                  one process: FBGEMM's tables, compiled, two threads
    python3 tests/bench/peers/deepfm_torchrec.py --stock          ... without what is no stock form (below)
    python3 tests/bench/peers/deepfm_torchrec.py --processes=2    TorchRec's DistributedModelParallel with its pipeline,
                                                                  a thread each, tables dealt to the processes, gloo
    ... --bf16                                                    autocast to bfloat16

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 numpy && DIR/bin/pip install --no-deps torchrec==1.9.2 \
        fbgemm-gpu-cpu==1.9.0 tensordict torchmetrics==1.0.3 iopath pyre-extensions tqdm psutil packaging portalocker \
        lightning-utilities typing-inspect mypy-extensions cloudpickle importlib_metadata zipp orjson pyvers

FBGEMM's widths are multiples of four, so a row is the vector, its wide weight and three columns of nothing: one look-up
and one update for both. Rows have exact Adagrad, the tower fused Adam. FBGEMM looks up and updates its tables on one
thread, however many there are; so, without --stock, two threads have half of the tables each, and OpenMP's idle threads
leave them the cores. Batches are made before the timer; the loss of the last step must be finite and weights and rows
must have moved, or there is no figure.
"""
import argparse
import concurrent.futures
import logging
import math
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
# Before torch is loaded.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
if "--stock" not in sys.argv and not any(each.startswith("--processes") for each in sys.argv):
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from deepfm_torch import BATCH, DENSE, FIELDS, IDS, TOWER, WIDTH, batches  # noqa: E402

ROW = WIDTH + 4  # of which one column is the wide weight
RATE, EPSILON = 0.05, 1e-10


class Head(nn.Module):
    """Loss of a batch from its rows, one part for each group of tables: [B, tables * ROW]."""

    def __init__(self, bf16):
        super().__init__()
        self.bf16 = bf16
        sizes = [FIELDS * WIDTH + DENSE, TOWER, TOWER, TOWER]
        layers = []
        for i in range(3):
            layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
        self.tower = nn.Sequential(*layers, nn.Linear(TOWER, 1))

    def forward(self, parts, dense, label):
        rows = torch.cat([part.view(len(label), -1, ROW) for part in parts], 1)
        vectors, wide = rows[:, :, :WIDTH], rows[:, :, WIDTH].sum(1, keepdim=True)
        total = vectors.sum(1)
        fm = 0.5 * (total * total - (vectors * vectors).sum(1)).sum(1, keepdim=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            deep = self.tower(torch.cat([vectors.reshape(len(label), -1), dense], 1))
        return F.binary_cross_entropy_with_logits(wide + fm + deep.float(), label)


def fill(table):
    """Initial values of a table: those of deepfm_torch.py."""
    with torch.no_grad():
        table.zero_()
        table[:, :WIDTH].uniform_(-WIDTH**-0.5, WIDTH**-0.5)


def ids_by_field(ids):
    """Ids of a batch within their field, field by field."""
    return (ids - torch.arange(FIELDS) * IDS).t().reshape(-1)


class OneProcess:
    """Steps with FBGEMM's tables in one group, or in two of which a thread each has one."""

    def __init__(self, args, head):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import (BoundsCheckMode, EmbeddingLocation,
                                                                          PoolingMode)
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (ComputeDevice,
                                                                            SplitTableBatchedEmbeddingBagsCodegen)
        self.head = torch.compile(head, dynamic=False)
        self.adam = torch.optim.Adam(head.parameters(), lr=0.001, fused=True)
        self.groups = []
        count = 1 if args.stock else 2
        for _ in range(count):
            tables = [(IDS, ROW, EmbeddingLocation.HOST, ComputeDevice.CPU)] * (FIELDS // count)
            self.groups.append(SplitTableBatchedEmbeddingBagsCodegen(
                tables, optimizer=EmbOptimType.EXACT_ADAGRAD, learning_rate=RATE, eps=EPSILON,
                pooling_mode=PoolingMode.SUM, bounds_check_mode=BoundsCheckMode.NONE))
            for table in self.groups[-1].split_embedding_weights():
                fill(table)
        self.pool = concurrent.futures.ThreadPoolExecutor(count, initializer=torch.set_num_threads,
                                                          initargs=(1,)) if count > 1 else None

    def prepare(self, data):
        for ids, dense, label in data:
            groups = ids_by_field(ids).chunk(len(self.groups))
            yield [(values, torch.arange(len(values) + 1)) for values in groups], dense, label

    def rows_sum(self):
        return self.groups[0].split_embedding_weights()[0].double().sum().item()

    def step(self, batch):
        inputs, dense, label = batch
        self.adam.zero_grad(set_to_none=True)
        if self.pool is None:
            # Backward updates the tables.
            loss = self.head([self.groups[0](*inputs[0])], dense, label)
            loss.backward()
        else:
            found = list(self.pool.map(lambda group, of: group(*of), self.groups, inputs))
            parts = [rows.detach().requires_grad_() for rows in found]
            loss = self.head(parts, dense, label)
            loss.backward()
            for update in [self.pool.submit(rows.backward, part.grad) for rows, part in zip(found, parts)]:
                update.result()
        self.adam.step()
        return loss.detach()


class WithTables(nn.Module):
    """What DistributedModelParallel and its pipeline train: batch -> (loss, what is returned)."""

    def __init__(self, tables, head):
        super().__init__()
        self.tables, self.head = tables, head

    def forward(self, batch):
        loss = self.head([self.tables(batch.sparse_features).values()], batch.dense_features, batch.labels)
        return loss, loss.detach()


class Parallel:
    """Steps of TorchRec's pipeline over DistributedModelParallel, with neighbouring tables in each process."""

    def __init__(self, head):
        import torchrec
        from torch.distributed.optim import _apply_optimizer_in_backward
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.model_parallel import DefaultDataParallelWrapper, DistributedModelParallel
        from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
        from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
        from torchrec.distributed.types import ShardingEnv, ShardingPlan
        self.keys = [f"c{i}" for i in range(FIELDS)]
        tables = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=[
            torchrec.EmbeddingBagConfig(name="t" + key, embedding_dim=ROW, num_embeddings=IDS, feature_names=[key])
            for key in self.keys])
        _apply_optimizer_in_backward(torch.optim.Adagrad, tables.parameters(), {"lr": RATE, "eps": EPSILON})
        world, sharder = dist.get_world_size(), EmbeddingBagCollectionSharder()
        plan = construct_module_sharding_plan(
            tables, {"t" + key: table_wise(rank=i * world // FIELDS) for i, key in enumerate(self.keys)}, sharder,
            world_size=world, local_size=world, device_type="cpu")
        self.model = DistributedModelParallel(
            WithTables(tables, head), env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=torch.device("cpu"), plan=ShardingPlan({"tables": plan}), sharders=[sharder],
            data_parallel_wrapper=DefaultDataParallelWrapper(static_graph=True))
        for shard in self.shards():
            fill(shard)
        self.pipeline = TrainPipelineSparseDist(self.model, torch.optim.Adam(head.parameters(), lr=0.001, fused=True),
                                                torch.device("cpu"), execute_all_batches=True)
        self.batches = None

    def shards(self):
        return [shard.tensor for name, table in self.model.state_dict().items() if "embedding_bags." in name
                for shard in table.local_shards()]

    def prepare(self, data):
        from torchrec.datasets.utils import Batch
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
        made = []
        for ids, dense, label in data:
            values = ids_by_field(ids)
            keyed = KeyedJaggedTensor(self.keys, values, lengths=torch.ones(len(values), dtype=torch.int32),
                                      offsets=torch.arange(len(values) + 1), stride=len(ids))
            made.append(Batch(dense, keyed, label))
        self.batches = iter(made)
        return made

    def rows_sum(self):
        return self.shards()[0].double().sum().item()

    def step(self, _):
        return self.pipeline.progress(self.batches)


def train(rank, args):
    torch.set_num_threads(2 if args.processes == 1 else 1)
    torch.manual_seed(1)
    if args.processes > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(args.port))
        dist.init_process_group("gloo", rank=rank, world_size=args.processes)
    head = Head(args.bf16)
    steps = OneProcess(args, head) if args.processes == 1 else Parallel(head)
    data = list(steps.prepare(batches(args.warmup + args.steps, BATCH // args.processes, 1 + rank)))
    before = head.tower[0].weight.detach().clone(), steps.rows_sum()
    for number, batch in enumerate(data):
        if number == args.warmup:
            start, cpu = time.perf_counter(), time.process_time()
        loss = steps.step(batch)
    seconds = time.perf_counter() - start
    cpu = torch.tensor(time.process_time() - cpu, dtype=torch.float64)
    if args.processes > 1:
        dist.all_reduce(cpu)
    moved = not torch.equal(before[0], head.tower[0].weight) and before[1] != steps.rows_sum()
    if not math.isfinite(loss.item()) or not moved:
        raise SystemExit("the model did not train: no figure")
    if rank == 0:
        examples = BATCH * args.steps
        print(f"torchrec on torch {torch.__version__}, {args.processes} process(es): "
              f"{examples / seconds:.1f} examples/s   {1e6 * cpu.item() / examples:.1f} us of processor time each, "
              f"loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--port", type=int, default=29534)
    arguments = parser.parse_args()
    if arguments.processes == 1:
        train(0, arguments)
    else:
        mp.spawn(train, (arguments,), nprocs=arguments.processes)
