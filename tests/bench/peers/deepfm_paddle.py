"""The job of deepfm_bench on Paddle 3.0.0: 3.1 and later releases have no parameter server.

Prints examples per second, and processor time of all processes an example.

    python3 tests/bench/peers/deepfm_paddle.py                one process without servers, two threads
    python3 tests/bench/peers/deepfm_paddle.py --servers=2    2 servers + 2 trainers, asynchronous
    ... --threads=1                                           fewer of a trainer's threads, which train a batch each
    ... --verbose                                             with what the processes say

    python3 -m venv DIR && DIR/bin/pip install paddlepaddle==3.0.0 "protobuf<6" setuptools

A row is the wide weight and the vector. Rows have Adagrad with a sum for each value, the tower Adam. These ways of
3.0.0 are not used: synchronous training, which ends in a segmentation fault at its first step, by Executor.run as by
train_from_dataset; Executor.run in asynchronous training, which leaves the tower as it was; programs of the new form
(PIR), a third as fast as those of the old one; and oneDNN, which fails in the old form and gives another loss in the
new one.

Batches are made before the timer, those of trainers from text that is in memory by then. The warm-up brings every id
once. The timed part ends when the servers have all gradients. The loss of the last batch must be finite and weights and
rows must have moved, or there is no figure.
"""
import argparse
import ctypes
import importlib.metadata
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
FIELDS, IDS, DENSE, BATCH, WIDTH, TOWER = 26, 100_000, 13, 2048, 16, 400
ROW = 1 + WIDTH  # the wide weight is first
RATE = 0.05
SHARDS = 100  # of the table in a server; Paddle's 1000 are slower
SERVERS_DEADLINE_S = 60
PR_SET_PDEATHSIG = 1  # of linux/prctl.h: no process outlives the one that started it


def batches(count, size, rank=0, trainers=1):
    """Ids from 1 on, of all fields, values and labels. The first batches of all trainers bring every id once."""
    random = np.random.default_rng(1 + rank)
    for step in range(count):
        first = (step * trainers + rank) * size
        ids = random.integers(0, IDS, (size, FIELDS))
        if first < IDS:
            ids[:] = ((first + np.arange(size)) % IDS)[:, None]
        yield (1 + ids + np.arange(FIELDS) * IDS, random.random((size, DENSE), np.float32) - 0.5,
               (random.random((size, 1)) < 0.25).astype(np.float32))


def loss_of(rows, dense, label):
    """Loss of a batch from its rows: [B, FIELDS, ROW]."""
    wide, vectors = rows[:, :, :1], rows[:, :, 1:]
    total = paddle.sum(vectors, axis=1)
    fm = 0.5 * paddle.sum(total * total - paddle.sum(vectors * vectors, axis=1), axis=1, keepdim=True)
    x = paddle.concat([paddle.reshape(vectors, [-1, FIELDS * WIDTH]), dense], axis=1)
    for i in range(3):
        x = paddle.static.nn.fc(x, TOWER, activation="relu", name=f"tower{i}")
    logit = paddle.static.nn.fc(x, 1) + fm + paddle.sum(wide, axis=1)
    return paddle.mean(F.binary_cross_entropy_with_logits(logit, label))


def inputs(shape_of_ids, **kind_of_ids):
    return [paddle.static.data("ids", shape_of_ids, "int64", **kind_of_ids),
            paddle.static.data("dense", [None, DENSE], "float32"), paddle.static.data("label", [None, 1], "float32")]


def value(name):
    return np.array(paddle.static.global_scope().find_var(name).get_tensor())


def one_process(args):
    """Trains without servers; returns seconds, processor time, the last loss, and whether all has moved."""
    ids, dense, label = inputs([None, FIELDS])
    uniform = paddle.nn.initializer.Uniform(-WIDTH**-0.5, WIDTH**-0.5)
    rows = paddle.static.nn.embedding(ids, [1 + FIELDS * IDS, ROW], is_sparse=True,
                                      param_attr=paddle.ParamAttr(name="rows", initializer=uniform))
    loss = loss_of(rows, dense, label)
    grads = paddle.static.append_backward(loss)
    paddle.optimizer.Adagrad(RATE, epsilon=1e-10).apply_gradients([x for x in grads if x[0].name == "rows"])
    paddle.optimizer.Adam(0.001).apply_gradients([x for x in grads if x[0].name != "rows"])
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    before = value("tower0.w_0"), value("rows")
    for number, batch in enumerate(list(batches(args.warmup + args.steps, BATCH))):
        if number == args.warmup:
            start, cpu = time.perf_counter(), time.process_time()
        last, = executor.run(feed=dict(zip(("ids", "dense", "label"), batch)), fetch_list=[loss])
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    moved = not np.array_equal(before[0], value("tower0.w_0")) and not np.array_equal(before[1], value("rows"))
    return seconds, cpu, float(last), moved


