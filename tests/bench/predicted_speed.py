#!/usr/bin/env python3
"""Predicted step times beside measured ones: `transpile --print=explain --calibrate` against clusters of 1 to 16
processes on this machine.

Two jobs are calibrated: a tower of 5 million dense parameters, and Wide & Deep with distributed tables on libsvm text.
All predictions are written before the first run. Some clusters share memory, so the machine's cores hold
them up; in the others each process is in a network namespace of its own whose link is limited both ways with tc's tbf.
Runs take turns; the figure of a set-up is the median of its turns. Exits with 1 if a prediction is wrong by more than
15 % where links hold the step up, or by more than 25 % elsewhere; says "skipped" and exits with 0 where namespaces or
tbf cannot be had (they need root).

    bazel build //pserver //trainer //transpiler:transpile //tools:generate_ctr
    tests/bench/predicted_speed.py --turns=3
    tests/bench/predicted_speed.py --only=tower --keep=/tmp/predicted    # calibrations and predictions stay there
"""

import argparse
import glob
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOWER = """
name: "tower"
data {
  train { files: "tower.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 64 } }
  batch_size: 2048
}
model {
  layer { name: "tower" mlp { input: "x" sizes: [%s] activation: RELU } }
  layer { name: "out" fc { input: "tower" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { adam { learning_rate: 0.001 } }
distribute { sync: true servers: 1 trainers: 1 }
train { epochs: 1000000 seed: 1 lanes: 8 }
""" % ", ".join(["704"] * 11)

# Job, servers, trainers, Gbit/s of each process's link (None: shared memory), further settings.
SETUPS = [
    ("tower", 1, 1, None, ()),
    ("tower", 2, 2, None, ()),
    ("tower", 1, 1, 1.0, ()),
    ("tower", 2, 2, 0.5, ()),
    ("tower", 4, 4, 0.5, ()),
    ("tower", 0, 2, 0.5, ("distribute.dense=ALL_REDUCE",)),
    ("ctr", 0, 1, None, ()),
    ("ctr", 1, 1, None, ()),
    ("ctr", 1, 2, None, ()),
    ("ctr", 2, 2, None, ("distribute.sync=false",)),
    ("ctr", 1, 1, 0.2, ()),
    ("ctr", 2, 2, 0.1, ()),
    ("ctr", 1, 4, 0.2, ()),
    ("ctr", 3, 5, 0.05, ()),
    ("tower", 8, 8, 0.25, ()),
    ("ctr", 8, 8, None, ()),
    ("ctr", 8, 8, 0.02, ()),
    ("ctr", 4, 12, 0.05, ("train.lanes=16",)),
]

STEPS = re.compile(r"trainer \d+: (\d+) steps of ([\d.]+) ms")


def skip(why):
    print("skipped: " + why)
    sys.exit(0)


def checked(*command):
    subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)


