#!/usr/bin/env python3
"""What merging inside a host saves (distribute.merge_hosts): bytes between two hosts and the time of a step, with it
and without, by turns.

Each host is a network namespace with a link limited both ways by tc's tbf, one server and several trainers, which
share memory. The bytes are those of the hosts' links. The job is examples/synthetic_ctr/libsvm.textproto with skewed
ids; with --all_reduce the tower of predicted_speed.py, whose trainers add gradients among themselves, without servers.
Says "skipped" and exits with 0 where namespaces or tbf cannot be had (they need root).

    bazel build //pserver //trainer //tools:generate_ctr
    tests/bench/merge_hosts.py --turns=3
    tests/bench/merge_hosts.py --trainers=2 --mbit=200 --steps=10
    tests/bench/merge_hosts.py --trainers=4 --examples=256 --all_reduce
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import predicted_speed

DONE = re.compile(r"^done steps=\d+ examples=\d+ seconds=([\d.]+)", re.MULTILINE)
DIGEST = re.compile(r"^digest .*", re.MULTILINE)


def link_bytes(links):
    """Bytes that have left the hosts so far."""
    total = 0
    for name in links.names:
        command = ["ip", "netns", "exec", name, "cat", "/sys/class/net/eth0/statistics/tx_bytes"]
        total += int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return total


def commands(args, work, addresses, merge, steps):
    trainers = 2 * args.trainers
    places = trainers if args.all_reduce else 2
    endpoints = ",".join("%s:%d" % (addresses[2 * i // places], 6170 + i) for i in range(places))
    job = "tower" if args.all_reduce else "ctr"
    common = ["--job=%s/%s.textproto" % (work, job), "--pservers=" + endpoints,
              "--set=distribute.servers=%d" % (0 if args.all_reduce else 2),
              "--set=distribute.trainers=%d" % trainers, "--set=train.lanes=%d" % trainers,
              "--set=data.batch_size=%d" % (args.examples * trainers), "--set=train.max_steps=%d" % steps,
              "--set=train.digest_every_steps=%d" % steps, "--set=distribute.merge_hosts=" + merge]
    if args.all_reduce:
        common.append("--set=distribute.dense=ALL_REDUCE")
    for host in range(0 if args.all_reduce else 2):
        yield host, [args.bin + "/pserver/pserver", "--server_id=%d" % host] + common
    for t in range(trainers):
        yield t // args.trainers, [args.bin + "/trainer/trainer", "--trainer_id=%d" % t, "--threads=1"] + common


def in_host(work, links, host, command):
    """A command in the namespace of a host, with its /tmp: Unix-domain sockets of the other host would lead around the
    link."""
    shared = os.path.join(work, "tmp.%d" % host)
    os.makedirs(shared, exist_ok=True)
    return ["ip", "netns", "exec", links.names[host], "unshare", "--mount", "sh", "-c",
            'mount --bind "$0" /tmp && exec "$@"', shared] + command


def run(args, work, merge):
    """Returns bytes and seconds a step, and the digest."""
    results = []
    # The difference of two lengths leaves out joining, and the statistics of the data.
    for steps in (args.warm, args.warm + args.steps):
        with predicted_speed.Links(2, args.mbit / 1000, args.queue_ms) as links:
            before = link_bytes(links)
            processes = [in_host(work, links, host, command)
                         for host, command in commands(args, work, links.addresses, merge, steps)]
            text = "\n".join(predicted_speed.outputs_of(processes, work, args.timeout, "merge_hosts: " + merge))
            bytes_sent = link_bytes(links) - before
        seconds = [float(found) for found in DONE.findall(text)]
        results.append((bytes_sent, statistics.mean(seconds), DIGEST.findall(text)))
    (few_bytes, few_seconds, _), (bytes_sent, seconds, digest) = results
    return (bytes_sent - few_bytes) / args.steps, (seconds - few_seconds) / args.steps, digest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.abspath("bazel-bin"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--trainers", type=int, default=8, help="of each host")
    parser.add_argument("--examples", type=int, default=4096, help="of a trainer and step")
    parser.add_argument("--mbit", type=float, default=50)
    parser.add_argument("--all_reduce", action="store_true", help="dense gradients among trainers, without servers")
    parser.add_argument("--zipf", type=float, default=1.05)
    parser.add_argument("--warm", type=int, default=2, help="steps that are not counted")
    parser.add_argument("--steps", type=int, default=6, help="steps that are counted")
    parser.add_argument("--queue_ms", type=int, default=50, help="what a link may hold back before it drops packets")
    parser.add_argument("--timeout", type=int, default=900)
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    if os.geteuid() != 0:
        predicted_speed.skip("network namespaces need root")
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            predicted_speed.skip("there is no program '%s'" % tool)
    with tempfile.TemporaryDirectory(prefix="weir_merge_hosts.", dir="/var/tmp") as work:
        predicted_speed.make_jobs(args, work)
        measured = {"AUTO": [], "false": []}
        digests = set()
        for _ in range(args.turns):
            for merge in ("false", "AUTO"):
                sent, seconds, digest = run(args, work, merge)
                measured[merge].append((sent, seconds))
                digests.add(tuple(digest))
                print("merge_hosts: %-5s %8.2f MB a step between the hosts, %7.0f ms a step" %
                      (merge, sent / 1e6, 1e3 * seconds))
                sys.stdout.flush()
    if len(digests) != 1:
        sys.exit("the digests differ: %s" % digests)
    medians = {merge: [statistics.median(column) for column in zip(*rows)] for merge, rows in measured.items()}
    print("with merging: %.2f of the bytes, %.2f of the time; the same digest" %
          tuple(with_it / without for with_it, without in zip(medians["AUTO"], medians["false"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
