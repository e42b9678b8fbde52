"""Reads a Dockerfile, and plays its steps without Docker in containers of container.py, each on a layer of its own.

Known are FROM, WORKDIR, COPY, RUN, ENV, USER and CMD, without variables, patterns and options beside --from. Anything
else is an error that names the line: a step that is not understood is never passed over.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import posixpath
import re
import shlex
import stat
import tarfile
import tempfile
from pathlib import Path
from typing import Callable, Iterator, Optional, Sequence

import container
from container import Container, Image, Mount, Settings, Store

DEBIAN = re.compile(r"debian:([a-z]+)(-slim)?")
INSTRUCTIONS = ("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "CMD")


class DockerfileError(Exception):
    """A Dockerfile cannot be read or played; the message begins with file and line."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction: `text` is what follows its name, continued lines joined."""

    file: str
    line: int
    name: str
    text: str

    def error(self, message: str) -> DockerfileError:
        return DockerfileError(f"{self.file}:{self.line}: {self.name} {self.text}".rstrip() + f": {message}")

    def options(self) -> tuple[dict[str, str], list[str]]:
        """Returns the options before the first word that is none, and the words."""
        words = self.text.split()
        options = {}
        while words and words[0].startswith("--"):
            name, _, value = words.pop(0)[2:].partition("=")
            options[name] = value
        return options, words


@dataclasses.dataclass(frozen=True)
class Stage:
    """FROM base AS name, and what follows it."""

    base: str
    name: str
    start: Instruction
    instructions: list[Instruction]


def _instructions(path: Path) -> Iterator[Instruction]:
    begun, text = 0, ""
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        # Also between continued lines.
        if line.lstrip().startswith("#") or not line.strip():
            continue
        begun = begun or number
        if line.endswith("\\"):
            text += line[:-1]
            continue
        name, _, rest = (text + line).strip().partition(" ")
        yield Instruction(path.name, begun, name, rest.strip())
        begun, text = 0, ""
    if text:
        raise DockerfileError(f"{path.name}:{begun}: the last line is continued: {text.strip()}")


def _check(each: Instruction) -> None:
    """Raises DockerfileError for a form that is not played."""
    if each.name not in INSTRUCTIONS:
        raise each.error(f"unknown instruction; known are {', '.join(INSTRUCTIONS)}")
    options, words = each.options()
    if not words:
        raise each.error("is empty")
    for name in options:
        if (each.name, name) != ("COPY", "from"):
            raise each.error(f"unknown option --{name}")
    if each.name not in ("RUN", "CMD") and "$" in each.text:
        raise each.error("variables are not played")
    if each.name in ("COPY", "RUN") and (each.text.startswith("[") or "<<" in each.text):
        raise each.error("lists and here-documents are not played")
    if each.name == "COPY" and (len(words) < 2 or re.search(r"[*?\[]", each.text)):
        raise each.error("takes sources without patterns, and a destination")
    if each.name == "COPY" and len(words) > 2 and not words[-1].endswith("/"):
        raise each.error("of several sources needs a destination that ends in /")
    if each.name == "USER" and not re.fullmatch(r"\d+:\d+", each.text):
        raise each.error("takes UID:GID")
    if each.name == "ENV" and not all("=" in word for word in shlex.split(each.text)):
        raise each.error("takes NAME=VALUE")


def parse(path: Path) -> list[Stage]:
    """Returns the stages of a Dockerfile.

    Raises:
        DockerfileError: it has an instruction or a form of one that is not played.
    """
    stages: list[Stage] = []
    for each in _instructions(path):
        _check(each)
        if each.name == "FROM":
            found = re.fullmatch(r"(\S+)(?:\s+AS\s+(\S+))?", each.text, re.I)
            if found is None:
                raise each.error("takes IMAGE [AS NAME]")
            stages.append(Stage(found[1], found[2] or str(len(stages)), each, []))
        elif not stages:
            raise each.error("stands before the first FROM")
        else:
            stages[-1].instructions.append(each)
    if not stages:
        raise DockerfileError(f"{path.name}:1: has no FROM")
    return stages


def ignored(text: str) -> Callable[[str], bool]:
    """Returns whether the text of a .dockerignore leaves out a path of the context, written without a leading /.

    A file in a directory that is left out is left out too, but it is not asked for here.
    """
    patterns = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line[0] == "!" or re.search(r"[\[\]?\\]", line):
            raise DockerfileError(f".dockerignore:{number}: {line}: exceptions, ? and [] are not played")
        parts = re.split(r"(\*\*/|\*\*|\*)", line.strip("/"))
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
        patterns.append("".join(known.get(part) or re.escape(part) for part in parts))
    whole = re.compile("|".join(patterns) if patterns else r"(?!)")
    return lambda path: whole.fullmatch(path) is not None


