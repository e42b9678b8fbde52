"""Containers without Docker: layers of overlayfs, and namespaces made by `unshare`. Needs root.

A container has its own root, process ids, host name and mounts. Its mounts are in a namespace of its own and disappear
with its processes, and its processes end when the one that started it ends, however that happens. The layer that a
container writes is in memory unless it is to be kept. Users, capabilities, /proc, /sys and /dev are as with Docker;
control groups and seccomp are not made.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Mapping, Optional, Sequence, Union

# The default of Docker: moby, oci/caps/defaults.go.
CAPABILITIES = ("chown", "dac_override", "fsetid", "fowner", "mknod", "net_raw", "setgid", "setuid", "setfcap",
                "setpcap", "net_bind_service", "sys_chroot", "kill", "audit_write")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What debian:*-slim leaves out; the terms of each package stay.
NOT_IN_SLIM = ("doc", "info", "linda", "lintian", "locale", "man")


@dataclasses.dataclass(frozen=True)
class Image:
    """A root as layers, the lowest first, and how a process starts in it."""

    layers: tuple[Path, ...]
    # Of all that the layers are made of.
    digest: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"PATH": PATH})
    directory: str = "/"
    user: str = "0:0"
    command: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Mount:
    """A file or directory of this machine that a container sees at `target`."""

    source: Path
    target: str
    read_only: bool = True


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a container is given beside its image."""

    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read_only: bool = False
    capabilities: Sequence[str] = CAPABILITIES
    no_new_privileges: bool = False
    host_name: str = "weir"
    # Of Network.namespace(); without one the container has the network of this machine.
    network: Optional[Path] = None


class Unavailable(Exception):
    """This machine cannot run containers; the message says what it has not got."""


