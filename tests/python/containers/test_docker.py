"""examples/docker, its steps without Docker: the image from a bare Debian, and the job of the compose file in it.

Containers are namespaces and overlayfs (container.py), the bare Debian is debootstrap's. All is played but the compile:
`bazel` puts the programs that are built already into its place, unless WEIR_WHOLE_DOCKER=1 is set, with which all of
Weir is built in the first stage. WEIR_DOCKER_CACHE (default: ~/.cache/weir-docker, 2.3 GB) keeps Debian and what
tools/setup installs there; remove it to play these, too, again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

yaml = pytest.importorskip("yaml", reason="the tests of the compose file need PyYAML: install python3-yaml")

import compose  # noqa: E402
import container  # noqa: E402
import dockerfile  # noqa: E402
from container import Container, Image, Mount, Settings, Store  # noqa: E402

from weir import programs  # noqa: E402
from weir.errors import ProgramsMissingError  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXAMPLE = ROOT / "examples/docker"
WHOLE = os.environ.get("WEIR_WHOLE_DOCKER") == "1"
SECONDS = 120

# What `tools/package` and the README ask of it, with the programs in /mnt.
BAZEL = """#!/bin/sh
[ "$1" = build ] && shift || exit 2
for target; do
  package=${target#//} name=${target##*[:/]}
  package=${package%%:*}
  grep -q "name = \\"$name\\"" "$package/BUILD" || { echo "bazel: no target $target" >&2; exit 1; }
  mkdir -p "bazel-bin/$package" && cp "/mnt/$name" "bazel-bin/$package/" || exit 1
done
"""


# The readers of both files.


def parsed(tmp_path: Path, text: str) -> list[dockerfile.Stage]:
    (tmp_path / "Dockerfile").write_text(text)
    return dockerfile.parse(tmp_path / "Dockerfile")


@pytest.mark.parametrize("line, message", [
    ("HEALTHCHECK CMD true", "unknown instruction; known are FROM, "),
    ("run true", "unknown instruction"),
    ("COPY --chown=1:1 a b", "unknown option --chown"),
    ("RUN --mount=type=cache,target=/x true", "unknown option --mount"),
    ("COPY *.txt /", "sources without patterns"),
    ("COPY a b c", "a destination that ends in /"),
    ("ENV A=$B", "variables are not played"),
    ("ENV A B", "takes NAME=VALUE"),
    ("USER weir", "takes UID:GID"),
    ("WORKDIR", "is empty"),
    ("RUN cat <<EOF", "here-documents are not played"),
])
def test_what_the_player_does_not_know_is_refused_with_its_line(tmp_path, line, message):
    with pytest.raises(dockerfile.DockerfileError) as refused:
        parsed(tmp_path, f"FROM debian:bookworm\n# A comment.\nRUN true && \\\n    true\n{line}\n")
    assert str(refused.value).startswith(f"Dockerfile:5: {line}: ") and message in str(refused.value)


def test_the_lines_of_an_instruction_are_one_and_the_first_is_named(tmp_path):
    stage, = parsed(tmp_path, "\nFROM debian:bookworm AS a\nRUN one && \\\n# A comment.\n    two\nUSER 1:2\n")
    assert [(each.line, each.name, each.text) for each in stage.instructions] == [
        (3, "RUN", "one &&     two"), (6, "USER", "1:2")]
    assert (stage.base, stage.name) == ("debian:bookworm", "a")


@pytest.mark.parametrize("line, message", [
    ("COPY a/file missing /", "missing is not in the context"),
    ("COPY a/left_out /", "a/left_out is not in the context"),
    ("COPY ../file /", "../file is not in the context"),
    ("COPY --from=build /x /", "there is no earlier stage build"),
])
def test_a_copy_of_what_is_not_there_is_refused_with_its_line(tmp_path, line, message):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    (tmp_path / "a/left_out").touch()
    (tmp_path / "Dockerfile.dockerignore").write_text("**/left_out\n")
    stages = parsed(tmp_path, f"FROM debian:bookworm\n{line}\n")
    with pytest.raises(dockerfile.DockerfileError, match=rf"^Dockerfile:2: {re.escape(f'{line}: {message}')}$"):
        dockerfile.check(stages, dockerfile.Context.of(tmp_path, tmp_path / "Dockerfile"))


def test_the_context_is_what_dockerignore_leaves(tmp_path):
    for path in "kept", ".git/config", "bazel-bin/p", "a/bazel-x", "a/b/__pycache__/c.pyc", "a/data/x", "a/b/data/x":
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    ignore = dockerfile.ignored("# A comment.\n.git\nbazel-*\n**/__pycache__\n\n*/data/\n")
    assert dockerfile.Context(tmp_path, ignore).paths(".") == [
        "a", "a/b", "a/b/data", "a/b/data/x", "a/bazel-x", "kept"]
    with pytest.raises(dockerfile.DockerfileError, match=r"^\.dockerignore:2: !kept: exceptions"):
        dockerfile.ignored("a\n!kept\n")


@pytest.mark.parametrize("old, new, message", [
    ("    command: [pserver", "    healthcheck: {test: [CMD, 'true']}\n    command: [pserver",
     "services.pserver-0.healthcheck is not played"),
    ('restart: "no"', "restart: always", "services.pserver-0.restart is played as no only"),
    ("- checkpoints:/weir", "- models:/weir", "services.pserver-0.volumes: there is no volume models"),
    ("name: weir", "name: weir\nsecrets: {}", "secrets is not played"),
])
def test_what_of_a_compose_file_is_not_played_is_refused(tmp_path, old, new, message):
    text = (EXAMPLE / "compose.yaml").read_text()
    assert old in text
    (tmp_path / "compose.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(compose.ComposeError, match=f"^compose.yaml: {re.escape(message)}$"):
        compose.load(tmp_path / "compose.yaml")


# The image.


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """The layers of this run, with Debian there."""
    directory = Path(os.environ.get("WEIR_DOCKER_CACHE") or Path.home() / ".cache/weir-docker")
    for program, package in ("debootstrap", "debootstrap"), ("ip", "iproute2"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            pytest.skip(f"{package} is not installed: tools/setup --peers")
    try:
        made = Store(directory)
    except container.Unavailable as missing:
        pytest.skip(str(missing))
    with made:
        try:
            made.debian("bookworm", slim=True)
        except container.Unavailable as missing:
            pytest.skip(str(missing))
        yield made
        left = container.left_after(made, 10)
    assert left == [] and str(made.directory) not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture(scope="module")
def built(store) -> list[Mount]:
    """What puts programs that are built already in the place of a build in a container; nothing for a whole build."""
    if WHOLE:
        return []
    names = [re.split("[:/]", target)[-1] for target in
             re.findall(r"(?<=\s)//[\w/]+(?::\w+)?", (ROOT / "tools/package").read_text())]
    assert {"pserver", "trainer", "generate_ctr"} <= set(names)
    if "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
        pytest.skip("this machine has no Debian 12, for which programs of the image are built: set WEIR_WHOLE_DOCKER=1")
    directory = store.run / "built"
    directory.mkdir()
    for name in names:
        try:
            shutil.copy(programs.find(name), directory)
        except ProgramsMissingError as error:
            pytest.skip(str(error))
    bazel = store.run / "bazel"
    bazel.write_text(BAZEL)
    bazel.chmod(0o755)
    return [Mount(directory, "/mnt"), Mount(bazel, "/usr/bin/bazel")]


@pytest.fixture(scope="module")
def images(store, built) -> dict[str, Image]:
    """The images that the commands of the README build, by their tags."""
    player = dockerfile.Player(store, EXAMPLE / "Dockerfile", ROOT, kept=["tools/setup"],
                               mounts=lambda command: built if "tools/package" in command else [],
                               seconds=4 * 3600 if WHOLE else 1800)
    stages = player.play()
    found = {}
    for words in readme_commands("build"):
        options = dict(zip(words[0::2], words[1::2]))
        assert (options.pop("--file"), words[-1]) == ("examples/docker/Dockerfile", ".")
        found[options["--tag"]] = stages[options.get("--target", player.stages[-1].name)]
    assert set(found) == {"weir:1", "weir-build"}
    return found


def readme_commands(verb: str) -> list[list[str]]:
    """Returns the words behind `docker VERB` in the README."""
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    return [shlex.split(line)[2:] for line in text.split("\n") if line.startswith(f"    docker {verb} ")]


@pytest.fixture(scope="module")
def image(images) -> Image:
    return images["weir:1"]


def test_a_step_that_fails_is_named_with_its_line_and_what_it_printed(store, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /x\nRUN pwd && no_such_program\n")
    with pytest.raises(dockerfile.DockerfileError) as failed:
        dockerfile.Player(store, tmp_path / "Dockerfile", tmp_path).play()
    assert str(failed.value).startswith("Dockerfile:3: RUN pwd && no_such_program: ended with 127\n/x\n")
    (tmp_path / "Dockerfile").write_text("FROM debian:bookworm-slim AS a\nFROM a\nCOPY --from=a /none /x\n")
    with pytest.raises(dockerfile.DockerfileError, match="^Dockerfile:3: COPY .*: /none is not in the stage a$"):
        dockerfile.Player(store, tmp_path / "Dockerfile", tmp_path).play()


def test_steps_do_what_docker_does(store, tmp_path):
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/script").write_text("#!/bin/sh\n")
    (tmp_path / "tree/script").chmod(0o755)
    (tmp_path / "tree/below/link").symlink_to("../script")
    (tmp_path / "one").write_text("1")
    os.chown(tmp_path / "one", 1234, 1234)
    (tmp_path / "Dockerfile").write_text(
        "FROM debian:bookworm-slim AS first\nWORKDIR /w\nCOPY one renamed/two\nCOPY tree tree\nCOPY tree one many/\n"
        "ENV A=1 B='2 3'\nRUN echo \"$A $B\" > said && rm many/script\nUSER 7:8\nWORKDIR deep\n"
        "RUN id -u > /tmp/user && pwd >> /tmp/user\nCMD cat /w/said /tmp/user\n"
        "FROM first\nCOPY --from=first /w/tree /again\nCOPY --from=first /w/said /again/\nCMD [\"ls\", \"/again\"]\n")
    made = dockerfile.Player(store, tmp_path / "Dockerfile", tmp_path).play()
    assert container.run(store, made["first"]) == (0, "1 2 3\n7\n/w/deep\n")
    assert container.run(store, made["1"]) == (0, "below\nsaid\nscript\n")
    found = container.run(store, made["first"], "find", "/w", "-printf", "%P %M %U %l\n")[1].splitlines()
    assert sorted(found) == sorted([
        " drwxr-xr-x 0 ", "renamed drwxr-xr-x 0 ", "renamed/two -rw-r--r-- 0 ", "tree drwxr-xr-x 0 ",
        "tree/script -rwxr-xr-x 0 ", "tree/below drwxr-xr-x 0 ", "tree/below/link lrwxrwxrwx 0 ../script",
        "many drwxr-xr-x 0 ", "many/one -rw-r--r-- 0 ", "many/below drwxr-xr-x 0 ",
        "many/below/link lrwxrwxrwx 0 ../script", "said -rw-r--r-- 0 ", "deep drwxr-xr-x 0 "])


def test_no_process_is_left_of_a_test_that_is_killed(store):
    debian = store.debian("bookworm", slim=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        Container(store, debian, ["sh", "-c", "echo started; sleep 1000 & sleep 1000"], user="7:7", stdout=writing)
        signal.pause()
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.readline() == "started\n"
        assert container.processes_of(store) != []
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert said.read() == ""  # when the last process of the container has ended
    assert container.left_after(store, 10) == []


def test_the_command_of_the_image_explains_the_trainer(store, image):
    code, printed = container.run(store, image)
    assert code == 0 and printed.startswith("trainer --job=FILE ")


def test_a_process_is_user_10001_in_weir_and_finds_the_programs(store, image):
    code, printed = container.run(store, image, "sh", "-c", "id -u; id -g; id -un; pwd; command -v trainer; echo $PATH")
    assert (code, printed.splitlines()) == (0, [
        "10001", "10001", "weir", "/weir", "/opt/weir/bin/trainer",
        "/opt/weir/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])


def test_the_second_stage_adds_programs_their_user_and_directories_only(image):
    added = {str(path.relative_to(layer)) for layer in image.layers[1:] for path in layer.rglob("*")
             if path.is_symlink() or not path.is_dir()}
    accounts = {path for path in added if re.fullmatch(r"etc/(passwd|group|shadow|gshadow|subuid|subgid)-?", path)}
    rest = added - accounts - {"etc/.pwd.lock"}
    assert {path.split("/")[2] for path in rest if path.startswith("opt/weir/")} == {
        "LICENSE", "README", "THIRD_PARTY.md", "bin", "lib", "licenses"}
    assert [path for path in rest if not path.startswith("opt/weir/")] == []


def test_nothing_to_build_with_is_in_the_image(store, images):
    look = ["sh", "-c", "for i in bazel c++ cc clang g++ gcc git ld make patchelf protoc; do command -v $i; done; true"]
    assert container.run(store, images["weir:1"], *look) == (0, "")
    first = container.run(store, images["weir-build"], *look)[1].split()
    assert {Path(path).name for path in first} >= {"bazel", "clang", "g++", "git", "ld", "patchelf", "protoc"}


def names_in(store: Store, image: Image) -> list[str]:
    return container.run(store, image, "ls", "/opt/weir/bin")[1].split()


def test_every_program_has_its_libraries_and_runs(store, image):
    names = [name for name in names_in(store, image) if name != "slurm_job"]
    assert {"pserver", "trainer", "launch", "checkpoint"} <= set(names)
    for name in names:
        code, printed = container.run(store, image, "ldd", f"/opt/weir/bin/{name}")
        assert code == 0 and "not found" not in printed, f"{name}: {printed}"
        foreign = [line for line in printed.splitlines() if "=> " in line and "=> /opt/weir/" not in line
                   and not re.match(r"\s*lib(c|m|mvec|pthread|dl|rt|resolv|util|anl)\.so\.", line)]
        assert foreign == [], name
        code, printed = container.run(store, image, name, "--help")
        assert code == 0, f"{name} --help ended with {code}: {printed}"
        assert f"{name} " in printed
    code, printed = container.run(store, image, "doctor")
    assert code == 0, printed


def test_slurm_job_finds_bash_in_the_image(store, image):
    code, printed = container.run(store, image, "slurm_job", "job.textproto")
    assert code == 2 and printed.startswith("slurm_job: not in a job of Slurm: "), printed


# The job.


@pytest.fixture(scope="module")
def data(store, images, built) -> Path:
    """The data as the README has the first stage make it."""
    words, = readme_commands("run")
    assert [words[0], words[1], words[3]] == ["--rm", "--volume", "weir-build"]
    source, target = words[2].split(":")
    assert source == "$PWD/examples/synthetic_ctr/data"
    directory = store.run / "data"
    directory.mkdir()
    code, printed = container.run(store, images[words[3]], *words[4:], seconds=4 * 3600 if WHOLE else SECONDS,
                                  settings=Settings(mounts=(Mount(directory, target, read_only=False), *built)))
    assert code == 0, printed
    return directory


@pytest.fixture
def project(store, images, data) -> Iterator[compose.Project]:
    """The compose file in a copy of its surroundings."""
    directory = store.run / "project"
    for name in "docker", "kubernetes":
        shutil.copytree(EXAMPLE.parent / name, directory / "examples" / name)
    (directory / "examples/synthetic_ctr").mkdir()
    (directory / "examples/synthetic_ctr/data").symlink_to(data)
    made = compose.Project(store, directory / "examples/docker/compose.yaml", images, directory)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory)


def steps_of(project: compose.Project) -> list[int]:
    """Returns the steps that have a checkpoint in the volume."""
    return sorted(int(each.name.split("-")[1]) for each in project.volume("checkpoints").glob("step-*"))


def logs(project: compose.Project) -> str:
    return "\n".join(f"{name}:\n{project.log(name)}" for name in project.services)


def wait_until(condition: Callable[[], bool], project: compose.Project) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert project.ended() == [] and time.monotonic() < deadline, logs(project)
        time.sleep(0.01)


def trainers_miss_servers(project: compose.Project) -> bool:
    """Returns whether each trainer has looked for each server in vain.

    Before that it may not handle signals yet, and the kernel drops those of a process 1 that does not.
    """
    return all(project.has_missed(f"trainer-{i}", f"pserver-{j}") for i in range(2) for j in range(2))


def wait_for_a_checkpoint(project: compose.Project) -> None:
    wait_until(lambda: "checkpoint step=" in project.log("trainer-0"), project)


def test_a_service_can_write_to_the_volume_and_tmp_only(store, project):
    script = ("for i in / /weir /weir/job /weir/data /weir/checkpoints /tmp; do\n"
              "touch $i/x 2>/dev/null && echo $i; done\n"
              "grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs)' /proc/self/status; hostname; hostname -I; "
              "getent ahosts pserver-1 || echo unknown")
    code, printed = container.run(store, project.image("trainer-0"), "sh", "-c", script,
                                  settings=project.settings("trainer-0"))
    assert code == 0, printed
    assert printed.split() == ["/weir/checkpoints", "/tmp", "CapPrm:", "0" * 16, "CapEff:", "0" * 16, "CapBnd:",
                               "0" * 16, "NoNewPrivs:", "1", "trainer-0", "10.0.0.4", "unknown"]


def test_the_job_of_the_compose_file_trains_and_up_again_goes_on(project):
    # The servers come last: their names are not there yet when the trainers look for them.
    project.up("trainer-0", "trainer-1")
    wait_until(lambda: trainers_miss_servers(project), project)
    project.up("pserver-0", "pserver-1")
    assert project.wait(SECONDS) == dict.fromkeys(project.services, 0), logs(project)
    done = project.log("trainer-0").strip().split("\n")[-1]
    # The figures of examples/kubernetes/README.md and docs/gallery.md.
    assert done.startswith("done steps=586 ") and " auc=0.731" in done
    assert steps_of(project) == [200, 400, 586]
    volume = project.volume("checkpoints")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in [volume, *volume.rglob("*")]} == {(10001, 10001)}
    project.up()
    assert project.wait(SECONDS) == dict.fromkeys(project.services, 0), logs(project)
    again = project.log("trainer-0")
    assert "resumed from /weir/job/../checkpoints/step-000000000586" in again and "done steps=586 examples=0 " in again


def test_a_stop_before_the_trainers_have_joined_ends_all(project):
    project.up("trainer-0", "trainer-1")
    wait_until(lambda: trainers_miss_servers(project), project)
    assert project.stop() == {"trainer-0": 5, "trainer-1": 5}, logs(project)
    assert "was asked to stop while it waited for server 0 at pserver-0:6170" in project.log("trainer-0")
    project.up("pserver-0", "pserver-1")
    wait_until(lambda: "ready server=0 " in project.log("pserver-0"), project)
    wait_until(lambda: "ready server=1 " in project.log("pserver-1"), project)
    assert project.stop() == dict.fromkeys(project.services, 5), logs(project)
    assert steps_of(project) == []


def test_stop_leaves_a_checkpoint_and_a_killed_job_goes_on(project):
    job = project.directory / "examples/kubernetes/job.textproto"
    assert "epochs: 1 " in job.read_text()
    job.write_text(job.read_text().replace("epochs: 1 ", "epochs: 3 "))

    project.up()
    wait_for_a_checkpoint(project)
    assert project.stop() == dict.fromkeys(project.services, 5), logs(project)
    last = [project.log(name).strip().split("\n")[-1] for name in ("trainer-0", "trainer-1")]
    assert all(" stopped=1" in line for line in last), last
    stopped = steps_of(project)[-1]
    assert all(line.startswith(f"done steps={stopped} ") for line in last)

    project.up()
    wait_for_a_checkpoint(project)
    project.kill("trainer-1")
    assert project.wait(SECONDS) == {"pserver-0": 3, "pserver-1": 3, "trainer-0": 3, "trainer-1": 137}, logs(project)
    assert f"resumed from /weir/job/../checkpoints/step-{stopped:012d}" in project.log("trainer-0")
    assert "trainer 1" in project.log("trainer-0").strip().split("\n")[-1]
    killed = steps_of(project)[-1]
    assert killed > stopped

    project.up()
    assert project.wait(SECONDS) == dict.fromkeys(project.services, 0), logs(project)
    assert f"resumed from /weir/job/../checkpoints/step-{killed:012d}" in project.log("trainer-0")
    assert project.log("trainer-0").strip().split("\n")[-1].startswith("done steps=17")