class Context:
    """The files that a build may copy: those below a directory but for those of FILE.dockerignore."""

    def __init__(self, directory: Path, ignore: Callable[[str], bool]) -> None:
        self.directory = directory
        self._ignore = ignore

    @classmethod
    def of(cls, directory: Path, dockerfile: Path) -> Context:
        ignore = dockerfile.with_name(dockerfile.name + ".dockerignore")
        return cls(directory, ignored(ignore.read_text() if ignore.exists() else ""))

    def paths(self, source: str) -> Optional[list[str]]:
        """Returns the paths of a file, or of all below a directory, relative to the context; None if it has none."""
        source = posixpath.normpath(source.lstrip("/") or ".")
        parts = [] if source == "." else source.split("/")
        if ".." in parts or any(self._ignore("/".join(parts[:i + 1])) for i in range(len(parts))):
            return None
        path = self.directory / source
        if not os.path.lexists(path):
            return None
        return list(self._below(source)) if path.is_dir() and not path.is_symlink() else [source]

    def _below(self, source: str) -> Iterator[str]:
        for each in sorted(os.scandir(self.directory / source), key=lambda entry: entry.name):
            path = posixpath.normpath(f"{source}/{each.name}")
            if self._ignore(path):
                continue
            yield path
            if each.is_dir(follow_symlinks=False):
                yield from self._below(path)

    def archive(self, source: str, destination: str) -> Optional[tuple[bytes, str]]:
        """Returns a tar of a source under the names that it gets below the destination's directory, and its digest.

        A directory's content is copied to the destination; a file into a destination that ends in "/", else to it.
        Owner is root. None if the context has no such source.
        """
        paths = self.paths(source)
        if paths is None:
            return None
        source = posixpath.normpath(source.lstrip("/") or ".")
        is_file = paths == [source]
        data, digest = io.BytesIO(), hashlib.sha256()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for path in paths:
                if is_file:
                    name = posixpath.basename(source if destination.endswith("/") else destination)
                else:
                    name = posixpath.relpath(path, source)
                info = tar.gettarinfo(self.directory / path, name)
                # A socket has no place in an archive.
                if info is None:
                    continue
                # Two names of one file are two files.
                if stat.S_ISREG((self.directory / path).lstat().st_mode):
                    info.type, info.linkname, info.size = tarfile.REGTYPE, "", (self.directory / path).stat().st_size
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                content = (self.directory / path).read_bytes() if info.isreg() else b""
                digest.update(f"{name} {info.mode:o} {info.linkname} {len(content)}\n".encode() + content)
                tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
        return data.getvalue(), digest.hexdigest()


def check(stages: Sequence[Stage], context: Context) -> None:
    """Finds without playing what is missing.

    Raises:
        DockerfileError: a file to copy is not in the context, or a stage is not there before it is used.
    """
    names: list[str] = []
    for stage in stages:
        if stage.base not in names and not DEBIAN.fullmatch(stage.base):
            raise stage.start.error("a base is debian:SUITE, debian:SUITE-slim or an earlier stage")
        for each in stage.instructions:
            if each.name != "COPY":
                continue
            options, words = each.options()
            if options and options["from"] not in names:
                raise each.error(f"there is no earlier stage {options['from']}")
            for source in words[:-1]:
                if not options and context.paths(source) is None:
                    raise each.error(f"{source} is not in the context")
        names.append(stage.name)


