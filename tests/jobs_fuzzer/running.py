"""Runs one attempt of a job: starts its processes, disturbs them, waits for their end."""

from __future__ import annotations

import copy
import os
import re
import signal
import subprocess
import threading
import time

import data
from message import get, put, quoted, text

PROGRAMS = {"trainer": "trainer", "pserver": "pserver", "launch": "tools", "transpile": "transpiler"}
PROGRAMS.update({"checkpoint": "tools", "convert": "tools"})
_POLL = 0.01
_CRASHES = (4, 6, 7, 8, 11, 31)  # signals with which a process ends by a mistake of its own
_REACHED = "this process has reached its fault point"


_started = set()  # processes of attempts that have not ended
_started_lock = threading.Lock()


def end_all():
    """Kills what attempts have started: launch takes its processes with it."""
    with _started_lock:
        for process in _started:
            _kill(process.pid, signal.SIGKILL)


class Missing(Exception):
    """The programs are not there."""


def programs(directory):
    """The paths of the programs, as `bazel build` or a package lays them out."""
    found = {}
    for name, package in PROGRAMS.items():
        paths = [os.path.join(directory, package, name), os.path.join(directory, name)]
        found[name] = next((os.path.abspath(p) for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)
        if found[name] is None:
            raise Missing("no program %s: looked for %s" % (name, " and ".join(paths)))
    return found


def environment(tmp):
    """Nothing of ours reaches the processes: no proxies, no settings of clusters."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "TMPDIR": tmp, "GLOG_minloglevel": "0"}


def call(command, cwd, tmp, limit=60.0):
    """Runs a program to its end. Returns (exit code, output); the code is None if it has not ended."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment(tmp),
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace") if isinstance(late.stdout, bytes) else ""
    return done.returncode, done.stdout


# Files of a run -----------------------------------------------------------------------------------------------------


class Place:
    """A directory with a job and its data, in which attempts run one after the other."""

    def __init__(self, case, directory, tools, tmp):
        self.case, self.dir, self.tools, self.tmp = case, os.path.abspath(directory), tools, tmp
        self.job = os.path.join(self.dir, "job.textproto")
        self.late = []  # names of files that have not appeared yet
        os.makedirs(self.dir)
        with open(self.job, "w", encoding="ascii") as file:
            file.write(text(case["job"]))

    def write_data(self, late):
        """Writes the files. `late`: all training files but the first appear while the first attempt runs."""
        columns, data_dir = self.case["columns"], os.path.join(self.dir, "data")
        source = os.path.join(self.dir, "text") if columns["converted"] else data_dir
        train = data.write(columns, source, self.case["lines"], "train", "train", columns["files"])
        if self.case["eval_lines"]:
            data.write(columns, source, self.case["eval_lines"], "eval", "eval", 1)
        if columns["converted"]:
            self._convert()
            train = sorted(n for n in os.listdir(data_dir) if n.startswith("train"))
        if self.case["follow"]:
            inbox = os.path.join(self.dir, "inbox")
            os.makedirs(inbox)
            os.rename(os.path.join(data_dir, train[0]), os.path.join(inbox, train[0]))
            self.late = train[1:] + ["DONE"]
            with open(os.path.join(data_dir, "DONE"), "w", encoding="ascii"):
                pass
            if not late:
                while self.late:
                    self.appear()

    def appear(self):
        """The next file of those that come later is there."""
        name = self.late.pop(0)
        os.rename(os.path.join(self.dir, "data", name), os.path.join(self.dir, "inbox", name))

    def _convert(self):
        """Writes example files, with a job that names the texts."""
        job = copy.deepcopy(self.case["job"])
        fields = get(job, "data")
        fields[:] = [f for f in fields if f[0] != "follow"]
        for source in ("train", "eval"):
            if get(fields, source) is not None:
                put(fields, source + ".files", quoted("text/%s-*" % source))
        path = os.path.join(self.dir, "convert.textproto")
        with open(path, "w", encoding="ascii") as file:
            file.write(text(job))
        for source in ["train"] + (["eval"] if get(fields, "eval") else []):
            command = [self.tools["convert"], "--job=" + path, "--output=" + os.path.join(self.dir, "data")]
            code, out = call(command + ["--source=" + source], self.dir, self.tmp)
            if code != 0:
                raise Refused("convert --source=%s ends with %s: %s" % (source, code, out.strip()[-400:]))


class Refused(Exception):
    """A program says that the job is wrong."""


# Attempts -----------------------------------------------------------------------------------------------------------


class Ended:
    """How an attempt has ended: exit code (None: not in time), output, seconds, processes that are left."""

    def __init__(self, code, output, seconds, left, reached):
        self.code, self.output, self.seconds, self.left, self.reached = code, output, seconds, left, reached

    def crashed(self):
        """What tells of a mistake of the programs, whatever has disturbed them; else None."""
        codes = [self.code] if self.code is not None else []
        codes += [128 + int(s) for s in re.findall(r"failed: killed by signal (\d+)", self.output)]
        if any(c - 128 in _CRASHES or -c in _CRASHES for c in codes):
            return "a process has crashed"
        found = re.search(r"Check failed.*|terminate called.*|AddressSanitizer.*|corrupted.*|stack smashing.*",
                          self.output)
        return found.group(0) if found else None


def deadlines(attempt):
    """Settings of the job; all waits are short, but for machines that are busy."""
    lease = attempt["lease"]
    heartbeat = min(1.0, lease / 5)
    # Where a process may never come, the others do not wait long for it.
    connect = 6.0 if attempt.get("disturbance") else 30.0
    made = "heartbeat_s: %g lease_s: %g connect_deadline_s: %g" % (heartbeat, lease, connect)
    return "deadlines={ %s slow_warning_s: 2 progress_deadline_s: 25 rpc_s: 5 }" % made


def command_of(place, attempt, resume, log_dir):
    sets = [deadlines(attempt)] + attempt["sets"]
    flags = [word for each in sets for word in ("--set", each)]
    last = ["--digest_log=" + os.path.join(log_dir, "digests")] + (["--resume"] if resume else [])
    if attempt["local"]:
        return [place.tools["trainer"], "--job=" + place.job, "--role=local", "--allow_pipes", *flags, *last]
    command = [place.tools["launch"], "--job=" + place.job]
    command += ["--servers=%d" % attempt["servers"], "--trainers=%d" % attempt["trainers"], "--log_dir=" + log_dir]
    command += ["--allow_pipes"] if get(place.case["job"], "data.pipe") else []
    command += ["--keep_going"] if attempt.get("keep_going") else []
    fault = (attempt.get("disturbance") or {}).get("fault")
    command += ["--env", "WEIR_FAULT_POINT=" + fault] if fault else []
    return command + flags + ["--"] + last


def run(place, attempt, number, resume, limit):
    """Runs an attempt to its end, or for `limit` seconds."""
    log_dir = os.path.join(place.dir, "attempt.%d" % number)
    os.makedirs(log_dir)
    tmp = place.tmp
    if attempt.get("long_tmp"):
        # No path of a Unix-domain socket: everything goes over TCP.
        tmp = os.path.join(place.tmp, "d" * 110)
        os.makedirs(tmp, exist_ok=True)
    command = command_of(place, attempt, resume, log_dir)
    with open(os.path.join(log_dir, "command"), "w", encoding="utf-8") as file:
        file.write(" ".join("'%s'" % w if set(w) & set(" {}\"*;") else w for w in command) + "\n")
    path = os.path.join(log_dir, "output")
    start = time.monotonic()
    with open(path, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=place.dir,
            env=environment(tmp),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with _started_lock:
        _started.add(process)
    disturbing = _Disturbing(place, attempt, process, path, start)
    appeared = start
    while process.poll() is None and time.monotonic() - start < limit:
        disturbing.step()
        if place.late and time.monotonic() - appeared > place.case["late_s"]:
            place.appear()
            appeared = time.monotonic()
        time.sleep(_POLL)
    seconds = time.monotonic() - start
    code = process.poll()
    if code is None:
        for pid in _processes(place.job):
            _kill(pid, signal.SIGCONT)
        process.kill()
        process.wait()
    with _started_lock:
        _started.discard(process)
    left = _wait_until_gone(place.job, disturbing.killed)
    while place.late:
        place.appear()
    with open(path, encoding="utf-8", errors="replace") as file:
        return Ended(code, file.read(), seconds, left, disturbing.reached)


def predict(place, attempt, name):
    """Scores the evaluation data with the newest checkpoint, on the attempt's cluster: (code, output, bytes)."""
    scores = os.path.join(place.dir, name)
    last = ["--role=predict", "--checkpoint=" + os.path.join(place.dir, "checkpoints"), "--output=" + scores]
    if attempt["local"]:
        command = [place.tools["trainer"], "--job=" + place.job, "--allow_pipes", *last]
    else:
        sizes = ["--servers=%d" % attempt["servers"], "--trainers=%d" % attempt["trainers"]]
        command = [place.tools["launch"], "--job=" + place.job, "--allow_pipes", *sizes]
        command += ["--log_dir=" + os.path.join(place.dir, "predict"), "--", *last]
    code, out = call(command, place.dir, place.tmp)
    content = b""
    if os.path.exists(scores):
        with open(scores, "rb") as file:
            content = file.read()
    return code, out, content


class _Disturbing:
    """Carries a disturbance out, step by step."""

    def __init__(self, place, attempt, process, output, start):
        self.place, self.process, self.output, self.start = place, process, output, start
        self.what = attempt.get("disturbance") or {}
        self.reached = False  # the signal was sent, or the fault point reached
        self.killed = []  # ids of processes that the kernel ends with launch
        self._continue_at = self._stopped = None
        self._at = 0

    def step(self):
        now = time.monotonic()
        if self._continue_at is not None and now >= self._continue_at:
            self._continue_at = None
            for name in self._stopped:
                self._send(name, signal.SIGCONT)
        if self.reached or not self.what:
            return
        fault = self.what.get("fault")
        if fault:
            if not self._fault_reached():
                return
        elif now - self.start < self.what["after"]:
            return
        stopped = [fault.split(":")[1]] if fault and fault.startswith("stop:") else []
        if self.what.get("signal"):
            sent = self._send(self.what["victim"], getattr(signal, "SIG" + self.what["signal"]))
            if not sent and not fault and self.process.poll() is None:
                return  # the victim has not been started yet
            stopped += [self.what["victim"]] if self.what["signal"] == "STOP" else []
        self.reached = True
        self._stopped = stopped
        if stopped and self.what["hold"] is not None:
            self._continue_at = now + self.what["hold"]

    def _fault_reached(self):
        with open(self.output, "rb") as file:
            file.seek(self._at)
            new = file.read()
        if _REACHED.encode() in new:
            return True
        self._at += max(0, len(new) - len(_REACHED))
        return False

    def _send(self, name, number):
        if name == "launch" and number == signal.SIGKILL:
            self.killed = _processes(self.place.job)
        if name == "launch" or self.what.get("victim") == name and self.process.args[0].endswith("trainer"):
            _kill(self.process.pid, number)
            return True
        role, index = name.split(".")
        pids = _processes(self.place.job, "pserver" if role == "server" else role, index)
        for pid in pids:
            _kill(pid, number)
        return bool(pids)


def _kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _processes(job, program=None, index=None):
    """The ids of the processes of the job in this place; of one program and number."""
    found = []
    word = "--job=" + job
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/cmdline" % entry, "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if word not in words:
            continue
        if program is None or (
            os.path.basename(words[0]) == program and
            "--%s_id=%s" % (program.replace("pserver", "server"), index) in words
        ):
            found.append(int(entry))
    return found


def _ending(pid):
    """Whether a process has not yet given back what it holds; it has no name any more by then."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _wait_until_gone(job, killed):
    """Gives the kernel a moment; then kills and returns what is left."""
    end = time.monotonic() + 3.0
    while True:
        left = _processes(job)
        if not (left or any(_ending(pid) for pid in killed)) or time.monotonic() > end:
            break
        time.sleep(0.05)
    said = []
    for pid in left:
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                said.append("%d: %s" % (pid, file.read().decode(errors="replace").replace("\0", " ")))
        except OSError:
            continue
        _kill(pid, signal.SIGKILL)
    return said


# What processes say -------------------------------------------------------------------------------------------------

_WHO = r"^(?:\[trainer\.\d+\] )?"


def digests(output):
    """The digest lines: {step: [text, ..]}."""
    return _by_step(re.findall(_WHO + r"digest step=(\d+) (.*)$", output, re.MULTILINE))


def evaluations(output):
    return _by_step(re.findall(_WHO + r"eval step=(\d+) (.*)$", output, re.MULTILINE))


def _by_step(found):
    made = {}
    for step, said in found:
        made.setdefault(int(step), []).append(said)
    return made


def done(output):
    """What the last lines of trainers say: {"trainer.0": {"steps": "20", ..}}; of one process: {"": {..}}."""
    made = {}
    for who, said in re.findall(r"^(?:\[(trainer\.\d+)\] )?done (.*)$", output, re.MULTILINE):
        if who == "" and made:
            continue  # launch repeats that of trainer 0
        made[who] = dict(word.split("=", 1) for word in said.split() if "=" in word)
    return made