class Links:
    """Namespaces joined by a bridge in a namespace of its own, each with a link limited to a rate both ways."""

    def __init__(self, count, gbit, queue_ms):
        tag = "wp%d" % (os.getpid() % 100000)
        self.hub = tag + "h"
        self.names = ["%s.%d" % (tag, i) for i in range(count)]
        self.addresses = ["10.213.9.%d" % (i + 1) for i in range(count)]
        self.mbit = gbit * 1000
        self.queue_ms = queue_ms

    def __enter__(self):
        try:
            checked("ip", "netns", "add", self.hub)
            checked("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
            checked("ip", "-n", self.hub, "link", "set", "bridge", "up")
            for i, (name, address) in enumerate(zip(self.names, self.addresses)):
                checked("ip", "netns", "add", name)
                checked("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", "port%d" % i,
                        "netns", self.hub)
                checked("ip", "-n", self.hub, "link", "set", "port%d" % i, "master", "bridge", "up")
                checked("ip", "-n", name, "addr", "add", address + "/24", "dev", "eth0")
                checked("ip", "-n", name, "link", "set", "lo", "up")
                checked("ip", "-n", name, "link", "set", "eth0", "up")
                for where, device in ((name, "eth0"), (self.hub, "port%d" % i)):
                    checked("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", "rate",
                            "%dkbit" % int(self.mbit * 1000), "burst", "256kb", "latency", "%dms" % self.queue_ms)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            skip("no namespaces with limited links here: %s" % (getattr(error, "stderr", "") or error))
        return self

    def __exit__(self, *_):
        for name in self.names + [self.hub]:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def warm_steps(setup):
    """Steps before those that are timed: in ctr a pass over the data, which makes all rows."""
    return 66 if setup[0] == "ctr" else 4


def settings_of(args, setup):
    _, servers, trainers, _, more = setup
    sets = ("distribute.servers=%d" % servers, "distribute.trainers=%d" % trainers,
            "train.max_steps=%d" % (warm_steps(setup) + args.steps + 2)) + more
    return ["--set=" + each for each in sets]


def title(setup):
    job, servers, trainers, gbit, more = setup
    link = "%g Gbit/s" % gbit if gbit else "shared memory"
    return " ".join(["%s %d + %d" % (job, servers, trainers), link] + [each.split(".")[-1] for each in more])


def predict(args, work, setup):
    job, _, _, gbit, _ = setup
    command = [args.bin + "/transpiler/transpile", "--job=%s/%s.textproto" % (work, job), "--print=explain",
               "--format=json", "--one_machine", "--sample=20", "--calibrate=%s/%s.calibration" % (work, job)]
    if gbit:
        command += ["--link_gbit=%g" % gbit, "--link_us=20"]
    done = subprocess.run(command + settings_of(args, setup), check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(command), done.stderr))
    speed = json.loads(done.stdout)["speed"]
    if "refusal" in speed and speed["refusal"]:
        sys.exit("%s: %s" % (title(setup), speed["refusal"]))
    return speed


def commands(args, work, setup, endpoints):
    """The processes of a set-up."""
    job, servers, trainers, _, _ = setup
    common = ["--job=%s/%s.textproto" % (work, job), "--pservers=" + ",".join(endpoints)] + settings_of(args, setup)
    for s in range(servers):
        yield [args.bin + "/pserver/pserver", "--server_id=%d" % s] + common
    threads = max(1, (os.cpu_count() or 1) // trainers)
    for t in range(trainers):
        yield [args.bin + "/trainer/trainer", "--trainer_id=%d" % t, "--threads=%d" % threads,
               "--profile=%s/trace.%d.json" % (work, t),
               "--profile_steps=%d:%d" % (warm_steps(setup), warm_steps(setup) + args.steps)] + common


def run(args, work, setup):
    """Returns seconds a step: the mean over the trainers."""
    _, servers, trainers, gbit, _ = setup
    count = servers + trainers
    owners = servers if servers else trainers
    if gbit:
        with Links(count, gbit, args.queue_ms) as links:
            endpoints = [address + ":6170" for address in links.addresses[:owners]]
            # A mount namespace of its own hides Unix-domain sockets, which would lead around the link.
            prefixes = [["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c",
                         'mount -t tmpfs tmpfs /tmp && exec "$0" "$@"'] for name in links.names]
            return wait_for(args, work, setup, [p + c for p, c in zip(prefixes,
                                                                      commands(args, work, setup, endpoints))])
    first = random.randrange(20000, 30000)
    endpoints = ["127.0.0.1:%d" % (first + i) for i in range(owners)]
    return wait_for(args, work, setup, list(commands(args, work, setup, endpoints)))


def outputs_of(processes, work, timeout, what):
    """Runs commands at the same time, and returns what each has printed. Ends this program if one fails, or still runs
    after `timeout` seconds. `what` they do, for the message."""
    logs = [os.path.join(work, "process.%d.log" % i) for i in range(len(processes))]
    children = []
    for command, log in zip(processes, logs):
        with open(log, "w") as out:
            children.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=work))
    end = time.monotonic() + timeout
    try:
        # One that fails leaves the others waiting.
        while any(child.poll() is None for child in children) and not any(child.returncode for child in children):
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        failed = any(child.poll() != 0 for child in children)
    finally:
        for child in children:
            child.kill()
            child.wait()
    texts = []
    for log in logs:
        with open(log) as text:
            texts.append(text.read())
    if failed:
        sys.exit("%s has failed\n%s" % (what, "\n".join(text[-2000:] for text in texts)))
    return texts


