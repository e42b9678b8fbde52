"""A server of the page of a running job (tools/page/page.html) with a made-up job behind it.

    python3 tests/python/page_server.py --port=8080 --scene=waiting

plays one of SCENES in the place of `launch --page=8080`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Optional, Union
from urllib.parse import parse_qs, urlsplit

PAGE = Path(__file__).parents[2] / "tools" / "page" / "page.html"
POLICY = "default-src 'self' 'unsafe-inline'"

State = dict[str, Any]
# Gives the reply to /state.json?since=N (None without it): a state, raw bytes, or None, which ends the connection
# without a reply.
Source = Callable[[Optional[int]], Union[State, bytes, None]]

# Markup, addresses that are scripts, directions of text and colours of terminals, wherever a job has text of its user.
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
HOSTILE_LINE = HOSTILE + " \x1b[31mred\x1b[0m \u202etxet&amp;</div></main>"

PLAN = """\
synthetic_ctr: 2 servers, 2 trainers, 8 lanes, sync, batch 512, plan be46d29cc6e1528f

server 0: 141 parameters in 4 blocks, 1.7 KiB at rest with optimizer state
    deep.0.b [64] 256 B + 516 B state
    deep.1.b [32] 128 B + 260 B state
    linear.w [13, 1] 52 B + 108 B state
    out.w [32, 1] 128 B + 260 B state
    table field_vectors, 2048 of 4096 shards, 72 bytes a row
    table field_weights, 2048 of 4096 shards, 16 bytes a row

server 1: 16.2 k parameters in 3 blocks, 189.8 KiB at rest with optimizer state
    deep.0.w [221, 64] 55.2 KiB + 110.5 KiB state
    deep.1.w [64, 32] 8.0 KiB + 16.0 KiB state
    out.b [1] 4 B + 12 B state
    table field_vectors, 2048 of 4096 shards, 72 bytes a row
    table field_weights, 2048 of 4096 shards, 16 bytes a row