class Player:
    """Plays the stages of a Dockerfile.

    `kept` are commands of RUN whose layer stays in the store, for a later run with the same steps before it; all other
    steps are played each time. A container of RUN has the network of this machine, and what `mounts` returns for its
    command. Each step may take `seconds`.
    """

    def __init__(self, store: Store, path: Path, context: Path, *, kept: Sequence[str] = (),
                 mounts: Callable[[str], Sequence[Mount]] = lambda command: (), seconds: float = 1800) -> None:
        self.store = store
        self.stages = parse(path)
        self.context = Context.of(context, path)
        check(self.stages, self.context)
        self.kept = kept
        self.mounts = mounts
        self.seconds = seconds
        self.images: dict[str, Image] = {}

    def play(self) -> dict[str, Image]:
        """Returns the image of each stage, by its name: that of AS, or its number."""
        for stage in self.stages:
            image = self._base(stage)
            for each in stage.instructions:
                image = getattr(self, "_" + each.name.lower())(image, each)
            self.images[stage.name] = image
        return self.images

    def _base(self, stage: Stage) -> Image:
        if stage.base in self.images:
            return self.images[stage.base]
        found = DEBIAN.fullmatch(stage.base)
        assert found is not None  # check()
        return self.store.debian(found[1], slim=bool(found[2]))

    def _workdir(self, image: Image, each: Instruction) -> Image:
        directory = posixpath.join(image.directory, each.text)
        image = self._in_layer(image, each, "workdir", ["mkdir", "--parents", directory])
        return dataclasses.replace(image, directory=directory)

    def _env(self, image: Image, each: Instruction) -> Image:
        more = dict(word.split("=", 1) for word in shlex.split(each.text))
        return dataclasses.replace(image, environment={**image.environment, **more})

    def _user(self, image: Image, each: Instruction) -> Image:
        return dataclasses.replace(image, user=each.text)

    def _cmd(self, image: Image, each: Instruction) -> Image:
        words = json.loads(each.text) if each.text.startswith("[") else ["/bin/sh", "-c", each.text]
        return dataclasses.replace(image, command=tuple(words))

    def _copy(self, image: Image, each: Instruction) -> Image:
        options, words = each.options()
        *sources, destination = words
        # A name that ends in /, or . of WORKDIR, is a directory.
        target = posixpath.join(image.directory, destination)
        if posixpath.basename(target) in (".", ".."):
            target += "/"
        for source in sources:
            if "from" in options:
                image = self._copy_from(image, each, options["from"], source, target)
                continue
            archive = self.context.archive(source, target)
            assert archive is not None  # check()
            is_directory = (self.context.directory / source.lstrip("/")).is_dir()
            directory = target if is_directory else posixpath.dirname(target)
            image = self._in_layer(image, each, archive[1], _extract(directory), archive[0])
        return image

    def _copy_from(self, image: Image, each: Instruction, stage: str, source: str, target: str) -> Image:
        found = container.read_files(self.store, self.images[stage], source)
        if found is None:
            raise each.error(f"{source} is not in the stage {stage}")
        is_directory, data = found
        if not is_directory and not target.endswith("/"):
            if posixpath.basename(source) != posixpath.basename(target):
                raise each.error("a file of a stage keeps its name here")
            target = posixpath.dirname(target)
        return self._in_layer(image, each, self.images[stage].digest, _extract(target), data)

    def _run(self, image: Image, each: Instruction) -> Image:
        resolver = Mount(Path("/etc/resolv.conf").resolve(), "/etc/resolv.conf")
        archives = Mount(self.store.archives, "/var/cache/apt/archives", read_only=False)
        proxies = {name: os.environ[name] for name in ("http_proxy", "https_proxy", "no_proxy") if name in os.environ}
        settings = Settings(mounts=(resolver, archives, *self.mounts(each.text)), environment=proxies)
        return self._in_layer(image, each, each.text, ["/bin/sh", "-c", each.text], settings=settings,
                              user=image.user, keep=each.text in self.kept)

    def _in_layer(self, image: Image, each: Instruction, content: str, command: Sequence[str], stdin: bytes = b"",
                  settings: Settings = Settings(), user: str = "0:0", keep: bool = False) -> Image:
        """Runs a command on a new layer, and returns the image with this layer."""
        digest = hashlib.sha256(f"{image.digest}\n{each.name} {each.text}\n{content}".encode()).hexdigest()
        layer = self.store.kept_layer(image, digest) if keep else self.store.new_layer()
        if not (keep and layer.exists()):
            upper = layer.with_name(layer.name + ".part")
            upper.mkdir()
            directory = image.directory if each.name == "RUN" else "/"
            with tempfile.TemporaryFile() as file:
                file.write(stdin)
                file.seek(0)
                with Container(self.store, image, command, settings, upper=upper, user=user, directory=directory,
                               stdin=file) as made:
                    code, printed = made.communicate(self.seconds)
            if code != 0:
                lines = printed.decode(errors="replace").strip().split("\n")
                raise each.error("\n".join([f"ended with {code}", *lines[-20:]]))
            if keep:
                self.store.keep(upper, layer)
            else:
                upper.rename(layer)
        return dataclasses.replace(image, layers=(*image.layers, layer), digest=digest)


def _extract(directory: str) -> list[str]:
    script = 'mkdir --parents "$1" && exec tar --extract --file=- --same-permissions --numeric-owner --directory="$1"'
    return ["/bin/sh", "-c", script, "sh", directory]
