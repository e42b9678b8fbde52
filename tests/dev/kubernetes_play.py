#!/usr/bin/env python3
"""Plays the manifests of examples/kubernetes on this machine: each container's command as a local process.

    tests/dev/kubernetes_play.py --bin_dir=DIR --data=DIR --output=DIR [--kill=POD | --evict=POD] [DIRECTORY]

A process gets the environment and the arguments that Kubernetes would give to the container. A pod has a directory of
its own below --output in place of its root: the files of ConfigMaps are copied there, claims are links (weir-data to
--data), and arguments that name a path of a mount name it there. Names of servers become ports of 127.0.0.1. Pods are
started again as StatefulSet and Job say: by restartPolicy, podFailurePolicy and limits, with `--backoff_s` instead of
Kubernetes' times. Ends with 0 if the Job is complete. --kill and --evict do so to one pod after the first checkpoint.

Not played: images, users, limits of memory and processors, network policies, disruption budgets, probes.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import kubernetes_check as manifests  # noqa: E402

POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Pod:
    """One pod of one container. Its process may be started several times."""

    def __init__(self, name, index, owner):
        self.name, self.index, self.owner = name, index, owner
        self.process = None
        self.starts = 0      # of the container
        self.failures = 0    # that count
        self.disrupted = False
        self.start_at = 0.0  # when it is started again
        self.done = False


class Player:
    """The pods of a StatefulSet and an Indexed Job.

    `events` is what has happened: (pod, "start"), (pod, exit code, action). `status` becomes "Complete" or "Failed".
    """

    def __init__(self, objects, output, *, bin_dir, claims, environment=None, arguments=(), backoff_s=0.2):
        self.objects = objects
        self.output = pathlib.Path(output).resolve()
        self.claims = {name: pathlib.Path(path).resolve() for name, path in claims.items()}
        self.environment = dict(environment or {})
        self.arguments = list(arguments)
        self.bin_dir = bin_dir
        self.backoff_s = backoff_s
        self.events = []
        self.status = None
        self.reason = ""
        kinds = {each["kind"]: each for each in objects}
        self.servers, self.job, service = kinds["StatefulSet"], kinds["Job"], kinds["Service"]
        name, port = self.servers["metadata"]["name"], service["spec"]["ports"][0]["port"]
        self.port = port
        self.ports = free_ports(self.servers["spec"]["replicas"])
        self.hosts = {f"{name}-{i}.{service['metadata']['name']}:{port}": f"127.0.0.1:{local}"
                      for i, local in enumerate(self.ports)}
        self.pods = [Pod(f"{each['metadata']['name']}-{i}", i, each) for each, number in
                     ((self.servers, self.servers["spec"]["replicas"]), (self.job, self.job["spec"]["completions"]))
                     for i in range(number)]

    # What a container is given.

    def _config_map(self, name):
        return next(o["data"] for o in self.objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == name)

    def root(self, pod):
        return self.output / pod.name

    def _variables(self, pod):
        """Returns the environment by the manifests, and what Kubernetes adds."""
        container = manifests.containers(pod.owner)[0]
        found = {}
        for each in container.get("envFrom", []):
            found.update(self._config_map(each["configMapRef"]["name"]))
        for each in container.get("env", []):
            if "value" in each:
                found[each["name"]] = each["value"]
                continue
            path = each["valueFrom"]["fieldRef"]["fieldPath"]
            known = {"metadata.name": pod.name}
            if pod.owner is self.servers:
                known[POD_INDEX] = str(pod.index)
            found[each["name"]] = known[path]
        if pod.owner is self.job:
            found["JOB_COMPLETION_INDEX"] = str(pod.index)
        found["HOSTNAME"] = pod.name
        return found

    def _mount(self, pod):
        """Makes the pod's root. A container that starts again finds its emptyDir as it was, a new pod an empty one."""
        container, spec = manifests.containers(pod.owner)[0], manifests.pod_spec(pod.owner)
        volumes = {each["name"]: each for each in spec["volumes"]}
        if pod.owner is self.job:
            shutil.rmtree(self.root(pod), ignore_errors=True)
        for mount in container["volumeMounts"]:
            path, volume = self.root(pod) / mount["mountPath"].lstrip("/"), volumes[mount["name"]]
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if "persistentVolumeClaim" in volume:
                path.symlink_to(self.claims[volume["persistentVolumeClaim"]["claimName"]])
                continue
            path.mkdir()
            if "configMap" in volume:
                for name, text in self._config_map(volume["configMap"]["name"]).items():
                    (path / name).write_text(text, encoding="utf-8")

    def _here(self, pod, text):
        """Returns a text with the paths, names and ports of this machine."""
        for name, local in self.hosts.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?!\d)", local, text)
        if pod.owner is self.servers:
            text = text.replace(f"0.0.0.0:{self.port}", f"127.0.0.1:{self.ports[pod.index]}")
        mounts = "|".join(re.escape(each["mountPath"]) for each in manifests.containers(pod.owner)[0]["volumeMounts"])
        return re.sub(rf"(^|=)({mounts})(?=/|$)", lambda match: f"{match[1]}{self.root(pod)}{match[2]}", text)

    def command(self, pod):
        """Returns arguments and environment of the pod's process."""
        container, variables = manifests.containers(pod.owner)[0], self._variables(pod)

        def expanded(text):
            return re.sub(r"\$\((\w+)\)", lambda m: variables.get(m[1], m[0]), text)

        words = [expanded(each) for each in container["command"] + container.get("args", [])] + self.arguments
        variables.update(self.environment)
        variables = {name: self._here(pod, value) for name, value in variables.items()}
        variables["PATH"] = f"{self.bin_dir}:{os.environ['PATH']}"
        variables["TMPDIR"] = str(self.root(pod) / "tmp")
        return [self._here(pod, each) for each in words], variables

    # Running.

    def log(self, pod):
        """Returns what the pod has printed, of all its starts."""
        path = self.output / f"{pod.name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def pod(self, name):
        return next(each for each in self.pods if each.name == name)

    def _start(self, pod):
        self._mount(pod)
        words, variables = self.command(pod)
        with open(self.output / f"{pod.name}.log", "ab") as log:
            pod.process = subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           start_new_session=True)
        pod.starts += 1
        pod.disrupted = False
        self.events.append((pod.name, "start"))

    def kill(self, name):
        """Kills all processes of a container, as the kernel does when its memory is used up."""
        os.killpg(self.pod(name).process.pid, signal.SIGKILL)

    def evict(self, name):
        """Asks the first process of the container to end, as when its node is drained."""
        pod = self.pod(name)
        pod.disrupted = True
        pod.process.terminate()

    def _again(self, pod):
        pod.process = None
        pod.start_at = time.monotonic() + self.backoff_s

    def _ended(self, pod, code):
        code = 128 - code if code < 0 else code
        if pod.owner is self.servers:
            self.events.append((pod.name, code, "Restart"))
            self._again(pod)
            return
        if code == 0:
            self.events.append((pod.name, 0, "Done"))
            pod.process, pod.done = None, True
            return
        action = manifests.failure_action(self.job, code, disrupted=pod.disrupted)
        self.events.append((pod.name, code, action))
        if action == "FailJob":
            self.status, self.reason = "Failed", f"PodFailurePolicy: {pod.name} ended with {code}"
        elif action == "Count":
            pod.failures += 1
            if pod.failures > self.job["spec"]["backoffLimitPerIndex"]:
                self.status, self.reason = "Failed", f"{pod.name} has failed {pod.failures} times"
        self._again(pod)

    def turn(self):
        """Looks at every pod once."""
        for pod in self.pods:
            if self.status or pod.done:
                continue
            if pod.process is None:
                if time.monotonic() >= pod.start_at:
                    self._start(pod)
            elif pod.process.poll() is not None:
                # What the container's first process has left ends with it.
                self._end_group(pod)
                self._ended(pod, pod.process.returncode)
        if all(pod.done for pod in self.pods if pod.owner is self.job):
            self.status = self.status or "Complete"

    def play(self, until=lambda: False, deadline_s=120.0):
        """Runs until the Job is complete or has failed, or `until()`. Raises TimeoutError."""
        self.output.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + deadline_s
        while not self.status and not until():
            if time.monotonic() > end:
                raise TimeoutError(f"neither complete nor failed after {deadline_s:g} s: {self.events}")
            self.turn()
            time.sleep(0.02)

    def _end_group(self, pod):
        try:
            os.killpg(pod.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self):
        for pod in self.pods:
            if pod.process is not None:
                self._end_group(pod)
                pod.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def has_checkpoint(claims):
    return any(claims["weir-checkpoints"].glob("step-*"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=str(manifests.ROOT / "examples/kubernetes"))
    parser.add_argument("--bin_dir", required=True, help="directory of pserver and trainer")
    parser.add_argument("--data", required=True, help="what the claim weir-data holds")
    parser.add_argument("--output", required=True, help="for pods, logs and checkpoints")
    parser.add_argument("--backoff_s", type=float, default=1.0, help="pause before a pod is started again")
    parser.add_argument("--kill", help="pod whose processes are killed after the first checkpoint")
    parser.add_argument("--evict", help="pod that is asked to end after the first checkpoint")
    parser.add_argument("--set", action="append", default=[], help="setting of the job, for all processes")
    parser.add_argument("--deadline_s", type=float, default=600)
    flags = parser.parse_args()
    claims = {"weir-data": pathlib.Path(flags.data), "weir-checkpoints": pathlib.Path(flags.output) / "checkpoints"}
    claims["weir-checkpoints"].mkdir(parents=True, exist_ok=True)
    with Player(manifests.build(flags.directory), flags.output, bin_dir=os.path.abspath(flags.bin_dir), claims=claims,
                arguments=[f"--set={each}" for each in flags.set], backoff_s=flags.backoff_s) as player:
        if flags.kill or flags.evict:
            player.play(lambda: has_checkpoint(claims), flags.deadline_s)
            if not player.status and flags.kill:
                player.kill(flags.kill)
            elif not player.status:
                player.evict(flags.evict)
        player.play(deadline_s=flags.deadline_s)
    for event in player.events:
        print(*event)
    for pod in player.pods:
        if pod.owner is player.job:
            print(f"{pod.name}: {(player.log(pod).strip().splitlines() or [''])[-1]}")
    print(player.status, player.reason)
    sys.exit(0 if player.status == "Complete" else 1)


if __name__ == "__main__":
    main()
