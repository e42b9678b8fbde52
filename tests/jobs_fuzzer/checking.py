"""Runs a case, and compares it with what the documents promise.

A case is a job (jobs.py) with its attempts (clusters.py). Kinds of failures:

  bits        a digest, of a step or of the last checkpoint, differs from that of the undisturbed run
  figures     a line of an evaluation, or the last line, differs
  crash       a process has ended by a mistake of its own
  exit        an exit code that nothing explains
  hang        an attempt has not ended in time
  left        processes, temporary files, sockets or surplus checkpoints are left
  counts      not all examples were trained on
"""

from __future__ import annotations

import os
import re
import shutil

import clusters
import message
import running

# Why a job that `transpile` takes may end with 2.
_ONLY_A_RUN_CAN_TELL = re.compile(
    r" is not finite at step | when the step began, |the norm .* is |nothing to learn|would be empty|has one value|"
    r" after its update: |so the model is ruined")
LIMIT = 100.0  # seconds; on a quiet machine an attempt takes one or two, and some leases


class Failure(Exception):
    """A broken promise."""

    def __init__(self, kind, text):
        super().__init__("%s: %s" % (kind, text))
        self.kind, self.text = kind, text

    def alike(self, other):
        """Whether it is the same failure, as far as one can tell: of one kind and text, but for names and numbers."""
        if self.kind in ("bits", "figures", "counts", "hang"):
            return self.kind == other.kind
        texts = [re.sub(r"'[^']*'|\S*/\S*|[0-9a-f]*\d[\w.]*", "#", f.text)[:200] for f in (self, other)]
        return self.kind == other.kind and texts[0] == texts[1]


def check(case, directory, tools, tmp):
    """Runs the case in a new directory. Raises Failure; or running.Refused if the job itself is wrong."""
    os.makedirs(directory)
    os.makedirs(tmp, exist_ok=True)
    place = running.Place(case, os.path.join(directory, "run"), tools, tmp)
    _transpile(case, place)
    place.write_data(case["late_s"])
    calm = running.Place(case, os.path.join(directory, "calm"), tools, tmp)
    calm.write_data(late=False)
    expected = _Expected(case, calm)
    _Chain(case, place, expected).run()


def _transpile(case, place):
    """Asks `transpile` about the job, and about each cluster."""
    asked = set()
    for attempt in [{"local": True, "sets": []}] + case["attempts"]:
        sets = [s for s in attempt["sets"] if not s.startswith(("train.threads", "cluster.", "data.prefetch"))]
        if not attempt["local"]:
            sets += ["distribute.servers=%d" % attempt["servers"], "distribute.trainers=%d" % attempt["trainers"]]
        elif asked:
            continue
        if tuple(sets) in asked:
            continue
        asked.add(tuple(sets))
        command = [place.tools["transpile"], "--job=" + place.job, "--print=plan"]
        code, out = running.call(command + [w for s in sets for w in ("--set", s)], place.dir, place.tmp)
        if code is None:
            raise Failure("hang", "transpile has not ended")
        ended = running.Ended(code, out, 0, [], False)
        if ended.crashed():
            raise Failure("crash", "transpile: " + ended.crashed())
        if code != 0:
            raise running.Refused(out.strip()[-500:])


class _Expected:
    """What an undisturbed run says: in one process, or of a cluster."""

    def __init__(self, case, place):
        self.dir = place.dir
        attempt = dict(case["attempts"][-1], disturbance=None)
        if case["shows"] == "bits":
            attempt = {"local": True, "servers": 0, "trainers": 1, "sets": ["train.threads=1"]}
        attempt["lease"] = clusters.LONG_LEASE
        attempt["keep_going"] = False
        ended = running.run(place, attempt, 0, False, LIMIT)
        _no_mistake("the undisturbed run", ended)
        if ended.code == 2 and _ONLY_A_RUN_CAN_TELL.search(ended.output):
            raise running.Refused("the undisturbed run: " + _last_error(ended.output))
        if ended.code != 0:
            raise Failure("exit", "the undisturbed run ends with %d: %s" % (ended.code, _last_error(ended.output)))
        self.digests = running.digests(ended.output)
        self.evaluations = running.evaluations(ended.output)
        self.done = running.done(ended.output)
        self.steps = min((int(d["steps"]) for d in self.done.values()), default=0)
        self.checkpoint = _checkpoint_digest(place)
        _nothing_left(case, place, "the undisturbed run", calm=True)
        if case["shows"] == "counts":
            _all_examples(case, self.done)
        self.scores = _scores(place, {"local": True}, "scores") if case["predict"] else None


def _scores(place, attempt, name):
    code, out, scores = running.predict(place, attempt, name)
    if code != 0:
        raise Failure("exit", "prediction ends with %s: %s" % (code, _last_error(out)))
    return scores


