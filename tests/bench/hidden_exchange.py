#!/usr/bin/env python3
"""How much of the reduce-scatter of gradients runs while backward does, on a slow link.

Two trainers hold the dense parameters of a tower of 20 MB. Each is in a network namespace of its own; the link between
them is limited with tc's tbf to a rate at which backward takes longer than the exchange. The share comes from the table
of --profile. Exits with 1 if it is less than --least; says "skipped" and exits with 0 where namespaces or tbf cannot be
had (they need root).

    bazel build //trainer
    tests/bench/hidden_exchange.py
    tests/bench/hidden_exchange.py --mbit=400 --backend=WIRE
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

# Multiplications by 64 x 704, 10 times 704 x 704, and 704 x 1: 5.0 million parameters. The gradient of the second
# matrix comes when backward is nearly over: it is a tenth.
JOB = """
name: "hidden_exchange"
data {
  train { files: "train.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 64 } }
  batch_size: %(batch)d
}
model {
  layer { name: "tower" mlp { input: "x" sizes: [%(sizes)s] activation: RELU } }
  layer { name: "out" fc { input: "tower" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { sgd { learning_rate: 0.01 } }
distribute {
  sync: true servers: 0 trainers: 2 dense: ALL_REDUCE
  all_reduce { first_bucket_bytes: 1048576 bucket_bytes: %(bucket)d }
}
comm { backend: %(backend)s }
train { epochs: 1000000 max_steps: %(steps)d seed: 1 lanes: 2 threads: 1 }
"""

LINE = re.compile(r"reduce-scatter: ([\d.]+) ms a step, ([\d.]+) % of it while backward ran")


def skip(why):
    print("skipped: " + why)
    sys.exit(0)


class Link:
    """Two namespaces with a link between them; removed at the end."""

    def __init__(self, mbit):
        tag = "weir%d" % (os.getpid() % 100000)
        self.names = [tag + "a", tag + "b"]
        self.addresses = ["10.213.7.1", "10.213.7.2"]
        self.mbit = mbit

    def __enter__(self):
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", self.names[0], "type", "veth", "peer", "name", self.names[1])
            for name, address in zip(self.names, self.addresses):
                self.ip("link", "set", name, "netns", name)
                self.ip("-n", name, "addr", "add", address + "/24", "dev", name)
                self.ip("-n", name, "link", "set", "lo", "up")
                self.ip("-n", name, "link", "set", name, "up")
                self.run("tc", "-n", name, "qdisc", "add", "dev", name, "root", "tbf", "rate", "%dmbit" % self.mbit,
                         "burst", "256kb", "latency", "100ms")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            skip("no namespaces with a limited link here: %s" % (getattr(error, "stderr", "") or error))
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def run(*command):
        subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)

    def ip(self, *arguments):
        self.run("ip", *arguments)


def write_data(path, examples):
    draw = random.Random(1)
    with open(path, "w") as out:
        for _ in range(examples):
            x = " ".join("%.3f" % draw.uniform(-1, 1) for _ in range(64))
            out.write("1 %d 64 %s\n" % (draw.random() < 0.5, x))


def run(args, link, work):
    with open(os.path.join(work, "job.textproto"), "w") as out:
        out.write(JOB % {**vars(args), "sizes": ", ".join(["704"] * 11)})
    # As many as a step takes: a stream with fewer would give smaller batches.
    write_data(os.path.join(work, "train.txt"), args.batch)
    endpoints = ",".join(address + ":6170" for address in link.addresses)
    trainers = []
    for i, name in enumerate(link.names):
        log = open(os.path.join(work, "trainer.%d.log" % i), "w")
        # A mount namespace of its own hides Unix-domain sockets, which would lead around the link.
        command = ["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c",
                   'mount -t tmpfs tmpfs /tmp && exec "$0" "$@"', os.path.abspath(args.trainer),
                   "--job=%s/job.textproto" % work, "--pservers=" + endpoints, "--trainer_id=%d" % i,
                   "--profile=%s/trainer.%d.json" % (work, i), "--profile_steps=%d:%d" % (args.steps // 3, args.steps)]
        trainers.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=work))
    for trainer in trainers:
        trainer.wait(timeout=args.timeout)
    texts = [open(os.path.join(work, "trainer.%d.log" % i)).read() for i in range(2)]
    if any(trainer.returncode for trainer in trainers):
        print("\n".join(text[-3000:] for text in texts))
        sys.exit("a trainer has failed")
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="bazel-bin/trainer/trainer")
    parser.add_argument("--backend", default="GLOO")
    parser.add_argument("--mbit", type=int, default=1000, help="rate of the link, each way")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--bucket", type=int, default=2000000,
                        help="all_reduce.bucket_bytes; a matrix and its bias")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--least", type=float, default=80, help="per cent")
    parser.add_argument("--timeout", type=int, default=300)
    args = parser.parse_args()
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            skip("there is no program '%s'" % tool)
    # Not below /tmp, which is another one for the trainers.
    with tempfile.TemporaryDirectory(prefix="weir_hidden.", dir="/var/tmp") as work, Link(args.mbit) as link:
        texts = run(args, link, work)
    shares = []
    for i, text in enumerate(texts):
        print("".join(line + "\n" for line in text.splitlines() if "steps of" in line or "all_reduce" in line), end="")
        found = LINE.search(text)
        if found is None:
            sys.exit("trainer %d prints no share of its reduce-scatter" % i)
        shares.append(float(found.group(2)))
        print("trainer %d: reduce-scatter %s ms a step, %s %% of it hidden behind backward" % (i, *found.groups()))
    return 0 if min(shares) >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