def wait_for(args, work, setup, processes):
    texts = outputs_of(processes, work, args.timeout, title(setup))
    times = [float(found.group(2)) / 1000 for text in texts for found in STEPS.finditer(text)]
    if len(times) != setup[2]:
        sys.exit("%s: %d trainers print the time of a step" % (title(setup), len(times)))
    return statistics.mean(times)


def make_jobs(args, work):
    draw = random.Random(1)
    with open(os.path.join(work, "tower.txt"), "w") as out:
        for _ in range(4096):
            out.write("1 %d 64 %s\n" % (draw.random() < 0.5, " ".join("%.3f" % draw.uniform(-1, 1) for _ in range(64))))
    with open(os.path.join(work, "tower.textproto"), "w") as out:
        out.write(TOWER)
    checked(args.bin + "/tools/generate_ctr", "--output=" + os.path.join(work, "data"), "--format=libsvm",
            "--ids=38461", "--zipf=%g" % args.zipf, "--rows=262144", "--eval_rows=1024", "--files=16",
            "--weight_scale=0.195", "--vector_scale=0")
    with open("examples/synthetic_ctr/libsvm.textproto") as job, open(os.path.join(work, "ctr.textproto"), "w") as out:
        # Several passes over the same rows: the time of rows that are met for the first time is not predicted.
        out.write(job.read().replace("epochs: 1 ", "epochs: 100 ").replace('eval { files: "data/eval.libsvm" }', ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.abspath("bazel-bin"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    parser.add_argument("--queue_ms", type=int, default=50, help="what a link may hold back before it drops packets")
    parser.add_argument("--zipf", type=float, default=1.05)
    parser.add_argument("--only", default="", help="set-ups whose title contains this")
    parser.add_argument("--keep", default="", help="directory for job files, calibrations and predictions")
    parser.add_argument("--timeout", type=int, default=600)
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            skip("there is no program '%s'" % tool)
    setups = [setup for setup in SETUPS if args.only in title(setup)]
    # Not below /tmp, which is another one for the processes.
    with tempfile.TemporaryDirectory(prefix="weir_predicted.", dir="/var/tmp") as work:
        if args.keep:
            for kept in glob.glob(os.path.join(args.keep, "*.calibration")):
                shutil.copy(kept, work)
        make_jobs(args, work)
        predictions = [predict(args, work, setup) for setup in setups]
        with open(os.path.join(work, "predictions.json"), "w") as out:
            json.dump([{"setup": title(s), "speed": p} for s, p in zip(setups, predictions)], out, indent=1)
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
            for name in glob.glob(os.path.join(work, "*.calibration")) + [os.path.join(work, "predictions.json")]:
                shutil.copy(name, args.keep)
        print("predictions written; runs begin")
        sys.stdout.flush()
        measured = [[] for _ in setups]
        for _ in range(args.turns):
            for i, setup in enumerate(setups):
                measured[i].append(run(args, work, setup))
    wrong = 0
    print("%-44s %10s %22s %7s  %s" % ("set-up", "predicted", "measured", "ratio", "held up by"))
    for setup, speed, times in zip(setups, predictions, measured):
        median = statistics.median(times)
        ratio = speed["step_seconds"] / median
        by_link = "links" in speed["bottleneck"]
        bad = abs(ratio - 1) > (0.15 if by_link else 0.25)
        wrong += bad
        print("%-44s %7.1f ms %7.1f (%.1f to %.1f) %7.2f  %s%s" %
              (title(setup), 1e3 * speed["step_seconds"], 1e3 * median, 1e3 * min(times), 1e3 * max(times), ratio,
               speed["bottleneck"], "  WRONG" if bad else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
