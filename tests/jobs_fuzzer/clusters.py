"""Draws clusters that a job runs on, and what disturbs them.

An attempt is one start of the job, JSON: its processes, settings that must not change a bit, and at most one
disturbance. Attempts follow one another with --resume; nothing disturbs the last one.
"""

from __future__ import annotations

import message

LONG_LEASE = 10.0  # of attempts in which no process is to be found dead by it
SHORT_LEASE = 1.0
_POINTS = {
    "trainer": ("connecting", "first_part", "between_parts", "last_part", "publishing", "reader"),
    "server": ("connecting", "first_part", "between_parts", "last_part", "publishing"),
}


def attempts(rng, case):
    """All attempts of a case."""
    disturbed = rng.choices((0, 1, 2, 3, 4), (20, 40, 25, 10, 5))[0]
    made = []
    for i in range(disturbed + 1):
        attempt = _cluster(rng, case, made[0] if made else None)
        if i < disturbed:
            _disturb(rng, case, attempt)
        made.append(attempt)
    return made


def _cluster(rng, case, first):
    """`first`: the first attempt, for what a resume has to have in common with it."""
    mode, shows = case["mode"], case["shows"]
    most = min(4, case["lanes"]) if mode != "no_lanes" else 3
    if shows == "bits" and mode == "servers" and rng.random() < 0.1:
        return {"local": True, "servers": 0, "trainers": 1, "sets": _free_sets(rng), "lease": LONG_LEASE}
    trainers = rng.randint(1, most)
    if shows != "bits":
        trainers = first["trainers"] if first else max(trainers, min(2, most))
    sync = mode not in ("async", "half_async", "geo", "bounded", "compensated", "eager")
    servers = rng.choice((0, 1, 1, 2, 2, 3)) if sync else rng.choice((1, 1, 2, 3))
    if mode in ("lossy", "per_host") and first:
        servers = first["servers"]
    if mode in ("async_tables", "per_host"):
        servers = max(1, servers)
    sets = _free_sets(rng)
    reduces = mode in ("adasum", "compressed", "local_sgd", "any_order")
    if shows == "bits" and mode == "servers" and rng.random() < 0.4:
        sets.append("distribute.dense=ALL_REDUCE")
        if rng.random() < 0.45:
            sets.append("distribute.update=SHARDED")
        reduces = True
    if reduces:
        # With small buckets WIRE takes a fraction of the time. Running values of batch_norm and dice are not
        # compressed, and are added in an order that suits the backend.
        if mode == "compressed":
            sets.append("comm.backend=" + ("GLOO" if case["seed"] % 4 == 0 else "WIRE"))
        elif rng.random() < 0.85:
            sets.append("comm.backend=" + rng.choice(("WIRE", "WIRE", "WIRE", "GLOO")))
        # With compression the owner of a slice keeps what rounding has lost: slices are then part of the result.
        if rng.random() < 0.4 and mode not in ("local_sgd", "compressed"):
            sets.append("distribute.all_reduce.bucket_bytes=4096")
            sets.append("distribute.all_reduce.first_bucket_bytes=4096")
    if rng.random() < 0.5:
        sets.append("distribute.split_method=" + rng.choice(("HASH_NAME", "BALANCED_BYTES", "BALANCED_LOAD")))
    if rng.random() < 0.15 and mode != "lossy":
        sets.append("distribute.slice_var_up=false")
    may_prefetch = mode not in ("geo", "async_tables") and "is_distributed: true" in message.inline(case["job"])
    if message.get(case["job"], "distribute.bounded_staleness.steps") == "0":
        may_prefetch = False
    if may_prefetch and rng.random() < 0.35:
        sets.append("distribute.prefetch_rows=true")
    # A lossy push is rounded for each host.
    merges = sync and servers > 0 and mode not in ("lossy", "by_trainers", "async_tables")
    if merges and "cluster.shared_memory=false" not in sets and rng.random() < 0.3:
        sets.append("distribute.merge_hosts=true")
    long_tmp = rng.random() < 0.12
    if long_tmp and "distribute.merge_hosts=true" in sets:
        # No socket fits into it, so that trainers share no memory.
        sets.remove("distribute.merge_hosts=true")
    return {
        "local": False,
        "servers": servers,
        "trainers": trainers,
        "sets": sets,
        "long_tmp": long_tmp,
        "keep_going": rng.random() < 0.3,
        "lease": LONG_LEASE,
    }


