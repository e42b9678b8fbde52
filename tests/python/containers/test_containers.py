"""examples/docker: the commands of the Dockerfile are there, and what the compose file starts trains, as processes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="the tests of manifests need PyYAML: install python3-yaml")

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXAMPLE = ROOT / "examples/docker"
sys.path.insert(0, str(ROOT / "tests/dev"))

import dockerfile  # noqa: E402
import kubernetes_check as manifests  # noqa: E402
from kubernetes_play import free_ports  # noqa: E402

from weir import programs  # noqa: E402
from weir.errors import ProgramsMissingError  # noqa: E402

SECONDS = 120


def instructions() -> list[list[tuple[str, str]]]:
    """Returns the instructions of each stage: [[("FROM", "debian:bookworm AS build"), ...], ...]."""
    return [[("FROM", stage.start.text), *((each.name, each.text) for each in stage.instructions)]
            for stage in dockerfile.parse(EXAMPLE / "Dockerfile")]


BUILD, FINAL = instructions()


def values(stage, name):
    return [rest for each, rest in stage if each == name]


def commands(stage):
    return [shlex.split(each) for rest in values(stage, "RUN") for each in rest.split("&&")]


def test_both_stages_are_of_the_same_debian():
    assert values(BUILD, "FROM") == ["debian:bookworm AS build"]
    assert values(FINAL, "FROM") == ["debian:bookworm-slim"]
    assert values(FINAL, "COPY")[0].startswith("--from=build /opt/weir ")


@pytest.mark.parametrize("words", commands(BUILD) + commands(FINAL), ids=" ".join)
def test_a_command_of_the_dockerfile_is_there_with_its_options(words):
    program, options = words[0], [each.split("=")[0] for each in words[1:] if each.startswith("--")]
    if "/" in program:
        assert os.access(ROOT / program, os.X_OK)
        assert all(each in (ROOT / program).read_text() for each in options)
        return
    assert shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    explained = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert all(each in explained for each in options)


def test_what_the_dockerfile_copies_is_there():
    for each in values(BUILD, "COPY"):
        assert (ROOT / each.split()[0]).exists()
    # The tarball holds weir/bin.
    assert '-C "$stage" -cf - weir' in (ROOT / "tools/package").read_text()
    assert values(FINAL, "ENV")[0].startswith("PATH=/opt/weir/bin:")


def test_setup_runs_in_a_stage_that_has_nothing_else():
    script = (ROOT / "tools/setup").read_text()
    assert script.startswith("#!/usr/bin/env bash")
    # Only the script itself is copied before it runs.
    assert [name for name, _ in BUILD].index("RUN") == 3
    assert "$0" not in script and "source " not in script


def test_what_is_built_here_stays_out_of_the_image():
    ignored = set((EXAMPLE / "Dockerfile.dockerignore").read_text().split())
    in_git = {each.strip("/") for each in (ROOT / ".gitignore").read_text().split()}
    assert in_git - ignored - {"user.bazelrc", "*.pyc", "__pycache__", "checkpoints"} == set()


def test_the_user_and_the_directories_are_those_of_the_manifests():
    user = values(FINAL, "USER")[0]
    made = next(each for each in commands(FINAL) if each[0] == "install")
    for thing in filter(manifests.makes_pods, manifests.build(ROOT / "examples/kubernetes")):
        context = manifests.pod_spec(thing)["securityContext"]
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
        mounts = {each["mountPath"] for each in manifests.containers(thing)[0]["volumeMounts"]}
        assert mounts - {"/tmp"} <= set(made)
        assert manifests.containers(thing)[0]["image"] == COMPOSE["services"]["pserver-0"]["image"]


COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]


def test_the_compose_file_agrees_with_the_job():
    job = manifests.read_job((ROOT / "examples/kubernetes/job.textproto").read_text())
    for program, number in (("pserver", "servers"), ("trainer", "trainers")):
        names = [f"{program}-{i}" for i in range(int(manifests.field(job, f"distribute.{number}")))]
        assert [name for name in SERVICES if name.startswith(program)] == names
    servers = ",".join(f"{name}:6170" for name in SERVICES if name.startswith("pserver"))
    for name, service in SERVICES.items():
        program, index = name.split("-")
        flag = {"pserver": "server_id", "trainer": "trainer_id"}[program]
        assert service["command"][0] == program
        assert manifests.value_of(service["command"], flag) == index
        assert service["environment"]["PADDLE_PSERVERS_IP_PORT_LIST"] == servers


def test_the_compose_file_mounts_what_is_there():
    for service in SERVICES.values():
        assert (EXAMPLE / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).exists()
        sources = [each.split(":")[0] for each in service["volumes"]]
        assert (EXAMPLE / sources[0] / "job.textproto").exists()
        assert (EXAMPLE / sources[1]).parent.exists()
        assert sources[2] in COMPOSE["volumes"]


def test_what_the_compose_file_starts_trains(tmp_path):
    try:
        found = {name: str(programs.find(name)) for name in ("pserver", "trainer", "generate_ctr")}
    except ProgramsMissingError as error:
        pytest.skip(str(error))
    subprocess.run([found["generate_ctr"], f"--output={tmp_path}/data", "--rows=4000", "--eval_rows=500", "--files=2"],
                   stdout=subprocess.DEVNULL, check=True)
    (tmp_path / "job").mkdir()
    shutil.copy(ROOT / "examples/kubernetes/job.textproto", tmp_path / "job")
    ports = dict(zip([name for name in SERVICES if name.startswith("pserver")], free_ports(2)))

    def here(name, text):
        for server, port in ports.items():
            text = text.replace(f"{server}:6170", f"127.0.0.1:{port}")
        return text.replace("0.0.0.0:6170", f"127.0.0.1:{ports.get(name)}").replace("=/weir/", f"={tmp_path}/")

    started = {}
    try:
        for name, service in SERVICES.items():
            program, *arguments = service["command"]
            variables = {each: here(name, value) for each, value in service["environment"].items()}
            started[name] = subprocess.Popen([found[program], *(here(name, each) for each in arguments)],
                                             env={"PATH": os.environ["PATH"], **variables}, stdout=subprocess.PIPE,
                                             stderr=subprocess.DEVNULL, text=True)
        printed = {name: process.communicate(timeout=SECONDS)[0] for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
    assert {name: process.returncode for name, process in started.items()} == dict.fromkeys(SERVICES, 0)
    assert printed["trainer-0"].strip().split("\n")[-1].startswith("done steps=8 ")
    assert list((tmp_path / "checkpoints").glob("step-*"))
