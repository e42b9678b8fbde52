"""Metrics of a training (--metrics_port) by Prometheus' own parser, and the example for Grafana that shows them."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

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


@pytest.fixture(name="url", scope="module")
def fixture_url(tmp_path_factory):
    """Where a training in one process serves its metrics, while it runs."""
    trainer = programs_with("trainer", "--metrics_port")
    directory = tmp_path_factory.mktemp("metrics")
    write_job(directory)
    command = [trainer, "--job=job.textproto", "--role=local", "--metrics_port=0", "--set", "train.epochs=1000000"]
    with open(directory / "log", "w+", encoding="utf-8") as log, subprocess.Popen(
            command, cwd=directory, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            yield url_in(directory / "log", process)
        finally:
            process.terminate()


def url_in(log: Path, process: subprocess.Popen) -> str:
    """Waits for the line of the log that names the port, and for the first step."""
    for _ in range(SECONDS * 10):
        text = log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", text)
        if found and "step=" in text:
            return found.group()
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"the trainer named no port and did no step:\n{log.read_text()}")


def test_prometheus_reads_the_metrics_of_a_training(url):
    parser = pytest.importorskip("prometheus_client.parser",
                                 reason="metrics are read by the Python package prometheus-client: install it")
    answer = urllib.request.urlopen(url + "/metrics", timeout=SECONDS)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = list(parser.text_string_to_metric_families(answer.read().decode()))
    names = [family.name for family in found]
    assert len(set(names)) == len(names)
    for family in found:
        assert family.documentation
        # The parser has counters without their ending.
        name = family.name + "_total" if family.type == "counter" else family.name
        assert TYPES.get(name) == family.type, f"{name} {family.type} is not in families.txt"
        labels = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(labels)) == len(labels)
        if family.type == "histogram":
            check_histogram(family)
    assert {"weir_step", "weir_loss", "weir_build_info", "weir_job_info", "process_open_fds"} <= set(names)


def check_histogram(family) -> None:
    """Buckets grow, and the last one has as many values as the histogram."""
    series: dict[tuple, dict[str, list[float]]] = {}
    for sample in family.samples:
        key = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        series.setdefault(key, {}).setdefault(sample.name[len(family.name):], []).append(sample.value)
    for each in series.values():
        assert each["_bucket"] == sorted(each["_bucket"])
        assert each["_bucket"][-1] == each["_count"][0]


def test_other_paths_are_not_found(url):
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(url + "/../../etc/passwd", timeout=SECONDS)
    assert raised.value.code == 404
