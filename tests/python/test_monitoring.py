"""Metrics of a training (--metrics_port) as Prometheus reads them, and the example for Grafana that shows them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest

from watched_job import programs_with, write_job

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples/grafana"
# "weir_step gauge" in each line; tests/framework/watch/prometheus_text_test.cc compares it with what the code makes.
TYPES = dict(line.split() for line in
             (ROOT / "tests/framework/watch/testdata/families.txt").read_text().splitlines())
DASHBOARD = json.loads((EXAMPLE / "weir.json").read_text())
PANELS = DASHBOARD["panels"]
SECONDS = 60


def families_in(text: str) -> set[str]:
    """Families that a text or a query names; the samples of a histogram belong to its family."""
    names = set(re.findall(r"\b(?:weir|process)_[a-z_]+[a-z]\b", text))
    found = set()
    for name in names:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        found.add(base if TYPES.get(base) == "histogram" else name)
    return found


# The example.


def test_the_dashboard_has_the_form_that_grafana_expects():
    assert DASHBOARD["schemaVersion"] >= 38  # of Grafana 10
    assert DASHBOARD["title"] and DASHBOARD["uid"] and "id" not in DASHBOARD
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    for panel in PANELS:
        assert panel["title"] and panel["type"] in ("row", "timeseries", "table")
        for target in panel.get("targets", []):
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= set(variables) | {"__rate_interval"}
        references = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(references)) == len(references)
        assert references or panel["type"] == "row"


def test_panels_do_not_overlap():
    taken = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["w"] > 0 and at["h"] > 0 and at["x"] >= 0 and at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_names_metrics_that_exist():
    queries = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
    named = set().union(*map(families_in, queries))
    assert named and named <= set(TYPES)
    for query in queries:
        for name in re.findall(r"(?:rate|increase)\((\w+)", query):
            kind = TYPES.get(name) or TYPES[re.sub(r"_(bucket|sum|count)$", "", name)]
            assert kind in ("counter", "histogram"), f"{name} is a {kind}, in {query}"


def test_the_document_describes_exactly_the_metrics_that_exist():
    assert families_in((ROOT / "docs/monitoring.md").read_text()) == set(TYPES)


def test_prometheus_scrapes_the_ports_of_the_command_beside_it():
    yaml = pytest.importorskip("yaml", reason="the configuration is read with PyYAML: install python3-yaml")
    text = (EXAMPLE / "prometheus.yml").read_text()
    targets = yaml.safe_load(text)["scrape_configs"][0]["static_configs"][0]["targets"]
    command = re.search(r"--servers=(\d+) --trainers=(\d+) --metrics_port=(\d+)", text)
    assert command
    servers, trainers, port = map(int, command.groups())
    assert targets == [f"127.0.0.1:{port + i}" for i in range(servers + trainers)]


# A training.


class Run:
    """A training of two servers and two trainers that serve metrics, until close()."""

    names = ("pserver.0", "pserver.1", "trainer.0", "trainer.1")

    def __init__(self, directory: Path) -> None:
        launch = programs_with("launch", "--metrics_port")
        write_job(directory)
        self.port = free_ports(len(self.names))
        command = [launch, "--job=job.textproto", "--servers=2", "--trainers=2", f"--metrics_port={self.port}"]
        self._log = directory / "log"
        with open(self._log, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen([*command, "--set", "train.epochs=1000000"], cwd=directory, stdout=log,
                                             stderr=subprocess.STDOUT)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str) -> None:
        """Waits until the log has a line in which the pattern is found."""
        for _ in range(SECONDS * 10):
            if re.search(pattern, self.log(), re.M):
                return
            try:
                self._process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError(f"the training has no line {pattern!r}:\n{self.log()}")

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port + self.names.index(name)}"

    def text(self, name: str) -> str:
        answer = urllib.request.urlopen(self.url(name) + "/metrics", timeout=SECONDS)
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return answer.read().decode()


def free_ports(count: int) -> int:
    """Returns the first of some ports, one behind the other, that nobody has and the system gives to no connection."""
    for first in range(20000 + os.getpid() % 10000, 32000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no free ports")


@pytest.fixture(name="run", scope="module")
def fixture_run(tmp_path_factory) -> Iterator[Run]:
    """A training that runs, with an evaluation and progress lines behind it."""
    run = Run(tmp_path_factory.mktemp("metrics"))
    try:
        run.wait_for(r"^\[trainer\.0\] .*eval")
        run.wait_for(r"^\[trainer\.0\] .*examples_per_s=")
        yield run
    finally:
        run.close()


def test_each_process_prints_its_address(run):
    found = dict(re.findall(r"^\[(\w+\.\d)\] metrics (\S+)/metrics$", run.log(), re.M))
    assert found == {name: run.url(name) for name in Run.names}


@pytest.mark.parametrize("name", Run.names)
def test_prometheus_client_reads_the_metrics(run, name):
    parser = pytest.importorskip("prometheus_client.parser",
                                 reason="metrics are read by the Python package prometheus-client: install it")
    found = list(parser.text_string_to_metric_families(run.text(name)))
    names = [family.name for family in found]
    assert len(set(names)) == len(names)
    role, number = name.replace("pserver", "server").split(".")
    for family in found:
        assert family.documentation
        # The parser has counters without their ending.
        full = family.name + "_total" if family.type == "counter" else family.name
        assert TYPES.get(full) == family.type, f"{full} {family.type} is not in families.txt"
        labels = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(labels)) == len(labels)
        for sample in family.samples:
            assert [sample.labels[each] for each in ("role", "id", "job_name")] == [role, number, "watched"]
            assert "job" not in sample.labels and "instance" not in sample.labels  # Prometheus sets these
        if family.type == "histogram":
            check_histogram(family)
    always = {"weir_build_info", "weir_job_info", "weir_call_time_seconds", "process_open_fds"}
    own = {"trainer": {"weir_step", "weir_loss", "weir_steps"}, "server": {"weir_version", "weir_table_rows"}}[role]
    assert set(names) >= always | own


def check_histogram(family) -> None:
    """Buckets grow, and the last one has as many values as the histogram."""
    series: dict[tuple, dict[str, list[float]]] = {}
    for sample in family.samples:
        key = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        series.setdefault(key, {}).setdefault(sample.name[len(family.name):], []).append(sample.value)
    for each in series.values():
        assert each["_bucket"] == sorted(each["_bucket"])
        assert each["_bucket"][-1] == each["_count"][0]


@pytest.mark.parametrize("name", Run.names)
def test_promtool_finds_nothing_to_object_to(run, name):
    said = subprocess.run([peer("promtool"), "check", "metrics"], input=run.text(name), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    assert (said.stdout, said.returncode) == ("", 0)


def test_other_paths_are_not_found(run):
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(run.url("trainer.0") + "/../../etc/passwd", timeout=SECONDS)
    assert raised.value.code == 404


# Prometheus, with the configuration of the example.


def peer(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} here (apt-get install prometheus)")
    return path


def test_promtool_takes_the_configuration():
    said = subprocess.run([peer("promtool"), "check", "config", EXAMPLE / "prometheus.yml"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    assert said.returncode == 0, said.stdout


class Prometheus:
    """A server that scrapes a training each second."""

    def __init__(self, directory: Path, run: Run) -> None:
        text = (EXAMPLE / "prometheus.yml").read_text().replace("scrape_interval: 5s", "scrape_interval: 1s")
        for i in range(len(Run.names)):
            text = text.replace(f"127.0.0.1:{9600 + i}", f"127.0.0.1:{run.port + i}")
        (directory / "prometheus.yml").write_text(text)
        self._url = f"http://127.0.0.1:{free_ports(1)}"
        self._process = subprocess.Popen(
            [peer("prometheus"), f"--config.file={directory / 'prometheus.yml'}",
             f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={self._url[len('http://'):]}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)

    def ask(self, query: str) -> list[Any]:
        """Returns the series of a query; ValueError with what Prometheus says about a wrong one."""
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            return json.load(urllib.request.urlopen(url, timeout=SECONDS))["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code not in (400, 422):  # 503: it is starting
                raise
            raise ValueError(json.load(error)["error"]) from None

    def wait_for(self, query: str) -> list[Any]:
        """Returns the series of a query as soon as there are some."""
        for _ in range(SECONDS * 10):
            try:
                if found := self.ask(query):
                    return found
            except urllib.error.URLError:  # it is starting
                pass
            assert self._process.poll() is None, "prometheus has ended"
            time.sleep(0.1)
        raise AssertionError(f"Prometheus has nothing for {query}")


@pytest.fixture(name="prometheus", scope="module")
def fixture_prometheus(run, tmp_path_factory) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), run)
    try:
        server.wait_for('count(up{job="weir"} == 1) == 4')
        server.wait_for("count(rate(process_cpu_seconds_total[5s])) == 4")
        yield server
    finally:
        server.close()


def test_prometheus_scrapes_every_process_and_keeps_its_labels(prometheus):
    assert {(each["metric"]["role"], each["metric"]["id"]) for each in prometheus.ask("weir_job_info")} == {
        ("server", "0"), ("server", "1"), ("trainer", "0"), ("trainer", "1")}
    assert prometheus.ask('{exported_job!=""}') == []
    assert {each["metric"]["job"] for each in prometheus.ask("weir_build_info")} == {"weir"}


def test_prometheus_answers_every_query_of_the_dashboard(prometheus, run):
    exposed = {line.split()[2] for name in Run.names for line in run.text(name).splitlines() if line[:6] == "# TYPE"}
    silent = []
    for panel in PANELS:
        for target in panel.get("targets", []):
            query = target["expr"].replace('job=~"$job",instance=~"$instance"', 'job=~".*",instance=~".*"')
            found = prometheus.ask(query.replace("$__rate_interval", "5s"))
            if families_in(query) <= exposed and not found:
                silent.append(query)
    assert silent == []
