"""Looks at a trace of --profile: check_trace.py FILE BEGIN:END[:MOST] PROCESS... ("trainer.0", "server.1").

The file is JSON for Chrome's trace viewer, of exactly these processes and the steps from BEGIN to END - 1, or of a job
that failed up to MOST - 1; what stands on a thread is nested; arrows have two ends; every process shows what it must.
Prints what is wrong; ends with 1 then.
"""

import collections
import json
import sys

wrong = []


def expect(condition, what):
    if not condition:
        wrong.append(what)


def self_times(spans):
    """Of spans of one thread: (span, time without those in it); None when they cross."""
    spans = sorted(spans, key=lambda s: (s["ts"], -s["dur"]))
    times = [s["dur"] for s in spans]
    stack = []
    for i, span in enumerate(spans):
        end = span["ts"] + span["dur"]
        while stack and spans[stack[-1]]["ts"] + spans[stack[-1]]["dur"] <= span["ts"] + 0.01:
            stack.pop()
        if stack:
            outer = spans[stack[-1]]
            if end > outer["ts"] + outer["dur"] + 0.01:
                return None
            times[stack[-1]] -= span["dur"]
        stack.append(i)
    return list(zip(spans, times))


def check_process(name, events, steps, most):
    spans = [e for e in events if e["ph"] == "X"]
    kinds = collections.Counter(e["cat"] for e in spans)
    expect(spans, name + " shows nothing")
    for e in spans:
        expect(e["dur"] >= 0, "%s: %s takes %s" % (name, e["name"], e["dur"]))
        step = e["args"]["step"]
        expect(steps.start <= int(step) < most, "%s: %s is of step %s" % (name, e["name"], step))
    threads = collections.defaultdict(list)
    for e in spans:
        if e["cat"] not in ("call", "handler") and "call" not in e["args"]:
            threads[e["tid"]].append(e)
    timed = {tid: self_times(of) for tid, of in threads.items()}
    for tid, of in timed.items():
        expect(of is not None, "%s: spans of thread %s cross" % (name, tid))
    named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    expect({e["tid"] for e in spans} <= named, name + " has rows without a name")
    must = {"trainer": "step operator exchange threads client call wait data read",
            "server": "handler serve update operator wait"}
    for kind in must[name.split()[0]].split():
        expect(kinds[kind] > 0, "%s has no %s" % (name, kind))
    for e in spans:
        if e["cat"] == "wait" and "call" in e["args"]:
            expect(e["args"].get("what"), "%s: a call waits for nobody: %s" % (name, e))
    calls = {(e["name"], e["args"]["peer"]) for e in spans if e["cat"] in ("call", "handler")}
    for method in ("Push", "Pull rows", "Pull blocks"):
        for peer in (0, 1):
            expect((method, peer) in calls, "%s: no %s with %d" % (name, method, peer))
    if not name.startswith("trainer"):
        return
    of_steps = [e for e in spans if e["cat"] == "step"]
    ran = sorted(int(e["args"]["step"]) for e in of_steps)
    expect(set(steps) <= set(ran) and len(set(ran)) == len(ran), name + " has not each step once")
    # On the thread of the steps all time is somebody's, and what is nobody's in particular is little.
    main = [t for t in timed.values() if t and any(s["cat"] == "step" for s, _ in t)]
    expect(len(main) == 1, name + " runs steps on several threads")
    for of in main:
        wall = sum(e["dur"] for e in of_steps)
        inside = sum(t for s, t in of if s["cat"] not in ("border", "save"))
        expect(abs(inside - wall) <= 0.001 * wall, "%s: %s us in steps of %s us" % (name, inside, wall))
        rest = sum(t for s, t in of if s["cat"] == "step")
        expect(rest < 0.5 * wall, "%s: half of a step's time is nobody's: %s of %s us" % (name, rest, wall))
    lanes = {e["args"]["lane"] for e in spans if e["cat"] == "operator" and "lane" in e["args"]}
    expect(len(lanes) == 4, "%s shows lanes %s" % (name, lanes))


def main():
    path, window = sys.argv[1], [int(n) for n in sys.argv[2].split(":")]
    begin, end, most = window[0], window[1], window[-1]
    wanted = [p.replace(".", " ") for p in sys.argv[3:]]
    with open(path) as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    processes = {p["pid"]: p["name"] for p in trace["otherData"]["processes"]}
    expect(sorted(processes.values()) == sorted(wanted), "processes are %s" % sorted(processes.values()))
    expect(all(p["clockOffsetUs"] == 0 for p in trace["otherData"]["processes"]),
           "processes of one machine share its clock")
    by_pid = collections.defaultdict(list)
    for e in events:
        by_pid[e["pid"]].append(e)
    expect(set(by_pid) <= set(processes), "events of unknown processes")
    for pid, name in processes.items():
        shown = [e["args"]["name"] for e in by_pid[pid] if e["ph"] == "M" and e["name"] == "process_name"]
        expect(shown == [name], "%s is shown as %s" % (name, shown))
        check_process(name, by_pid[pid], range(begin, end), most)
    arrows = collections.Counter((e["ph"], e["id"]) for e in events if e["ph"] in "sf")
    begins = {i for ph, i in arrows if ph == "s"}
    ends = {i for ph, i in arrows if ph == "f"}
    expect(begins == ends and set(arrows.values()) <= {1}, "arrows without an end")
    # A call begins before its handler and ends behind it: the clocks agree.
    both = collections.defaultdict(dict)
    for e in events:
        if e["ph"] == "X" and e["cat"] in ("call", "handler"):
            both[e["args"]["call"]][e["cat"]] = e
    matched = [c for c in both.values() if len(c) == 2]
    expect(len(matched) == len(begins), "%d calls are matched, %d have arrows" % (len(matched), len(begins)))
    servers = sum(name.startswith("server") for name in wanted)
    expect(len(matched) >= servers * (end - begin), "only %d calls are matched" % len(matched))
    for c in matched:
        expect(c["call"]["ts"] <= c["handler"]["ts"], "a handler runs before its call")
    for text in wrong[:20]:
        print(text)
    return 1 if wrong else 0


sys.exit(main())
