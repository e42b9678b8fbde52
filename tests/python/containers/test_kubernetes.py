"""examples/kubernetes: its schemas, what must agree in it, and the job that it describes, played by local processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="the tests of manifests need PyYAML: install python3-yaml")

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXAMPLE = ROOT / "examples/kubernetes"
sys.path.insert(0, str(ROOT / "tests/dev"))

import kubernetes_check as manifests  # noqa: E402
from kubernetes_play import Player  # noqa: E402

from weir import programs  # noqa: E402
from weir.errors import ProgramsMissingError  # noqa: E402

OBJECTS = manifests.build(EXAMPLE)
OTHERS = manifests.load(EXAMPLE / "volumes.yaml") + manifests.load(EXAMPLE / "data_pod.yaml")


def by_kind(objects, kind, component=None):
    return next(o for o in objects if o["kind"] == kind and component in
                (None, o["metadata"]["labels"].get("app.kubernetes.io/component")))


# The check.


def test_the_example_is_right():
    assert manifests.wrong_in(EXAMPLE) == []


def test_every_object_has_the_schema_of_its_kind():
    pytest.importorskip("kubernetes_validate", reason="schemas: install the Python package kubernetes-validate")
    assert manifests.wrong_by_schema(OBJECTS + OTHERS) == []


def test_a_field_that_no_schema_has_is_found():
    pytest.importorskip("kubernetes_validate", reason="schemas: install the Python package kubernetes-validate")
    job = dict(by_kind(OBJECTS, "Job"))
    job["spec"] = dict(job["spec"], completionmode="Indexed")
    wrong = manifests.wrong_by_schema([job], ["1.31"])
    assert len(wrong) == 1 and "completionmode" in wrong[0]


def test_kustomize_makes_the_same_objects():
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = subprocess.run(["kubectl", "kustomize", str(EXAMPLE)], stdout=subprocess.PIPE, text=True, check=True).stdout
    maps = "|".join(o["metadata"]["name"] for o in OBJECTS if o["kind"] == "ConfigMap")
    made = re.sub(rf"(name: (?:{maps}))-[a-z0-9]{{10}}$", r"\1", made, flags=re.M)

    def key(each):
        return each["kind"], each["metadata"]["name"]

    assert sorted(yaml.safe_load_all(made), key=key) == sorted(OBJECTS, key=key)


def test_what_the_reader_does_not_know_is_refused(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: []\nnamePrefix: my-\n")
    with pytest.raises(manifests.Unsupported, match="namePrefix"):
        manifests.build(tmp_path)


def test_pods_of_another_job_are_neither_selected_nor_let_in():
    policy = spec(OBJECTS, "NetworkPolicy")
    own = spec(OBJECTS, "Job")["template"]["metadata"]["labels"]
    other = dict(own, **{"app.kubernetes.io/instance": "another"})
    for selector in (policy["podSelector"], policy["ingress"][0]["from"][0]["podSelector"]):
        assert manifests.matches(selector["matchLabels"], own)
        assert not manifests.matches(selector["matchLabels"], other)


def spec(objects, kind, component=None):
    return by_kind(objects, kind, component)["spec"]


def container(objects, kind):
    return manifests.containers(by_kind(objects, kind))[0]


def cluster(objects):
    return next(o["data"] for o in objects if o["metadata"]["name"] == "weir-cluster")


def job_file(objects, old, new):
    data = next(o["data"] for o in objects if o["metadata"]["name"] == "weir-job")
    assert old in data["job.textproto"]
    data["job.textproto"] = data["job.textproto"].replace(old, new)


LIST = "PADDLE_PSERVERS_IP_PORT_LIST"
CHANGES = {
    "replicas is 3, distribute.servers of the job is 2": lambda o: spec(o, "StatefulSet").update(replicas=3),
    "completions is 4, distribute.trainers of the job is 2": lambda o: spec(o, "Job").update(completions=4),
    "parallelism is 1, completions is 2": lambda o: spec(o, "Job").update(parallelism=1),
    "replicas is 2, distribute.servers of the job is 3": lambda o: job_file(o, "servers: 2", "servers: 3"),
    "minAvailable of the trainers' budget is 2, expected 1":
        lambda o: spec(o, "PodDisruptionBudget", "trainer").update(minAvailable=2),
    "weir-trainer is told the servers weir-pserver-0.weir-pserver:6170; they are weir-pserver-0":
        lambda o: cluster(o).update({LIST: "weir-pserver-0.weir-pserver:6170"}),
    "weir-pserver is told the servers weir-pserver-0.weir-pserver:6171,":
        lambda o: cluster(o).update({LIST: cluster(o)[LIST].replace("6170", "6171")}),
    "StatefulSet weir-pserver selects the pods of []":
        lambda o: spec(o, "StatefulSet")["selector"].update(matchLabels={"app": "weir"}),
    "the Service of servers selects the pods of ['weir-pserver', 'weir-trainer']":
        lambda o: spec(o, "Service").update(selector={"app.kubernetes.io/name": "weir"}),
    "NetworkPolicy weir does not tell the pods of this job from those of another: it lacks the label app.kubernetes.io":
        lambda o: spec(o, "NetworkPolicy")["ingress"][0]["from"][0].update(
            podSelector={"matchLabels": {"app.kubernetes.io/name": "weir"}}),
    "Service weir-pserver does not tell the pods of this job from those of another":
        lambda o: spec(o, "Service")["selector"].pop("app.kubernetes.io/instance"),
    "serviceName of weir-pserver is weir, the Service is weir-pserver":
        lambda o: spec(o, "StatefulSet").update(serviceName="weir"),
    "containerPort is 6171, the port of the Service is 6170":
        lambda o: container(o, "StatefulSet")["ports"][0].update(containerPort=6171),
    "port of the readiness probe is 80": lambda o: container(o, "StatefulSet").update(
        readinessProbe={"tcpSocket": {"port": 80}}),
    "podFailurePolicy: Count at exit code 2 (BadInput), expected FailJob":
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"].pop(),
    "podFailurePolicy: FailJob at exit code 5, expected Ignore":
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"].__setitem__(
            slice(1, 3), [dict(spec(o, "Job")["podFailurePolicy"]["rules"][2], onExitCodes={
                "containerName": "trainer", "operator": "In", "values": [2, 4, 5]})]),
    "podFailurePolicy: Count at exit code 5, expected Ignore":
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"].pop(1),
    "podFailurePolicy: Count at exit code 75, expected Ignore":
        lambda o: container(o, "Job")["args"].append("--stop_code=75"),
    "podFailurePolicy: FailJob at exit code 3 (PeerLost), expected Count":
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"][2]["onExitCodes"].update(values=[2, 3, 4]),
    "podFailurePolicy: Count at exit code 137 of an evicted pod, expected Ignore":
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"].pop(0),
    "podFailurePolicy names the container main, the trainer's is trainer":
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"][1]["onExitCodes"].update(containerName="main"),
    "weir-trainer starts again after 12 s, expected more than two leases of 10 s":
        lambda o: job_file(o, "lease_s: 5", "lease_s: 10"),
    "--trainer_id of trainers is not $(JOB_COMPLETION_INDEX)":
        lambda o: container(o, "Job")["args"].__setitem__(1, "--trainer_id=0"),
    "a trainer of a job that is stopped ends with 0, as if the job were complete: --stop_code=0":
        lambda o: container(o, "Job")["args"].append("--stop_code=0"),
    "trainers are started again without --resume": lambda o: container(o, "Job")["args"].remove("--resume"),
    "no claim data in volumes.yaml": lambda o: manifests.pod_spec(by_kind(o, "Job"))["volumes"][1].update(
        persistentVolumeClaim={"claimName": "data"}),
    "checkpoint.dir /weir/saved is in no volume with a claim":
        lambda o: job_file(o, "../checkpoints", "../saved"),
    "weir-pserver: checkpoint.dir /tmp/checkpoints is in no volume with a claim":
        lambda o: container(o, "StatefulSet")["args"].append("--job_dir=/tmp/job"),
    "data.train /data/train-*.tsv is in no volume": lambda o: job_file(o, "../data/train", "/data/train"),
    "servers and trainers have different images": lambda o: container(o, "Job").update(image="weir:2"),
    "weir-trainer can write its root file system":
        lambda o: container(o, "Job")["securityContext"].update(readOnlyRootFilesystem=False),
    "weir-pserver uses ConfigMap weir-jobs, which nothing makes":
        lambda o: manifests.pod_spec(by_kind(o, "StatefulSet"))["volumes"][0].update(configMap={"name": "weir-jobs"}),
}


@pytest.mark.parametrize("message", CHANGES)
def test_what_does_not_agree_is_named(message):
    wrong = manifests.wrong_in(EXAMPLE, change=CHANGES[message])
    assert any(message in each for each in wrong), wrong


def test_exit_codes_are_those_of_the_programs():
    assert manifests.exit_codes() == {
        "Ok": 0, "Failure": 1, "BadInput": 2, "PeerLost": 3, "DataLoss": 4, "Stopped": 5}
    codes = dict(manifests.exit_codes(), BadInput=6)
    assert any("Count at exit code 6 (BadInput)" in each for each in manifests.wrong_in(EXAMPLE, codes=codes))


def test_another_code_for_a_stop_needs_its_rule():
    def change(objects):
        container(objects, "Job")["args"].append("--stop_code=75")
        spec(objects, "Job")["podFailurePolicy"]["rules"][1]["onExitCodes"].update(values=[75])

    assert manifests.wrong_in(EXAMPLE, change=change) == []


def test_the_job_file_is_read_as_protobuf_reads_it():
    job = manifests.read_job('a { b: 1 b: -2.5e3 } # c: 4\n a: { s: "x: {y}" } l: [1, 2] e { }')
    assert job == {"a": [{"b": ["1", "-2.5e3"]}, {"s": ["x: {y}"]}], "l": ["1", "2"], "e": [{}]}


def test_the_check_prints_what_is_wrong(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "copy")
    path = tmp_path / "copy/kustomization.yaml"
    path.write_text(path.read_text().replace("servers=2", "servers=3"))
    done = subprocess.run([sys.executable, str(ROOT / "tests/dev/kubernetes_check.py"), str(tmp_path / "copy")],
                          stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "replicas is 3, distribute.servers of the job is 2\n" in done.stdout


# The player. Steps: 40000 examples of 512, 10 times.

SETTINGS = ["train.epochs=10", "train.threads=1", "checkpoint.every_steps=50", "deadlines.lease_s=2"]
SECONDS = 120


@pytest.fixture(name="bin_dir", scope="module")
def fixture_bin_dir(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    for name in ("pserver", "trainer", "launch", "generate_ctr"):
        try:
            (directory / name).symlink_to(programs.find(name))
        except ProgramsMissingError as error:
            pytest.skip(str(error))
    return directory


@pytest.fixture(name="data", scope="module")
def fixture_data(bin_dir, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    subprocess.run([bin_dir / "generate_ctr", f"--output={directory}", "--rows=40000", "--eval_rows=4000", "--files=4"],
                   stdout=subprocess.DEVNULL, check=True)
    return directory


@pytest.fixture(name="play")
def fixture_play(bin_dir, data, tmp_path):
    """Makes a player of the example."""
    claims = {"weir-data": data, "weir-checkpoints": tmp_path / "checkpoints"}
    claims["weir-checkpoints"].mkdir()
    players = []

    def make(*, settings=(), delay_s=0.0, objects=OBJECTS) -> Player:
        players.append(Player(objects, tmp_path / "pods", bin_dir=bin_dir, claims=claims,
                              environment={"START_DELAY_S": str(delay_s)},
                              arguments=[f"--set={each}" for each in [*SETTINGS, *settings]]))
        return players[-1]

    yield make
    for each in players:
        each.close()


@pytest.fixture(name="launched", scope="module")
def fixture_launched(bin_dir, data, tmp_path_factory) -> str:
    """The figures of the same job under launch."""
    root = tmp_path_factory.mktemp("launched")
    (root / "job").mkdir()
    shutil.copy(EXAMPLE / "job.textproto", root / "job")
    (root / "data").symlink_to(data)
    done = subprocess.run(
        [os.path.realpath(bin_dir / "launch"), "--job=job/job.textproto", f"--bin_dir={bin_dir}",
         *(f"--set={each}" for each in SETTINGS)],
        cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return figures(done.stdout)


def figures(text: str) -> str:
    """Returns step, loss and AUC of the last line; the other figures count what a run did since its resume."""
    line = text.strip().splitlines()[-1]
    match = re.match(r"done (steps=\d+) .*( loss=\S+ auc=\S+)", line)
    assert match, line
    return match[1] + match[2]


def checkpoint_is_there(player):
    return lambda: any(player.claims["weir-checkpoints"].glob("step-*"))


def actions(player, name):
    return [each[1:] for each in player.events if each[0] == name and each[1] != "start"]


def same_figures(player, launched):
    return all(figures(player.log(player.pod(f"weir-trainer-{i}"))) == launched for i in range(2))


def test_the_manifests_train_as_launch_does(play, launched):
    player = play()
    player.play(deadline_s=SECONDS)
    assert player.status == "Complete", player.events
    assert same_figures(player, launched)
    assert [actions(player, f"weir-trainer-{i}") for i in range(2)] == [[(0, "Done")]] * 2


def test_a_killed_trainer_is_started_again_and_the_job_goes_on(play, launched):
    player = play(delay_s=5)
    player.play(checkpoint_is_there(player), SECONDS)
    player.kill("weir-trainer-1")
    player.play(deadline_s=SECONDS)
    assert player.status == "Complete", player.events
    assert actions(player, "weir-trainer-1") == [(137, "Count"), (0, "Done")]
    assert actions(player, "weir-trainer-0") == [(3, "Count"), (0, "Done")]
    assert [actions(player, f"weir-pserver-{i}")[0] for i in range(2)] == [(3, "Restart")] * 2
    assert same_figures(player, launched)


def test_a_killed_server_is_started_again_and_the_job_goes_on(play, launched):
    player = play(delay_s=5)
    player.play(checkpoint_is_there(player), SECONDS)
    player.kill("weir-pserver-1")
    player.play(deadline_s=SECONDS)
    assert player.status == "Complete", player.events
    assert actions(player, "weir-pserver-1")[0] == (137, "Restart")
    assert [actions(player, f"weir-trainer-{i}") for i in range(2)] == [[(3, "Count"), (0, "Done")]] * 2
    assert same_figures(player, launched)


@pytest.mark.parametrize("evicted", ["weir-trainer-1", "weir-pserver-0"])
def test_an_evicted_pod_stops_the_job_which_is_not_complete(play, launched, evicted):
    player = play(delay_s=2)
    player.play(checkpoint_is_there(player), SECONDS)
    player.evict(evicted)
    player.play(deadline_s=SECONDS)
    assert player.status == "Complete", player.events
    assert [actions(player, f"weir-trainer-{i}") for i in range(2)] == [[(5, "Ignore"), (0, "Done")]] * 2
    assert actions(player, "weir-pserver-1")[0] == (5, "Restart")
    assert all(pod.failures == 0 for pod in player.pods)
    assert same_figures(player, launched)


def test_bad_input_fails_the_job_at_once(play):
    player = play(settings=["train.epocs=1"])
    player.play(deadline_s=SECONDS)
    assert player.status == "Failed"
    assert re.fullmatch("PodFailurePolicy: weir-trainer-[01] ended with 2", player.reason)


def test_an_index_that_fails_too_often_fails_the_job(play):
    objects = manifests.build(EXAMPLE)
    by_kind(objects, "Job")["spec"]["backoffLimitPerIndex"] = 0
    player = play(objects=objects)
    player.play(checkpoint_is_there(player), SECONDS)
    player.kill("weir-trainer-0")
    player.play(deadline_s=SECONDS)
    assert (player.status, player.reason) == ("Failed", "weir-trainer-0 has failed 1 times")


# The script that starts programs in containers.


def start(tmp_path, script: str, **variables) -> subprocess.Popen:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return subprocess.Popen(["/bin/sh", EXAMPLE / "start", str(program), "a b", "c"], stdout=subprocess.PIPE, text=True,
                            env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **variables})


@pytest.mark.parametrize("script, code", [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", -9)])
def test_start_becomes_the_program(tmp_path, script, code):
    assert start(tmp_path, script).wait(SECONDS) == code


def test_start_hands_arguments_and_output_on(tmp_path):
    process = start(tmp_path, 'for each in "$@"; do echo "[$each]"; done')
    assert process.communicate(timeout=SECONDS)[0] == "[a b]\n[c]\n"


def test_start_ends_at_sigterm_while_it_waits(tmp_path):
    process = start(tmp_path, "exit 0", START_DELAY_S="60")
    # The shell has set its trap once `sleep` runs.
    while subprocess.run(["ps", "-o", "comm=", "--ppid", str(process.pid)], stdout=subprocess.PIPE,
                         check=False).stdout != b"sleep\n":
        assert process.poll() is None
    process.terminate()
    assert process.wait(SECONDS) == 5