class Store:
    """A directory of layers that are kept for later runs, and of those that close() removes.

    The first Store of a directory makes the others wait, so one run never removes what another uses. A run that was
    killed leaves directories but neither mounts nor processes; the next run removes them.
    """

    def __init__(self, directory: Path) -> None:
        for program in "unshare", "setpriv", "nsenter":
            if shutil.which(program) is None:
                raise Unavailable(f"{program} is not installed")
        if os.geteuid() != 0:
            raise Unavailable("containers need root")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory = directory.resolve()
        self._lock = open(directory / "lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._remove_unfinished()
        self.run = Path(tempfile.mkdtemp(prefix="run-", dir=directory))
        self.mounted = self.run / "mounted"
        self.mounted.mkdir()
        self.hosts = self.run / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self._layers = 0
        self._used: set[Path] = set()
        try:
            self._try()
        except BaseException:
            self.close()
            raise

    def _remove_unfinished(self) -> None:
        for pattern in "run-*", "*.part", "*/layers/*.part":
            for left in self.directory.glob(pattern):
                shutil.rmtree(left)

    def close(self) -> None:
        self._remove_unfinished()
        self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _try(self) -> None:
        lower = self.run / "try"
        (lower / "proc").mkdir(parents=True)
        script = f"mount -t tmpfs tmpfs {self.mounted} && cd {self.mounted} && mkdir upper work root && " \
                 f"mount -t overlay overlay -o lowerdir={lower},upperdir=upper,workdir=work root && " \
                 "mount -t proc proc root/proc"
        done = subprocess.run(["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "sh", "-c", script],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Unavailable(f"this machine has no namespaces with overlayfs for root here: {_last_line(done.stdout)}")

    def new_layer(self) -> Path:
        """Returns the path of a layer to make, which close() removes."""
        self._layers += 1
        return self.run / f"layer-{self._layers}"

    def debian(self, suite: str, *, slim: bool) -> Image:
        """Returns Debian's smallest root, made by debootstrap from its default mirror unless it is kept here.

        Raises:
            Unavailable: debootstrap is not installed, or cannot load the packages.
        """
        name = f"{suite}-slim" if slim else suite
        root = self.directory / name / "root"
        if not root.exists():
            part = self.directory / f"{name}.part"
            if slim:
                full, = self.debian(suite, slim=False).layers
                (part / "layers").mkdir(parents=True)
                subprocess.run(["cp", "--archive", full, part / "root"], check=True)
                _make_slim(part / "root")
            else:
                (part / "layers").mkdir(parents=True)
                _debootstrap(suite, part / "root")
            part.rename(self.directory / name)
        return Image(layers=(root,), digest=hashlib.sha256(f"debian {name}".encode()).hexdigest())

    def kept_layer(self, image: Image, digest: str) -> Path:
        """Returns the path of a layer on this image that stays: beside its root, without which it is of no use."""
        layer = image.layers[0].parent / "layers" / digest[:16]
        self._used.add(layer)
        return layer

    def keep(self, part: Path, layer: Path) -> None:
        """Makes `part` the kept layer, and removes those that this run has not used."""
        part.rename(layer)
        for other in set(layer.parent.iterdir()) - self._used:
            shutil.rmtree(other)

    @property
    def archives(self) -> Path:
        """Debian packages that apt-get has loaded."""
        path = self.directory / "archives"
        path.mkdir(exist_ok=True)
        return path


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _debootstrap(suite: str, root: Path) -> None:
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise Unavailable("debootstrap is not installed: tools/setup --peers")
    done = subprocess.run(_ending_with_us("unshare", "--mount", "--pid", "--fork", "--kill-child", program,
                                          "--variant=minbase", suite, str(root)),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Unavailable(f"debootstrap cannot make {suite}: {_last_line(done.stdout)}")
    # As the images of Debian are: without lists and packages, no service starts, dpkg does not wait for the disk.
    for left in [*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")]:
        left.unlink()
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/dpkg/dpkg.cfg.d/docker-apt-speedup").write_text("force-unsafe-io\n")
    (root / "etc/apt/apt.conf.d/docker-no-languages").write_text('Acquire::Languages "none";\n')
    # Those of a container are mounted over these.
    for name in "etc/resolv.conf", "etc/hostname", "etc/hosts":
        (root / name).unlink(missing_ok=True)
        (root / name).touch()


def _make_slim(root: Path) -> None:
    for name in NOT_IN_SLIM:
        for path in sorted((root / "usr/share" / name).glob("**/*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.name != "copyright":
                path.unlink()


def _ending_with_us(*command: str) -> list[str]:
    """Returns the command as one that is killed when this process ends."""
    return ["setpriv", "--pdeathsig=KILL", *command]


def _work_of(upper: Path) -> Path:
    """Returns the directory that overlayfs needs beside a layer while it is written."""
    return upper.with_name(upper.name + ".work.part")


def _make_root(store: Store, image: Image, upper: Optional[Path]) -> list[str]:
    """Returns the lines of a shell that make the root of a container in `root` of the working directory."""
    lines = [f"mount -t tmpfs -o mode=755 tmpfs {store.mounted}", f"cd {store.mounted}", "mkdir root upper work"]
    up, work = store.mounted / "upper", store.mounted / "work"
    if upper is not None:
        up, work = upper, _work_of(upper)
        lines.append(f"mkdir -p {work}")
    lower = ":".join(map(str, reversed(image.layers)))
    lines += [f"mount -t overlay overlay -o lowerdir={lower},upperdir={up},workdir={work} root",
              "mount -t sysfs -o ro sysfs root/sys",
              "mount -t tmpfs -o mode=755,size=64k tmpfs root/dev",
              "cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty root/dev",
              "mkdir root/dev/pts root/dev/shm",
              "mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts root/dev/pts",
              "mount -t tmpfs -o mode=1777,size=64m tmpfs root/dev/shm",
              "ln -s /proc/self/fd root/dev/fd",
              "ln -s pts/ptmx root/dev/ptmx",
              "for i in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${i%:*} root/dev/${i#*:}; done"]
    return lines


def _mount_settings(store: Store, settings: Settings) -> list[str]:
    """Returns the lines that mount into this root what a container is given."""
    lines = [f"mkdir -p root{target} && mount -t tmpfs -o mode=1777 tmpfs root{target}" for target in settings.tmpfs]
    hosts = () if any(each.target == "/etc/hosts" for each in settings.mounts) else (Mount(store.hosts, "/etc/hosts"),)
    for each in (*hosts, *settings.mounts):
        source, target = shlex.quote(str(each.source)), "root" + shlex.quote(each.target)
        made = f"mkdir -p {target}" if each.source.is_dir() else f"[ -e {target} ] || touch {target}"
        lines += [made, f"mount --bind {source} {target}"]
        if each.read_only:
            lines.append(f"mount -o remount,bind,ro {target}")
    return lines


def _script(store: Store, image: Image, command: Sequence[str], settings: Settings, upper: Optional[Path],
            user: str, directory: str) -> str:
    """Returns what a shell does in the new namespaces: it makes the root, and runs the command there as process 1.

    `unshare --fork` of util-linux 2.38 does not tell that its child was killed, so a shell starts it.
    """
    lines = _make_root(store, image, upper) + _mount_settings(store, settings)
    lines.append(f"hostname {shlex.quote(settings.host_name)}")
    first = ["mount -t proc proc root/proc", "mount --bind root/proc/sys root/proc/sys",
             "mount -o remount,bind,ro root/proc/sys"]
    if settings.read_only:
        first.append("mount -o remount,ro root")
    variables = {**image.environment, "HOSTNAME": settings.host_name, **settings.environment}
    uid, gid = user.split(":")
    first.append(rf"home=$(sed -n 's/^[^:]*:[^:]*:{uid}:[^:]*:[^:]*:\([^:]*\):.*/\1/p' root/etc/passwd)")
    bounds = ",".join(["-all", *(f"+{each}" for each in settings.capabilities)])
    become = ["chroot", str(store.mounted / "root"), "/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}",
              "--clear-groups", f"--bounding-set={bounds}", "--inh-caps=-all", "--pdeathsig=KILL"]
    become += ["--no-new-privs"] if settings.no_new_privileges else []
    become += ["/usr/bin/env", "--ignore-environment", f"--chdir={directory}"]
    words = [*(f"{name}={value}" for name, value in variables.items()), *command]
    first.append(f'exec {shlex.join(become)} HOME="${{home:-/}}" {shlex.join(words)}')
    # With a command behind it the shell forks for the one before, which becomes process 1.
    start = shlex.join(_ending_with_us("/bin/sh", "-ec", "\n".join(first))) + "; exit $?"
    lines.append("exec " + shlex.join(["unshare", "--pid", "/bin/sh", "-c", start]))
    return "\n".join(lines)


class Container:
    """One container with its first process, which is process 1 of the container."""

    def __init__(self, store: Store, image: Image, command: Sequence[str] = (), settings: Settings = Settings(), *,
                 upper: Optional[Path] = None, user: Optional[str] = None, directory: Optional[str] = None,
                 stdin: Union[int, IO[Any]] = subprocess.DEVNULL, stdout: Union[int, IO[Any]] = subprocess.PIPE,
                 stderr: Union[int, IO[Any]] = subprocess.STDOUT) -> None:
        """Starts it. `upper` is an empty directory that becomes the layer of what the container writes."""
        script = _script(store, image, command or image.command, settings, upper, user or image.user,
                         directory or image.directory)
        enter = ["nsenter", f"--net={settings.network}"] if settings.network else []
        self._upper = upper
        self._process = subprocess.Popen(
            _ending_with_us(*enter, "unshare", "--mount", "--uts", "--ipc", "/bin/sh", "-ec", script),
            stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, env={"PATH": PATH, "LC_ALL": "C"})
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    def send(self, number: int) -> None:
        """Sends a signal to process 1. Nothing if it has ended."""
        pid = self._process.pid
        try:
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), number)
        except (FileNotFoundError, ProcessLookupError):
            pass

    def wait(self, seconds: float) -> int:
        """Returns the exit code as Docker gives it: 128 + signal of a process that was killed."""
        code = self._process.wait(timeout=seconds)
        self._remove_work()
        return code if code >= 0 else 128 - code

    def ended(self) -> bool:
        return self._process.poll() is not None

    def communicate(self, seconds: float) -> tuple[int, bytes]:
        """Returns the exit code and what the container printed, if stdout is a pipe."""
        printed = self._process.communicate(timeout=seconds)[0]
        return self.wait(seconds), printed or b""

    def kill(self) -> None:
        """Ends all of its processes, and returns when none is left: process 1 is the last that the kernel ends."""
        deadline = time.monotonic() + 10
        while self._process.poll() is None:
            self.send(signal.SIGKILL)
            if time.monotonic() > deadline:
                self._process.kill()
            try:
                self._process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
        for pipe in self.stdin, self.stdout:
            if pipe is not None:
                pipe.close()
        self._remove_work()

    def _remove_work(self) -> None:
        if self._upper is not None:
            shutil.rmtree(_work_of(self._upper), ignore_errors=True)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()


def run(store: Store, image: Image, *command: str, seconds: float = 120, settings: Settings = Settings(),
        **others: Any) -> tuple[int, str]:
    """Runs a command in a container; without one, that of the image. Returns its exit code and what it printed."""
    with Container(store, image, command, settings, **others) as container:
        code, printed = container.communicate(seconds)
    return code, printed.decode(errors="replace")


def read_files(store: Store, image: Image, path: str) -> Optional[tuple[bool, bytes]]:
    """Returns whether a path of an image is a directory, and a tar of its content, or of the file; None if it is not
    there."""
    script = ('if [ -d "$1" ]; then exec tar --create --file=- --numeric-owner --directory="$1" .; fi\n'
              '[ -e "$1" ] || exit 4\n'
              'tar --create --file=- --numeric-owner --directory="$(dirname "$1")" -- "$(basename "$1")" && exit 3')
    with Container(store, image, ["/bin/sh", "-c", script, "sh", path], user="0:0", directory="/",
                   stderr=subprocess.DEVNULL) as container:
        code, data = container.communicate(300)
    if code == 4:
        return None
    if code not in (0, 3):
        raise RuntimeError(f"cannot read {path} of an image: tar ended with {code}")
    return code == 0, data


class Network:
    """A network that has containers only, each with a network namespace, an address and a name of its own.

    Names are looked up in name_server.py: `add` makes one known, `remove` takes it away. `asked` is its log.
    """

    def __init__(self, names: Sequence[str], asked: Path) -> None:
        self.name_server = "10.0.0.1"
        self.addresses = {name: f"10.0.0.{i}" for i, name in enumerate(names, 2)}
        self.asked = asked
        lines = ["mount -t tmpfs tmpfs /run", "ip link add name weir0 type bridge",
                 f"ip address add {self.name_server}/24 dev weir0", "ip link set dev weir0 up"]
        for i, (name, address) in enumerate(self.addresses.items()):
            lines += [f"ip netns add {name}",
                      f"ip link add name weir0.{i} type veth peer name eth0 netns {name}",
                      f"ip link set dev weir0.{i} master weir0 up",
                      f"ip -n {name} address add {address}/24 dev eth0",
                      f"ip -n {name} link set dev eth0 up",
                      f"ip -n {name} link set dev lo up"]
        # It holds the namespaces until its input ends.
        lines.append("exec " + shlex.join([sys.executable, str(Path(__file__).with_name("name_server.py")),
                                           self.name_server, str(asked)]))
        self._holder = subprocess.Popen(
            _ending_with_us("unshare", "--net", "--mount", "/bin/sh", "-ec", "\n".join(lines)), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True, env={"PATH": PATH})
        try:
            self._expect("ready\n")
        except BaseException:
            self.close()
            raise

    def _expect(self, line: str) -> None:
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != line:
            raise RuntimeError("the network of the containers has ended")

    def _tell(self, line: str) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.write(line)
        self._holder.stdin.flush()
        self._expect("\n")

    def add(self, name: str) -> None:
        self._tell(f"{name} {self.addresses[name]}\n")

    def remove(self, name: str) -> None:
        self._tell(f"{name}\n")

    def namespace(self, name: str) -> Path:
        return Path(f"/proc/{self._holder.pid}/root/run/netns/{name}")

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


def processes_of(store: Store) -> list[int]:
    """Returns the processes that see a mount of a store's directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if f"{store.directory}/" in (each / "mountinfo").read_text():
                found.append(int(each.name))
        except OSError:
            continue
    return found


def left_after(store: Store, seconds: float) -> list[int]:
    """Returns processes_of() when they have had this time to end."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(store)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left