class _Chain:
    """The attempts of a case, one after the other."""

    def __init__(self, case, place, expected):
        self.case, self.place, self.expected = case, place, expected
        # A stop has added an average of local SGD, on which all later bits depend.
        self.apart = False

    def run(self):
        resume, output, complete = False, "", False
        for number, attempt in enumerate(self.case["attempts"], 1):
            if complete and attempt is not self.case["attempts"][-1]:
                continue  # there is nothing left that could be disturbed
            ended = running.run(self.place, self._in_reach(attempt), number, resume, LIMIT)
            name = "attempt %d" % number
            _no_mistake(name, ended)
            if self.case["shows"] == "counts" and ended.code == 2 and _ONLY_A_RUN_CAN_TELL.search(ended.output):
                # Where steps come in another order than in the undisturbed run, they may diverge where it does not.
                raise running.Refused("%s: %s" % (name, _last_error(ended.output)))
            self._code(name, attempt, ended)
            if self.case["shows"] != "counts" and not self.apart:
                self._same(name, number, ended.output)
            self.apart = self.apart or adds_an_average(self.case["job"], self._newest_step(), self.expected.steps)
            attempt["seconds"], attempt["code"], attempt["reached"] = round(ended.seconds, 1), ended.code, ended.reached
            resume, output = True, ended.output
            complete = ended.code == 0 and "done steps=" in output
        if self.case["shows"] != "counts":
            self._same_end(output)
        calm = not any(a.get("disturbance") for a in self.case["attempts"])
        _nothing_left(self.case, self.place, "the last attempt", calm)
        code, out = running.call(
            [self.place.tools["checkpoint"], "verify", os.path.join(self.place.dir, "checkpoints")],
            self.place.dir,
            self.place.tmp,
        )
        if code != 0:
            raise Failure("bits", "checkpoint verify ends with %s: %s" % (code, out.strip()[-300:]))

    def _in_reach(self, attempt):
        """The attempt with its fault point at a step that it will run."""
        what = attempt.get("disturbance") or {}
        found = re.fullmatch(r"(.*:)(\d+)", what.get("fault") or "")
        if not found:
            return attempt
        first = self._newest_step()
        step = int(found.group(2))
        if ":publishing:" in what["fault"]:
            every = message.integer(self.case["job"], "checkpoint.every_steps", 1)
            first, steps = first // every + 1, self.expected.steps // every - first // every
            step = every * (first + step // every % max(1, steps))
        else:
            step = first + step % max(1, self.expected.steps - first)
        what = dict(what, fault=found.group(1) + str(step))
        return dict(attempt, disturbance=what)

    def _newest_step(self):
        """The step of the newest checkpoint; 0: there is none."""
        directory = os.path.join(self.place.dir, "checkpoints")
        names = os.listdir(directory) if os.path.isdir(directory) else []
        return max([int(n[5:]) for n in names if re.fullmatch(r"step-\d+", n)], default=0)

    def _code(self, name, attempt, ended):
        what = attempt.get("disturbance") or {}
        allowed, output = {0}, ended.output
        signal, fault = what.get("signal"), what.get("fault") or ""
        if signal == "KILL" or fault.startswith("kill:"):
            # Of launch itself, of a process that fails first, or of those that have lost it.
            allowed |= {-9, 137, 3}
        if attempt["lease"] == clusters.SHORT_LEASE:
            # A process that was frozen, or that a busy machine has not run for so long, is dead to the others.
            allowed |= {3, 137} | ({2} if "was declared dead" in output else set())
        if signal in ("TERM", "INT", "HUP") and ended.reached:
            allowed |= {5}
            if not fault:
                # It may come before the process can hear it, or before there is a job to stop.
                number = {"TERM": 15, "INT": 2, "HUP": 1}[signal]
                allowed |= {-number, 128 + number, 3}
            if ended.code in (0, 5) and "done steps=" in output and (ended.code == 5) != (" stopped=1" in output):
                raise Failure("exit", "%s ends with %s, but: %s" % (name, ended.code, output.strip().splitlines()[-1]))
        if ended.code not in allowed:
            text = "%s ends with %s, expected %s: %s" % (name, ended.code, sorted(allowed), _last_error(ended.output))
            raise Failure("exit", text)

    def _same(self, name, number, output):
        for kind, lines, expected in (
            ("bits", running.digests(output), self.expected.digests),
            ("figures", running.evaluations(output), self.expected.evaluations),
        ):
            for step, said in sorted(lines.items()):
                if step not in expected:
                    continue  # of a stop between two multiples
                for one in said:
                    if one not in expected[step]:
                        text = "%s, step %d: '%s', undisturbed '%s'" % (name, step, one, expected[step][0])
                        raise Failure(kind, text + self._where(number))

    def _where(self, number):
        """The first variables that differ, by the digest logs."""
        logs = [os.path.join(self.expected.dir, "attempt.0"), os.path.join(self.place.dir, "attempt.%d" % number)]
        command = [self.place.tools["checkpoint"], "compare", *(os.path.join(log, "digests") for log in logs)]
        code, out = running.call(command, self.place.dir, self.place.tmp)
        return "; checkpoint compare: " + " | ".join(out.strip().splitlines()[:6]) if code == 1 else ""

    def _same_end(self, output):
        digest = _checkpoint_digest(self.place)
        last = running.done(output)
        steps = min((int(d["steps"]) for d in last.values()), default=None)
        if steps != self.expected.steps:
            raise Failure("figures", "the last attempt ends at step %s, the undisturbed run at %d" %
                          (steps, self.expected.steps))
        if self.apart:
            return
        if digest != self.expected.checkpoint:
            raise Failure("bits", "the last checkpoint has '%s', undisturbed '%s'" % (digest, self.expected.checkpoint))
        chief = last.get("trainer.0", last.get("", {}))
        before = self.expected.done.get("trainer.0", self.expected.done.get("", {}))
        for word in ("auc", "loss") if self.case["eval_lines"] else ():
            if chief.get(word) != before.get(word):
                text = "the last line says %s=%s, undisturbed %s" % (word, chief.get(word), before.get(word))
                raise Failure("figures", text)
        if self.case["predict"]:
            scores = _scores(self.place, self.case["attempts"][-1], "scores.txt")
            if scores != self.expected.scores:
                raise Failure("figures", "the predictions of the last cluster are not those of one process")


def adds_an_average(job, step, last):
    """Whether a checkpoint of local SGD at the step is of an average that an undisturbed run to step `last` lacks."""
    every = message.integer(job, "distribute.local_sgd.every_steps", 0)
    if every == 0 or step in (0, last):
        return False
    looks = ("checkpoint.every_steps", "train.eval_every_steps", "train.digest_every_steps")
    return all(e == 0 or step % e for e in [every] + [message.integer(job, path, 0) for path in looks])


def _no_mistake(name, ended):
    if ended.crashed():
        raise Failure("crash", "%s: %s" % (name, ended.crashed()))
    if ended.code is None:
        raise Failure("hang", "%s has not ended within %d s: %s" % (name, LIMIT, _last_error(ended.output)))
    if ended.left:
        raise Failure("left", "%s has left processes: %s" % (name, "; ".join(ended.left)))


def _last_error(output):
    """The line that says why, as far as one can tell."""
    lines = [line for line in output.splitlines() if line.strip()]
    said = [line for line in lines if re.search(r"^(\[[a-z.0-9]+\] )?(trainer|pserver|launch|convert): ", line)]
    return (said or lines or ["no output"])[-1][-700:]


def _checkpoint_digest(place):
    path = os.path.join(place.dir, "checkpoints")
    code, out = running.call([place.tools["checkpoint"], "digest", path], place.dir, place.tmp)
    return out.strip().splitlines()[-1] if code == 0 else "none: " + out.strip()[-200:]


def _nothing_left(case, place, name, calm):
    """No temporary file is left, and no more checkpoints than the job keeps."""
    directory = os.path.join(place.dir, "checkpoints")
    found = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    steps = [n for n in found if re.fullmatch(r"step-\d{12}", n)]
    more = [n for n in found if n not in steps and not re.fullmatch(r"earlier-\d+|PROGRESS", n)]
    if more:
        raise Failure("left", "%s has left %s in the directory of checkpoints" % (name, ", ".join(more)))
    job = case["job"]
    kept = message.integer(job, "checkpoint.keep_last", 3) + message.integer(job, "checkpoint.keep_best", 0)
    if len(steps) > kept:
        raise Failure("left", "%s has left %d checkpoints, keep_last and keep_best are %d" % (name, len(steps), kept))
    sockets = os.path.join(place.tmp, "weir-%d" % os.getuid())
    found = os.listdir(sockets) if os.path.isdir(sockets) else []
    if calm and found:
        raise Failure("left", "%s has left %s in TMPDIR" % (name, ", ".join(found)))
    rows = os.path.join(place.dir, "rows")
    # A killed server leaves its rows, until there is a server of its number again.
    if calm and os.path.isdir(rows) and os.listdir(rows):
        raise Failure("left", "%s has left %s in the directory of rows" % (name, ", ".join(os.listdir(rows))))


def _all_examples(case, done):
    """Every example is trained on, or left out and counted, where the job leaves out none itself."""
    data = message.get(case["job"], "data")
    stops = message.get(case["job"], "train.max_steps")
    if stops or message.get(data, "train.where") or message.get(data, "drop_last"):
        return
    if message.get(case["job"], "train.early_stop"):
        return
    if message.get(case["job"], "distribute.sync") != "false":
        # Every trainer says how many the steps of all have had.
        done = dict(list(done.items())[:1])
    trained = sum(int(d["examples"]) for d in done.values())
    left_out = max((int(d.get("left_out", 0)) for d in done.values()), default=0)
    expected = case["lines"] * case["epochs"]
    if trained + left_out != expected:
        text = "%d examples trained on and %d left out, of %d: %s" % (trained, left_out, expected, done)
        raise Failure("counts", text)


def remove(directory):
    shutil.rmtree(directory, ignore_errors=True)