def table():
    """Settings of the table of rows, as DistributedStrategy.sparse_table_configs takes them."""
    settings = {"table_class": "MemorySparseTable", "shard_num": SHARDS, "enable_sparse_table_cache": False,
                "accessor.accessor_class": "SparseAccessor", "accessor.ctr_accessor_param.zero_init": False}
    for part, initial in (("embed", 0.0), ("embedx", WIDTH**-0.5)):
        rule = f"accessor.{part}_sgd_param."
        settings[rule + "name"] = "StdAdaGradSGDRule"
        # Paddle divides by the root of 1 + sum / initial_g2sum; 3 is its default.
        for key, setting in (("learning_rate", RATE), ("initial_g2sum", 3.0), ("initial_range", initial),
                             ("weight_bounds", [-10.0, 10.0])):
            settings[f"{rule}adagrad.{key}"] = setting
    return {"rows": {"table_parameters.rows." + key: setting for key, setting in settings.items()}}


def without_pushes(program):
    """Forward of a trainer's program, which changes no row."""
    result = program.clone(for_test=True)
    block = result.global_block()
    for at in reversed(range(len(block.ops))):
        if block.ops[at].type in ("distributed_push_sparse", "send"):
            block._remove_op(at)  # pylint: disable=protected-access
    return result


class Trainer:
    """A trainer of the cluster. It says ready, waits for a line, trains, and says done and its result."""

    def __init__(self, args, batch_inputs, rows, loss):
        self.args, self.inputs, self.rows, self.loss = args, batch_inputs, rows, loss
        self.rank, self.size = fleet.worker_index(), BATCH // fleet.worker_num()
        self.program = paddle.static.default_main_program()
        self.forward = without_pushes(self.program)
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        self.executor.run(paddle.static.default_startup_program())
        fleet.init_worker()

    def dataset(self, data, directory):
        """Batches in memory, as Paddle reads them."""
        path = os.path.join(directory, "batches")
        with open(path, "w", encoding="ascii") as out:
            for batch in data:
                for ids, dense, label in zip(*(part.tolist() for part in batch)):
                    out.write(f"{FIELDS} {' '.join(map(str, ids))} {DENSE} {' '.join(map(str, dense))} 1 {label[0]}\n")
        result = paddle.distributed.InMemoryDataset()
        result.init(batch_size=self.size, thread_num=self.args.threads, pipe_command="cat", use_var=self.inputs)
        result.set_filelist([path])
        result.load_into_memory()
        return result

    def rows_of(self, batch):
        """Loss and rows of a batch, as the servers have them."""
        ids = paddle.base.create_lod_tensor(batch[0].reshape(-1, 1), [[FIELDS] * self.size], paddle.CPUPlace())
        feed = {"ids": ids, "dense": batch[1], "label": batch[2]}
        # An executor of its own: train_from_dataset takes away what another one has kept for its next run.
        loss, rows = paddle.static.Executor(paddle.CPUPlace()).run(
            self.forward, feed=feed, fetch_list=[self.loss.name, self.rows.name], return_numpy=False)
        return float(np.array(loss)), np.array(rows)

    def train(self, dataset):
        self.executor.train_from_dataset(self.program, dataset, thread=self.args.threads)

    def run(self):
        data = list(batches(self.args.warmup + self.args.steps, self.size, self.rank, fleet.worker_num()))
        with tempfile.TemporaryDirectory() as directory:
            warmup = self.dataset(data[:self.args.warmup], directory)
            timed = self.dataset(data[self.args.warmup:], directory)
        self.train(warmup)
        before = value("tower0.w_0"), self.rows_of(data[-1])[1]
        print("ready", flush=True)
        sys.stdin.readline()
        self.train(timed)
        print("done", flush=True)
        loss, rows = self.rows_of(data[-1])
        moved = not np.array_equal(before[0], value("tower0.w_0")) and not np.array_equal(before[1], rows)
        print("result", json.dumps([loss, bool(moved)]), flush=True)
        fleet.stop_worker()