trainers 0 to 1: 4 lanes of 64 examples each
"""


def since_of(state: State, since: Optional[int]) -> State:
    """What a server replies with ?since=N: only later entries of the lists that grow, and no plan."""
    if since is None:
        return state
    reply = {key: value for key, value in state.items() if key != "plan"}
    for key in ("points", "evaluations", "memory", "log"):
        reply[key] = [entry for entry in state.get(key, []) if entry["seq"] > since]
    return reply


# Scenes of jobs that have ended, and their exit codes.
ENDS = {"done": 0, "stopped": 5, "failed": 137}


# As importance.json and report.json have them: 64-bit integers are texts.
FINDINGS: State = {
    "findings": 1,
    "importance": {
        "job": "synthetic_ctr",
        "step": "574",
        "examples": "32735",
        "alteration": "SHUFFLE",
        "repeats": 5,
        "figure": [{"name": "loss", "value": 0.456929}, {"name": "auc", "value": 0.779108}],
        "part": [
            {"name": "cat.C6",
             "lost": [{"figure": "loss", "mean": 0.0126, "error": 0.0002},
                      {"figure": "auc", "mean": 0.0185, "error": 0.0003}]},
            {"name": "dense.I3",
             "lost": [{"figure": "loss", "mean": -0.0004, "error": 0.0001},
                      {"figure": "auc", "mean": 0.0001, "error": 0.0001}]},
        ],
    },
    "report": {
        "step": "574",
        "table": [
            {"name": "field_vectors", "rows": "20000", "bytes": {"values": "640000", "state": "1280000"},
             "norm": {"p50": 0.41, "p99": 1.3}, "zero_rows": "0", "training": {"by": "step", "at_most_once": "1000"},
             "hottest": {"top_percent": 0.62}, "age_steps": {"p50": 12.0},
             "lifecycle": [{"setting": "lifecycle.ttl_steps=1000", "rows": "400", "bytes": "38400"}],
             "saving": [{"setting": "storage=FLOAT16", "bytes": "320000"}]},
        ],
    },
}


class PlayedJob:
    """A job that has run for `age` seconds when it is made, with figures that depend on nothing but the time."""

    STEPS_PER_SECOND = 14.0
    BATCH = 512
    SECONDS = 900.0  # of the whole job

    def __init__(self, servers: int = 2, trainers: int = 2, age: float = 400.0, scene: str = "running") -> None:
        self.servers, self.trainers, self.scene = servers, trainers, scene
        self.started = time.time() - age
        self.begun = time.monotonic() - age
        self.lock = threading.Lock()
        self.draw = random.Random(1)
        self.seq = 0
        self.second = 0
        self.evaluated = self.saved = 0
        self.state: State = {key: [] for key in ("points", "evaluations", "memory", "log", "checkpoints")}

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def _say(self, t: float, process: str, severity: str, text: str) -> None:
        self.state["log"].append({"seq": self._next(), "t": t, "process": process, "severity": severity, "text": text})

    def _figures(self, second: float) -> dict[str, float]:
        noise = self.draw.gauss
        loss = 0.435 + 0.258 * math.exp(-second / 60) + noise(0, 0.006)
        auc = 0.792 - 0.29 * math.exp(-second / 75) + noise(0, 0.004)
        warm = 1 - math.exp(-second / 6)
        return {
            "loss": loss,
            "auc": auc,
            "examples_per_s": max(0.0, 91000 * warm + 6000 * math.sin(second / 41) + noise(0, 2400)),
            "calibration": 1.0 + 0.09 * math.exp(-second / 50) + noise(0, 0.012),
            "normalized_entropy": loss / 0.5623,
        }

    def _rows(self, second: float) -> dict[str, int]:
        rows = int(1.25e6 * (1 - math.exp(-second / 300)))
        return {"field_vectors": rows, "field_weights": int(0.97 * rows)}

    def _rss(self, second: float) -> dict[str, int]:
        rows = self._rows(second)["field_vectors"]
        rss = {f"pserver {s}": int(61e6 + rows * 106 / self.servers * (1 + 0.08 * s)) for s in range(self.servers)}
        for i in range(self.trainers):
            rss[f"trainer {i}"] = int(118e6 * (1 - math.exp(-second / 5)) + 2.4e6 * math.sin(second / 9 + 2 * i) + 31e6)
        return rss

    def _play(self, second: int) -> None:
        t = self.started + second
        step = int(second * self.STEPS_PER_SECOND)
        now = self._figures(second)
        shown = " ".join(f"{key}={now[key]:.6g}" for key in ("examples_per_s", "loss", "auc"))
        if second == 0:
            for s in range(self.servers):
                self._say(t, f"pserver {s}", "I", f"listens at 127.0.0.1:{6170 + s} with 1 thread per request")
            for i in range(self.trainers):
                self._say(t, f"trainer {i}", "I", f"trainer {i} of {self.trainers} has joined; plan be46d29cc6e1528f")
            return
        more = {key: now.pop(key) for key in ("calibration", "normalized_entropy")}
        point = {"seq": self._next(), "t": t, "step": step, "examples": step * self.BATCH, **now, "more": more}
        self.state["points"].append(point)
        self._say(t, "trainer 0", "", f"step={step} examples={step * self.BATCH} {shown}")
        if second % 2 == 0:
            self.state["memory"].append(
                {"seq": self._next(), "t": t, "rss": self._rss(second), "rows": self._rows(second)}
            )
        if second % 97 == 0:
            self._say(t, "trainer 1", "W", "the reader of stream 5 had no batch ready for 1.2 s: is the disk slow?")
        if step // 600 > self.evaluated:
            self.evaluated = step // 600
            loss = 0.441 + 0.25 * math.exp(-second / 60)
            figures = {"loss": loss, "auc": 0.7871 - 0.28 * math.exp(-second / 75)}
            self.state["evaluations"].append(
                {"seq": self._next(), "t": t, "step": step, **figures, "more": {"normalized_entropy": loss / 0.5623}}
            )
            self._say(t, "trainer 0", "", f"eval step={step} examples=40000 loss={loss:.6f} auc={figures['auc']:.6f}")
            self.state["checkpoints"].append(
                {"step": step, "t": t + 0.4, "bytes": int(2e6 + 88 * self._rows(second)["field_vectors"])}
            )
            self.state["checkpoints"][-1].update(complete=True, figures=figures)
            self._say(t, "trainer 0", "", f"checkpoint step={step} path=checkpoints/step-{step:012d}")

    def _waits(self, name: str, second: float) -> list[State]:
        step = int(second * self.STEPS_PER_SECOND)
        if self.scene in ("waiting", "lost") and self.trainers > 1:
            long = 2.6 + second % 9
            for s in range(self.servers):
                if name == f"pserver {s}":
                    return [{"for": "trainer 1", "what": f"push of step {step}", "seconds": long - 0.1 * s}]
            if name == "trainer 0":
                return [{"for": "pserver 0", "what": f"version {step + 1}", "seconds": long - 0.3}]
            return []
        if name == "pserver 1" and int(second) % 3:
            return [{"for": "trainer 0", "what": f"push of step {step}", "seconds": 0.2}]
        return []

    def _process(self, role: str, index: int, second: float) -> State:
        name = f"{role} {index}"
        server = role == "pserver"
        host = "localhost" if self.servers + self.trainers < 10 else f"10.0.0.{1 + index % 4}"
        process: State = {
            "name": name,
            "role": role,
            "id": index,
            "host": host,
            "pid": 41230 + index + (0 if server else 100),
            "state": "running",
            "exit_code": None,
            "restarts": 0,
            "address": f"127.0.0.1:{(6170 if server else 6270) + index}",
            "metrics": f"http://127.0.0.1:{(9100 if server else 9200) + index}/metrics",
            "rss_bytes": self._rss(second)[name],
            "cpu_seconds": second * (0.31 + 0.02 * index if server else 0.62 - 0.03 * index),
            "step": int(second * self.STEPS_PER_SECOND),
            "waits": self._waits(name, second),
        }
        if not server:
            wait = second * 0.06 if self.scene == "running" or index == 1 else second * 0.21
            read = second * (0.05 if index != 1 or self.scene == "running" else 0.31)
            rest = second - wait - read
            process["time"] = {
                "read": read,
                "pull": 0.22 * rest,
                "compute": 0.58 * rest,
                "push": 0.20 * rest,
                "wait": wait,
            }
        if self.scene == "lost" and name == "trainer 1":
            process.update(state="lost", waits=[])
        if self.scene == "lost" and name == "pserver 1":
            process.update(state="restarting", restarts=1, waits=[])
        if self.scene in ENDS:
            process.update(state="exited", waits=[], exit_code=ENDS[self.scene])
        if self.scene == "failed":
            process.update(exit_code=137 if name == "trainer 1" else 3)
        return process

    def _tables(self, second: float) -> list[State]:
        tables = []
        for name, width, size in (("field_vectors", 8, 83), ("field_weights", 1, 27)):
            rows = self._rows(second)[name]
            weights = [1 + 0.35 * (s % 3 == 1) for s in range(self.servers)]
            of = [int(rows * w / sum(weights)) for w in weights]
            servers = [{"id": s, "rows": n, "bytes": n * size} for s, n in enumerate(of)]
            tables.append({"name": name, "width": width, "rows": rows, "bytes": rows * size, "servers": servers})
        return tables

    def __call__(self, since: Optional[int]) -> State:
        with self.lock:
            age = time.monotonic() - self.begun
            over = self.scene in ENDS
            second = min(age, self.SECONDS if self.scene == "done" else 400.0 if over else age)
            while self.second <= second:
                self._play(self.second)
                self.second += 1
            newest = self.state["points"][-1] if self.state["points"] else {}
            job = {
                "name": "synthetic_ctr",
                "file": "examples/synthetic_ctr/job.textproto",
                "fingerprint": "be46d29cc6e1528f",
                "started": self.started,
                "state": self.scene if over or self.scene == "stopping" else "running",
                "exit_code": ENDS.get(self.scene),
                "message": "trainer 1 was killed by signal 9 (Killed)" if self.scene == "failed" else "",
                "fraction": min(1.0, second / self.SECONDS),
                "max_steps": 0,
                "epochs": 3,
                **{key: newest.get(key) for key in ("step", "examples", "examples_per_s", "loss", "auc")},
            }
            names = [("pserver", s) for s in range(self.servers)] + [("trainer", i) for i in range(self.trainers)]
            state = {
                "seq": self.seq,
                "now": self.started + age,
                "job": job,
                "processes": [self._process(role, index, second) for role, index in names],
                "tables": self._tables(second) if self.servers else [],
                "plan": PLAN,
                **FINDINGS,
                **self.state,
            }
            # Later seconds must not change it.
            reply: State = json.loads(json.dumps(since_of(state, since)))
            return reply


class HostileJob(PlayedJob):
    """The job with markup in every text that a user or a program may choose."""

    def __call__(self, since: Optional[int]) -> State:
        state = super().__call__(since)
        state["job"].update(name=HOSTILE, file=HOSTILE, message=HOSTILE, fingerprint="constructor")
        if since is None:
            state["plan"] = HOSTILE_LINE
        for process in state["processes"]:
            process.update(host=HOSTILE, metrics="javascript:document.title='taken'", address=HOSTILE)
            process["waits"] = [{"for": HOSTILE, "what": HOSTILE, "seconds": 12.5}]
            process["time"] = {HOSTILE: 1, "__proto__": 2, "wait": 1}
        state["processes"][0].update(name=HOSTILE, role="__proto__", state="constructor")
        state["tables"][0].update(name=HOSTILE)
        state["importance"]["part"][0].update(name=HOSTILE)
        state["importance"]["figure"].append({"name": HOSTILE, "value": 0.5})
        state["report"]["table"][0].update(name=HOSTILE)
        state["report"]["table"][0]["saving"][0].update(setting=HOSTILE)
        for line in state["log"]:
            line.update(text=HOSTILE_LINE, process=HOSTILE, severity=HOSTILE)
        for point in state["points"]:
            point["more"] = {HOSTILE: 1.5, "__proto__": 2.5, "constructor": 3.5}
        for checkpoint in state["checkpoints"]:
            checkpoint["figures"] = {HOSTILE: 0.5, "auc": HOSTILE}
        return state


def broken_state(since: Optional[int]) -> State:
    """A state in which every field has a type that it must not have."""
    wrong: list[Any] = [None, "7", [], {}, True, -1]
    process = {"name": None, "waits": [*wrong, {"for": 3, "seconds": "x"}], "time": [], "cpu_seconds": "1"}
    return {
        "seq": "9",
        "now": None,
        "job": {"name": 7, "started": "soon", "fraction": "half", "loss": {}, "state": 3},
        "processes": [*wrong, process],
        "points": [*wrong, {"loss": "NaN", "more": []}, {"step": 1, "loss": 0.5}],
        "evaluations": "none",
        "tables": [*wrong, {"servers": wrong}],
        "memory": [*wrong, {"rss": {"a": "b"}}],
        "checkpoints": [*wrong, {"figures": 3}],
        "log": [*wrong, {"text": 3, "process": []}],
        "plan": 3,
    }


SCENES: dict[str, Callable[[], Source]] = {
    "running": PlayedJob,
    "waiting": lambda: PlayedJob(scene="waiting"),
    "lost": lambda: PlayedJob(scene="lost"),
    "stopping": lambda: PlayedJob(scene="stopping"),
    "stopped": lambda: PlayedJob(age=430.0, scene="stopped"),
    "done": lambda: PlayedJob(age=PlayedJob.SECONDS + 40, scene="done"),
    "failed": lambda: PlayedJob(age=430.0, scene="failed"),
    "large": lambda: PlayedJob(servers=16, trainers=32),
    "corner": lambda: PlayedJob(servers=0, trainers=4),
    "young": lambda: PlayedJob(age=0.0),
    "hostile": HostileJob,
    "broken": lambda: broken_state,
    "empty": lambda: lambda since: {},
}


class PageServer:
    """Serves the page and the states of `source` on 127.0.0.1, on threads of its own, until close()."""

    def __init__(self, source: Source, port: int = 0) -> None:
        self.source = source
        self.asked: list[Optional[int]] = []  # since of each request for a state
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path == "/":
                    self.reply(200, "text/html; charset=utf-8", PAGE.read_bytes())
                elif url.path == "/state.json":
                    self.reply_state(parse_qs(url.query))
                else:
                    self.reply(404, "text/plain", b"no such page\n")

            def reply_state(self, query: dict[str, list[str]]) -> None:
                since = int(query["since"][0]) if "since" in query else None
                outer.asked.append(since)
                state = outer.source(since)
                if state is None:
                    self.close_connection = True
                    return
                body = state if isinstance(state, bytes) else json.dumps(state).encode()
                self.reply(200, "application/json", body)

            def reply(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", POLICY)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--scene", choices=sorted(SCENES), default="running")
    arguments = parser.parse_args()
    server = PageServer(SCENES[arguments.scene](), arguments.port)
    print(server.url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.close()


if __name__ == "__main__":
    main()
