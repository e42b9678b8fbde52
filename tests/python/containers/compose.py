"""Runs the services of a compose file without Docker, in containers of container.py, as `docker compose` would.

Keys that are not known here are refused by name, so that nothing of the file is passed over.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import container
import yaml
from container import Container, Image, Mount, Network, Settings, Store

TOP = {"name", "services", "volumes"}
SERVICE = {"image", "build", "environment", "volumes", "tmpfs", "read_only", "cap_drop", "security_opt",
           "stop_grace_period", "restart", "command"}


class ComposeError(Exception):
    """A compose file has something that is not played; the message says where."""


def load(path: Path) -> dict[str, Any]:
    """Returns the content of a compose file.

    Raises:
        ComposeError: it has a key or a value that is not played.
    """
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    for key in content:
        if key not in TOP and not key.startswith("x-"):
            raise ComposeError(f"{path.name}: {key} is not played")
    for name, service in content["services"].items():
        for key in service:
            if key not in SERVICE:
                raise ComposeError(f"{path.name}: services.{name}.{key} is not played")
        for key, played in ("cap_drop", ["ALL"]), ("security_opt", ["no-new-privileges:true"]), ("restart", "no"):
            if service.get(key, played) != played:
                raise ComposeError(f"{path.name}: services.{name}.{key} is played as {played} only")
        for volume in service.get("volumes", []):
            source, target, *mode = volume.split(":")
            if mode not in ([], ["ro"]) or not target.startswith("/"):
                raise ComposeError(f"{path.name}: services.{name}.volumes: {volume} is not played")
            if not source.startswith((".", "/")) and source not in content.get("volumes", {}):
                raise ComposeError(f"{path.name}: services.{name}.volumes: there is no volume {source}")
    return content


def seconds_of(duration: str) -> float:
    """Returns the seconds of a duration such as 2m or 1m30s."""
    parts = re.findall(r"(\d+)([hms])", duration)
    if "".join(number + unit for number, unit in parts) != duration or not parts:
        raise ComposeError(f"{duration} is no duration that is played")
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)


class Project:
    """The services of a compose file, whose images are there already, with a network and volumes of their own.

    Volumes and logs are below `directory`. close() ends what runs.
    """

    def __init__(self, store: Store, path: Path, images: Mapping[str, Image], directory: Path) -> None:
        self.content = load(path)
        self.services: dict[str, dict[str, Any]] = self.content["services"]
        self._store = store
        self._path = path
        self._images = images
        self.directory = directory
        self._containers: dict[str, Container] = {}
        self._started: Sequence[str] = ()
        self._network = Network(list(self.services), directory / "asked")

    def image(self, service: str) -> Image:
        return self._images[self.services[service]["image"]]

    def volume(self, name: str) -> Path:
        """Returns the directory of a named volume."""
        return self.directory / f"volume-{name}"

    def log(self, service: str) -> str:
        """Returns what a service printed since it was started last; nothing if it never was."""
        path = self.directory / f"{service}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _mounts(self, service: str) -> list[Mount]:
        hosts, resolver = self.directory / f"{service}.hosts", self.directory / "resolv.conf"
        hosts.write_text(f"127.0.0.1 localhost\n{self._network.addresses[service]} {service}\n")
        resolver.write_text(f"nameserver {self._network.name_server}\noptions ndots:0\n")
        mounts = [Mount(hosts, "/etc/hosts"), Mount(resolver, "/etc/resolv.conf")]
        for volume in self.services[service].get("volumes", []):
            source, target, *mode = volume.split(":")
            if source.startswith((".", "/")):
                path = (self._path.parent / source).resolve()
                # Docker makes it, as root, instead of telling that it is missing.
                path.mkdir(parents=True, exist_ok=True)
            else:
                path = self.volume(source)
                if not path.exists():
                    self._fill(path, service, target)
            mounts.append(Mount(path, target, read_only=mode == ["ro"]))
        return mounts

    def _fill(self, path: Path, service: str, target: str) -> None:
        """Makes a named volume. It begins with what the image has at its place, with owners and modes."""
        path.mkdir()
        found = container.read_files(self._store, self.image(service), target)
        if found is not None:
            subprocess.run(["tar", "--extract", "--file=-", "--same-permissions", "--same-owner", "--numeric-owner",
                            f"--directory={path}"], input=found[1], check=True)

    def settings(self, service: str) -> Settings:
        of = self.services[service]
        return Settings(mounts=tuple(self._mounts(service)), tmpfs=tuple(of.get("tmpfs", ())),
                        environment=of.get("environment", {}), read_only=of.get("read_only", False),
                        capabilities=() if "cap_drop" in of else container.CAPABILITIES,
                        no_new_privileges="security_opt" in of, host_name=service,
                        network=self._network.namespace(service))

    def up(self, *names: str) -> None:
        """Starts these services, or all, at once: none waits for another. None of these may run."""
        self._started = names or list(self.services)
        for name in self._started:
            command = self.services[name].get("command", ())
            self._network.add(name)
            with open(self.directory / f"{name}.log", "wb") as log:
                self._containers[name] = Container(
                    self._store, self.image(name), shlex.split(command) if isinstance(command, str) else command,
                    self.settings(name), stdout=log)

    def has_missed(self, service: str, other: str) -> bool:
        """Returns whether a service looked another one up when its name was not there."""
        return f"{other} none {self._network.addresses[service]}\n" in self._network.asked.read_text()

    def ended(self) -> list[str]:
        """Returns those of the services started last that have ended."""
        return [name for name in self._started if self._containers[name].ended()]

    def _code_of(self, name: str, seconds: float) -> int:
        code = self._containers[name].wait(seconds)
        self._network.remove(name)
        return code

    def wait(self, seconds: float) -> dict[str, Optional[int]]:
        """Waits for all services to end, and returns their exit codes, None for one that has not ended in time."""
        deadline = time.monotonic() + seconds
        codes: dict[str, Optional[int]] = {}
        for name in self._containers:
            try:
                codes[name] = self._code_of(name, max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
        return codes

    def stop(self) -> dict[str, int]:
        """Asks all services to end, kills those that have not after their grace period, and returns exit codes."""
        for each in self._containers.values():
            each.send(signal.SIGTERM)
        begun, codes = time.monotonic(), {}
        for name, each in self._containers.items():
            grace = seconds_of(self.services[name].get("stop_grace_period", "10s"))
            try:
                codes[name] = self._code_of(name, max(0.1, begun + grace - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.send(signal.SIGKILL)
                codes[name] = self._code_of(name, 10)
        return codes

    def kill(self, service: str) -> None:
        self._containers[service].send(signal.SIGKILL)

    def close(self) -> None:
        for each in self._containers.values():
            each.kill()
        self._network.close()