def _free_sets(rng):
    sets = ["train.threads=%d" % rng.choice((1, 1, 2, 3))]
    if rng.random() < 0.3:
        sets.append("data.prefetch_batches=%d" % rng.choice((1, 5)))
    if rng.random() < 0.3:
        sets.append("cluster.shared_memory=false")
    if rng.random() < 0.2:
        sets.append("distribute.memory_optimize=true")
    return sets


def names(attempt):
    if attempt["local"]:
        return ["trainer.0"]
    servers = ["server.%d" % s for s in range(attempt["servers"])]
    return servers + ["trainer.%d" % t for t in range(attempt["trainers"])]


def _disturb(rng, case, attempt):
    """Adds a disturbance.

    "fault": WEIR_FAULT_POINT. A process that it stops is continued after "hold" seconds; null: never.
    "signal", "victim": sent when the fault point is reached, or without one "after" seconds from the start. A STOP is
        followed by a CONT after "hold" seconds.
    """
    who = names(attempt)
    kind = rng.choices(("kill", "freeze", "gate", "timed"), (30, 20, 30, 20))[0]
    if attempt["local"]:
        kind = "timed"
    made = {"fault": None, "signal": None, "victim": None, "after": None, "hold": 0.0}
    signals, polite = ("TERM", "TERM", "KILL"), ("HUP", "INT")
    if kind == "kill":
        made["fault"] = "kill:" + _point(rng, case, rng.choice(who))
        attempt["lease"] = SHORT_LEASE
    elif kind == "freeze":
        made["fault"] = "stop:" + _point(rng, case, rng.choice(who))
        attempt["lease"] = SHORT_LEASE
        made["hold"] = rng.choice((0.2, 0.5, 0.9, 1.0, 1.1, 1.5, 2.2, None))
        if made["hold"] is None:
            # launch would wait for it.
            attempt["keep_going"] = False
    elif kind == "gate":
        trainer = "trainer.%d" % rng.randrange(attempt["trainers"])
        made["fault"] = "stop:%s:first_part:%d" % (trainer, rng.randrange(case["steps"]))
        made["signal"] = rng.choice(signals + polite)
        made["victim"] = rng.choice(who + ["launch"])
        made["hold"] = rng.choice((0.0, 0.05, 0.2))
        if made["signal"] == "KILL":
            attempt["lease"] = SHORT_LEASE
    else:
        made["after"] = round(rng.uniform(0.0, 0.6), 3)
        made["signal"] = rng.choice(signals + ("STOP",))
        made["victim"] = rng.choice(who if made["signal"] == "STOP" else who + ["launch"])
        if made["signal"] in ("STOP", "KILL"):
            attempt["lease"] = SHORT_LEASE
        if made["signal"] == "STOP":
            made["hold"] = rng.choice((0.2, 0.9, 1.1, 1.6))
    attempt["disturbance"] = made


def _point(rng, case, name):
    if "." in name and name.startswith("trainer") and rng.random() < 0.1:
        point = "reader"
    else:
        point = rng.choice(_POINTS[name.split(".")[0]])
    if point == "connecting":
        return "%s:connecting" % name
    step = rng.randrange(case["steps"])
    if point == "publishing":
        every = message.integer(case["job"], "checkpoint.every_steps", 1)
        step = every * rng.randint(1, max(1, case["steps"] // every))
    return "%s:%s:%d" % (name, point, step)