def part_of_cluster(args):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    batch_inputs = inputs([None, 1], lod_level=1)
    ids, dense, label = batch_inputs
    rows = paddle.static.nn.sparse_embedding(ids, [1 + FIELDS * IDS, ROW], param_attr=paddle.ParamAttr(name="rows"))
    rows = paddle.reshape(rows, [-1, FIELDS, ROW])
    loss = loss_of(rows, dense, label)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    strategy.sparse_table_configs = table()
    fleet.distributed_optimizer(paddle.optimizer.Adam(0.001, lazy_mode=True), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        Trainer(args, batch_inputs, rows, loss).run()


class Cluster:
    """Processes of this program, servers first, in a directory of their own, as Paddle leaves files in it."""

    def __init__(self, args):
        self.args, self.processes = args, []
        self.directory = tempfile.TemporaryDirectory()
        self.ports = {"PSERVER": range(args.port, args.port + args.servers),
                      "TRAINER": range(args.port + args.servers, args.port + args.servers + args.trainers)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        self.directory.cleanup()

    def start(self, role):
        def addresses(of):
            return ",".join(f"127.0.0.1:{port}" for port in self.ports[of])
        environment = dict(
            os.environ, TRAINING_ROLE=role, POD_IP="127.0.0.1", PADDLE_WITH_GLOO="0",
            PADDLE_TRAINERS_NUM=str(self.args.trainers), PADDLE_PSERVERS_IP_PORT_LIST=addresses("PSERVER"),
            PADDLE_TRAINER_ENDPOINTS=addresses("TRAINER"))
        command = [sys.executable, "-W", "ignore", os.path.realpath(__file__)] + sys.argv[1:]
        for number, port in enumerate(self.ports[role]):
            environment.update(PADDLE_PORT=str(port), PADDLE_TRAINER_ID=str(number))
            self.processes.append(subprocess.Popen(
                command, env=environment, cwd=self.directory.name, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if role == "TRAINER" else subprocess.DEVNULL,
                stderr=None if self.args.verbose else subprocess.DEVNULL))

    def trainers(self):
        """Those that have been started."""
        return self.processes[self.args.servers:]

    def wait_for_servers(self):
        for port in self.ports["PSERVER"]:
            end = time.monotonic() + SERVERS_DEADLINE_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError as error:
                    if time.monotonic() > end:
                        raise SystemExit(f"no server listens at port {port}: {error}") from error
                    time.sleep(0.1)

    def cpu(self):
        """Processor seconds of all processes so far."""
        total = 0
        for process in self.processes:
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
                total += sum(int(ticks) for ticks in stat.read().rsplit(")", 1)[1].split()[11:13])
        return total / os.sysconf("SC_CLK_TCK")


def answers(processes, word):
    """What follows `word` in the first line that begins with it, of each process."""
    found = []
    for process in processes:
        for line in process.stdout:
            if line.startswith(word):
                found.append(line[len(word):])
                break
        else:
            raise SystemExit(f"a trainer ended with {process.wait()} before it said {word}: see --verbose")
    return found


def cluster(args):
    """Trains with servers; returns what one_process does, with the largest loss of a trainer."""
    with Cluster(args) as job:
        job.start("PSERVER")
        job.wait_for_servers()
        job.start("TRAINER")
        answers(job.trainers(), "ready")
        start, cpu = time.perf_counter(), job.cpu()
        for trainer in job.trainers():
            trainer.stdin.write("go\n")
            trainer.stdin.flush()
        answers(job.trainers(), "done")
        seconds, cpu = time.perf_counter() - start, job.cpu() - cpu
        results = [json.loads(line) for line in answers(job.trainers(), "result")]
    return seconds, cpu, max(loss for loss, _ in results), all(moved for _, moved in results)


def load_paddle(threads):
    """Loads Paddle, which reads the form of its programs and its threads from the environment."""
    os.environ.setdefault("FLAGS_enable_pir_api", "0")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    global np, paddle, F, fleet
    import numpy as np
    import paddle
    import paddle.nn.functional as F
    from paddle.distributed import fleet
    paddle.enable_static()
    paddle.seed(1)


def main(args):
    if "TRAINING_ROLE" in os.environ:
        load_paddle(1)
        return part_of_cluster(args)
    if args.servers > 0:
        what = f"{args.servers} servers + {args.trainers} trainers, async"
        seconds, cpu, loss, moved = cluster(args)
    else:
        load_paddle(2)
        what = "1 process"
        seconds, cpu, loss, moved = one_process(args)
    if not math.isfinite(loss) or not moved:
        raise SystemExit(f"the model did not train (loss {loss}, moved: {moved}): no figure")
    examples = BATCH * args.steps
    print(f"paddle {importlib.metadata.version('paddlepaddle')}, {what}: {examples / seconds:.1f} examples/s   "
          f"{1e6 * cpu / examples:.1f} us of processor time each, loss {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--port", type=int, default=29634)
    main(parser.parse_args())
