#!/usr/bin/env python3
"""Checks manifests of a job for Kubernetes: what a schema cannot see, and their schemas where that is possible.

    tests/dev/kubernetes_check.py [DIRECTORY]      default: examples/kubernetes

DIRECTORY holds kustomization.yaml, the manifests that it names, the job file, and volumes.yaml. Prints one line for
each thing that is wrong and ends with 1 if there are any. Needs PyYAML (Debian: python3-yaml). Checks the schemas too
if the Python package kubernetes-validate is installed.
"""

from __future__ import annotations

import copy
import pathlib
import posixpath
import re
import sys

try:
    import yaml
except ImportError:
    sys.exit("kubernetes_check.py: needs PyYAML: install python3-yaml")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Kubernetes versions of the schemas. podFailurePolicy is stable since the first.
VERSIONS = ("1.31", "1.37")
LOCAL = "config.kubernetes.io/local-config"
# Label with the name of the job.
INSTANCE = "app.kubernetes.io/instance"


class Unsupported(Exception):
    """The kustomization uses something that this program does not know."""


# Reading.


def load(path):
    """Returns the objects of a file."""
    with open(path, encoding="utf-8") as file:
        return [each for each in yaml.safe_load_all(file) if each is not None]


def _only(place, known, where):
    unknown = set(place) - set(known)
    if unknown:
        raise Unsupported(f"{where}: {', '.join(sorted(unknown))} is not known here")


def _config_map(directory, entry):
    _only(entry, ("name", "literals", "files", "options"), "configMapGenerator")
    data = dict(each.split("=", 1) for each in entry.get("literals", []))
    for each in entry.get("files", []):
        key, _, path = each.rpartition("=")
        data[key or posixpath.basename(path)] = (directory / path).read_text(encoding="utf-8")
    metadata = {"name": entry["name"]}
    if "options" in entry:
        metadata["annotations"] = dict(entry["options"]["annotations"])
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _at(thing, path):
    """Returns the place that holds the last part of a dotted path, and this part."""
    *parents, last = path.split(".")
    for each in parents:
        thing = thing[each]
    return thing, last


def _named(objects, select):
    return [o for o in objects if o["kind"] == select["kind"] and o["metadata"]["name"] == select["name"]]


def _replace(objects, replacement):
    _only(replacement, ("source", "targets"), "replacements")
    source = replacement["source"]
    holder, last = _at(_named(objects, source)[0], source["fieldPath"])
    for target in replacement["targets"]:
        for each in _named(objects, target["select"]):
            for path in target["fieldPaths"]:
                place, name = _at(each, path)
                place[name] = yaml.safe_load(holder[last])


def _selectors(thing):
    """Returns the selectors of pods in an object, and the labels of the pods that it makes."""
    spec = thing.get("spec", {})
    if thing["kind"] == "Service":
        return [spec["selector"]]
    found = [spec["selector"]["matchLabels"]] if "selector" in spec else []
    if "template" in spec:
        found.append(spec["template"]["metadata"]["labels"])
        found += [each["labelSelector"]["matchLabels"]
                  for each in spec["template"]["spec"].get("topologySpreadConstraints", [])]
    if thing["kind"] == "NetworkPolicy":
        found.append(spec["podSelector"]["matchLabels"])
        found += [source["podSelector"]["matchLabels"] for rule in spec["ingress"] for source in rule["from"]]
    return found


def _label(objects, labels):
    _only(labels, ("pairs", "includeSelectors"), "labels")
    for each in objects:
        for place in [each["metadata"].setdefault("labels", {})] + (
                _selectors(each) if labels.get("includeSelectors") else []):
            place.update(labels["pairs"])


def containers(thing):
    """Returns the containers of an object that makes pods."""
    return pod_spec(thing)["containers"]


def pod_spec(thing):
    return thing["spec"] if thing["kind"] == "Pod" else thing["spec"]["template"]["spec"]


def makes_pods(thing):
    return thing["kind"] in ("StatefulSet", "Job", "Pod")


def build(directory):
    """Returns the objects that `kubectl kustomize` makes, but for the hashes in names of ConfigMaps.

    Knows what examples/kubernetes uses, and refuses anything else.
    """
    directory = pathlib.Path(directory)
    settings = load(directory / "kustomization.yaml")[0]
    known = ("apiVersion", "kind", "resources", "images", "labels", "configMapGenerator", "replacements")
    _only(settings, known, "kustomization")
    objects = [each for path in settings["resources"] for each in load(directory / path)]
    objects += [_config_map(directory, each) for each in settings.get("configMapGenerator", [])]
    for each in settings.get("replacements", []):
        _replace(objects, each)
    for each in settings.get("labels", []):
        _label(objects, each)
    for image in settings.get("images", []):
        _only(image, ("name", "newName", "newTag"), "images")
        for each in filter(makes_pods, objects):
            for container in containers(each):
                if container["image"] == image["name"]:
                    container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    return [each for each in objects if LOCAL not in each["metadata"].get("annotations", {})]


_TOKEN = re.compile(r'\s+|#[^\n]*|(?P<word>[A-Za-z0-9_.+-]+)|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<sign>[{}:\[\],])')


def read_job(text):
    """Reads a job file: {"distribute": [{"servers": ["2"], ...}], ...}. Every field is a list of texts or messages."""
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"not protobuf text: {text[at:at + 20]!r}")
        if match.lastgroup:
            tokens.append(match.group())
        at = match.end()
    tokens.reverse()

    def message():
        fields = {}
        while tokens and tokens[-1] != "}":
            name = tokens.pop()
            if name == ",":
                continue
            if tokens[-1] == ":":
                tokens.pop()
            values = fields.setdefault(name, [])
            opening = tokens.pop()
            if opening == "{":
                values.append(message())
                tokens.pop()
            elif opening == "[":
                while (each := tokens.pop()) != "]":
                    values += [each.strip('"')] if each != "," else []
            else:
                values.append(opening.strip('"'))
        return fields

    return message()


def field(job, path, default=None):
    """Returns the last value of a field of the job: field(job, "distribute.servers")."""
    for each in path.split("."):
        if each not in job:
            return default
        job = job[each][-1]
    return job


def exit_codes(header=None):
    """Returns the codes of framework/base/exit_code.h: {"BadInput": 2, ...}."""
    text = (header or ROOT / "framework/base/exit_code.h").read_text(encoding="utf-8")
    return {name: int(code) for name, code in re.findall(r"^\s*kExit(\w+) = (\d+),", text, re.M)}


def failure_action(job, code, *, disrupted=False):
    """Returns what the Job's podFailurePolicy does with a pod that has failed: Ignore, FailJob, Count, ..."""
    for rule in job["spec"].get("podFailurePolicy", {}).get("rules", []):
        if "onExitCodes" in rule:
            listed = code in rule["onExitCodes"]["values"]
            matches = code != 0 and listed == (rule["onExitCodes"]["operator"] == "In")
        else:
            matches = disrupted and any(each["type"] == "DisruptionTarget" for each in rule["onPodConditions"])
        if matches:
            return rule["action"]
    return "Count"


# Checking.


def matches(selector, labels):
    return all(labels.get(name) == value for name, value in selector.items())


def value_of(arguments, flag):
    """Returns the value of --flag=value among arguments, or None."""
    for each in arguments:
        if each.startswith(f"--{flag}="):
            return each.split("=", 1)[1]
    return None


class Check:
    """The objects of one directory and what is wrong with them."""

    def __init__(self, objects, claims, codes):
        self.objects = objects
        self.claims = claims
        self.codes = codes
        self.wrong = []

    def expect(self, right, message):
        if not right:
            self.wrong.append(message)

    def the(self, kind, component):
        """Returns the object of a kind, of servers or trainers; None and a message if there is not exactly one."""
        def is_of(each):
            return each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component

        found = [o for o in self.objects if o["kind"] == kind and is_of(o)]
        self.expect(len(found) == 1, f"expected one {kind} of {component}, found {len(found)}")
        return found[0] if len(found) == 1 else None

    def run(self):
        self.servers, self.trainers = self.the("StatefulSet", "pserver"), self.the("Job", "trainer")
        self.service = self.the("Service", "pserver")
        self.budgets = {each: self.the("PodDisruptionBudget", each) for each in ("pserver", "trainer")}
        if self.wrong:
            return self.wrong
        self.job = self.job_of(self.trainers)
        for each in (self.names, self.labels, self.files, self.counts, self.ports, self.failures, self.security):
            each()
        return self.wrong

    # What a container is given.

    def variables(self, thing):
        """Returns the environment that ConfigMaps give to the container."""
        found = {}
        for each in containers(thing)[0].get("envFrom", []):
            found.update(self.config_map(each["configMapRef"]["name"], thing))
        found.update({e["name"]: e["value"] for e in containers(thing)[0].get("env", []) if "value" in e})
        return found

    def config_map(self, name, thing):
        for each in self.objects:
            if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name:
                return each["data"]
        self.expect(False, f"{thing['metadata']['name']} uses ConfigMap {name}, which nothing makes")
        return {}

    def mount_of(self, thing, path):
        """Returns the mount that holds a path of the container, and its volume; None if there is none."""
        volumes = {each["name"]: each for each in pod_spec(thing)["volumes"]}
        mounts = [m for m in containers(thing)[0]["volumeMounts"] if (path + "/").startswith(m["mountPath"] + "/")]
        if not mounts:
            return None, None
        mount = max(mounts, key=lambda m: len(m["mountPath"]))
        return mount, volumes.get(mount["name"])

    def job_of(self, thing):
        path = value_of(containers(thing)[0]["args"], "job")
        mount, volume = self.mount_of(thing, path or "")
        if not volume or "configMap" not in volume:
            self.expect(False, f"{thing['metadata']['name']}: --job={path} is in no ConfigMap that it mounts")
            return {}
        files = self.config_map(volume["configMap"]["name"], thing)
        name = posixpath.relpath(path, mount["mountPath"])
        self.expect(name in files, f"{thing['metadata']['name']}: no {name} in ConfigMap {volume['configMap']['name']}")
        return read_job(files.get(name, ""))

    # The checks.

    def names(self):
        seen = set()
        for each in self.objects:
            name = each["metadata"]["name"]
            key = (each["kind"], name)
            self.expect(key not in seen, f"{each['kind']} {name} is there twice")
            seen.add(key)
            self.expect("namespace" not in each["metadata"], f"{each['kind']} {name} names a namespace")
            # A pod's name is its host name: with a dash and its index it must be a DNS label of 63 characters.
            label = re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", name)
            self.expect(label, f"{each['kind']} {name}: the name is no DNS label")

    def labels(self):
        labels = {o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"] for o in
                  (self.servers, self.trainers)}

        def selects(what, selector, expected):
            found = sorted(name for name, each in labels.items() if matches(selector, each))
            self.expect(found == sorted(expected), f"{what} selects the pods of {found}, expected {sorted(expected)}")

        servers, trainers = self.servers["metadata"]["name"], self.trainers["metadata"]["name"]
        selects(f"StatefulSet {servers}", self.servers["spec"]["selector"]["matchLabels"], [servers])
        selects("the Service of servers", self.service["spec"]["selector"], [servers])
        for component, name in (("pserver", servers), ("trainer", trainers)):
            budget = self.budgets[component]
            selects(f"the disruption budget of {name}", budget["spec"]["selector"]["matchLabels"], [name])
        of_job = self.trainers["spec"]["template"]["metadata"]["labels"].get(INSTANCE)
        for each in self.objects:
            own = all(selector.get(INSTANCE) == of_job for selector in _selectors(each))
            self.expect(of_job and own, f"{each['kind']} {each['metadata']['name']} does not tell the pods of this job "
                                        f"from those of another: it lacks the label {INSTANCE}")
        for policy in (o for o in self.objects if o["kind"] == "NetworkPolicy"):
            selects(f"NetworkPolicy {policy['metadata']['name']}", policy["spec"]["podSelector"]["matchLabels"],
                    [servers, trainers])
            for source in policy["spec"]["ingress"][0]["from"]:
                selects(f"ingress of {policy['metadata']['name']}", source["podSelector"]["matchLabels"],
                        [servers, trainers])
        self.expect(self.servers["spec"]["serviceName"] == self.service["metadata"]["name"],
                    f"serviceName of {servers} is {self.servers['spec']['serviceName']}, the Service is "
                    f"{self.service['metadata']['name']}")
        self.expect(self.service["spec"].get("clusterIP") == "None", "the Service of servers is not headless")
        self.expect(self.service["spec"].get("publishNotReadyAddresses"), "names of servers wait for readiness")

    def counts(self):
        spec, servers = self.trainers["spec"], self.servers["spec"]["replicas"]
        completions = spec["completions"]
        for name, number, of_job in (("replicas", servers, "servers"), ("completions", completions, "trainers")):
            expected = field(self.job, f"distribute.{of_job}")
            self.expect(str(number) == expected, f"{name} is {number}, distribute.{of_job} of the job is {expected}")
        self.expect(spec["parallelism"] == completions,
                    f"parallelism is {spec['parallelism']}, completions is {completions}: all trainers must run")
        self.expect(spec.get("completionMode") == "Indexed", "the Job of trainers is not Indexed")
        kept = self.budgets["trainer"]["spec"].get("minAvailable")
        self.expect(kept == spec["completions"] - 1,
                    f"minAvailable of the trainers' budget is {kept}, expected {spec['completions'] - 1}")
        for thing in (self.servers, self.trainers):
            self.expect(self.listed(thing) == self.expected_list(),
                        f"{thing['metadata']['name']} is told the servers {','.join(self.listed(thing))}; they are "
                        f"{','.join(self.expected_list())}")
        args = containers(self.trainers)[0]["args"]
        self.expect(value_of(args, "trainer_id") == "$(JOB_COMPLETION_INDEX)",
                    "--trainer_id of trainers is not $(JOB_COMPLETION_INDEX)")
        self.expect("--resume" in args, "trainers are started again without --resume")
        self.expect(self.stop_code() != 0,
                    "a trainer of a job that is stopped ends with 0, as if the job were complete: --stop_code=0")

    def stop_code(self):
        """Returns the exit code of a trainer whose job was stopped before it was complete."""
        return int(value_of(containers(self.trainers)[0]["args"], "stop_code") or self.codes["Stopped"])

    def listed(self, thing):
        value = value_of(containers(thing)[0]["args"], "pservers")
        value = value or self.variables(thing).get("PADDLE_PSERVERS_IP_PORT_LIST", "")
        return value.split(",")

    def expected_list(self):
        name, service = self.servers["metadata"]["name"], self.service["metadata"]["name"]
        port = self.service["spec"]["ports"][0]["port"]
        return [f"{name}-{i}.{service}:{port}" for i in range(self.servers["spec"]["replicas"])]

    def ports(self):
        container = containers(self.servers)[0]
        opened = {each.get("name"): each["containerPort"] for each in container["ports"]}
        port = self.service["spec"]["ports"][0]

        def number(value):
            return opened.get(value, value)

        endpoint = value_of(container["args"], "current_endpoint") or ""
        for name, found in (("containerPort", container["ports"][0]["containerPort"]),
                            ("targetPort of the Service", number(port.get("targetPort", port["port"]))),
                            ("port of the readiness probe", number(container["readinessProbe"]["tcpSocket"]["port"])),
                            ("port of --current_endpoint", int(endpoint.rpartition(":")[2] or 0))):
            self.expect(found == port["port"], f"{name} is {found}, the port of the Service is {port['port']}")

    def failures(self):
        spec = self.trainers["spec"]
        name = containers(self.trainers)[0]["name"]
        for rule in spec["podFailurePolicy"]["rules"]:
            of = rule.get("onExitCodes", {}).get("containerName", name)
            self.expect(of == name, f"podFailurePolicy names the container {of}, the trainer's is {name}")
        self.expect(spec["template"]["spec"]["restartPolicy"] == "Never", "podFailurePolicy needs restartPolicy Never")
        # All others, as 128 + signal, count.
        expected = {"BadInput": "FailJob", "DataLoss": "FailJob", "PeerLost": "Count", "Failure": "Count"}
        unknown = sorted(set(self.codes) - set(expected) - {"Ok", "Stopped"})
        self.expect(not unknown, f"exit codes without a rule: {unknown}")
        for meaning, action in expected.items():
            found = failure_action(self.trainers, self.codes[meaning])
            self.expect(found == action, f"podFailurePolicy: {found} at exit code {self.codes[meaning]} ({meaning}), "
                                         f"expected {action}")
        # All trainers of the job are stopped, not only the one that was evicted.
        for code, disrupted, action in ((self.stop_code(), False, "Ignore"), (self.stop_code(), True, "Ignore"),
                                        (137, False, "Count"), (137, True, "Ignore")):
            found = failure_action(self.trainers, code, disrupted=disrupted)
            self.expect(found == action, f"podFailurePolicy: {found} at exit code {code}"
                                         f"{' of an evicted pod' if disrupted else ''}, expected {action}")
        self.expect(spec.get("maxFailedIndexes") == 0, "the Job goes on without a trainer: maxFailedIndexes is not 0")
        lease = float(field(self.job, "deadlines.lease_s", 10))
        for thing in (self.servers, self.trainers):
            delay = float(self.variables(thing).get("START_DELAY_S", 0))
            self.expect(delay > 2 * lease, f"{thing['metadata']['name']} starts again after {delay:g} s, expected more "
                                           f"than two leases of {lease:g} s")

    def files(self):
        for thing in (self.servers, self.trainers):
            name = thing["metadata"]["name"]
            self.expect(self.job_of(thing) == self.job, f"{name} has another job than the trainers")
            spec, container = pod_spec(thing), containers(thing)[0]
            script = container["command"][1]
            mount, volume = self.mount_of(thing, script)
            there = volume and posixpath.basename(script) in self.config_map(volume["configMap"]["name"], thing)
            self.expect(there, f"{name}: {script} is in no ConfigMap that it mounts")
            volumes = {each["name"] for each in spec["volumes"]}
            mounted = {each["name"] for each in container["volumeMounts"]}
            self.expect(volumes == mounted, f"{name} has volumes {sorted(volumes)} and mounts {sorted(mounted)}")
            for each in spec["volumes"]:
                claim = each.get("persistentVolumeClaim", {}).get("claimName")
                self.expect(claim is None or claim in self.claims, f"{name}: no claim {claim} in volumes.yaml")
                modes = self.claims.get(claim, {}).get("spec", {}).get("accessModes", ["ReadWriteMany"])
                self.expect(modes == ["ReadWriteMany"], f"{claim} is {modes}: pods of several nodes mount it")
            _, volume = self.mount_of(thing, "/tmp")
            self.expect(volume and "emptyDir" in volume, f"{name}: /tmp cannot be written")

        def held(thing, path, what, writable):
            arguments = containers(thing)[0]["args"]
            directory = value_of(arguments, "job_dir") or posixpath.dirname(value_of(arguments, "job"))
            path = posixpath.normpath(posixpath.join(directory, path))
            mount, volume = self.mount_of(thing, path)
            claim = (volume or {}).get("persistentVolumeClaim", {}).get("claimName")
            self.expect(claim, f"{thing['metadata']['name']}: {what} {path} is in no volume with a claim")
            self.expect(not claim or not writable or not mount.get("readOnly"), f"{what} {path} cannot be written")
            return claim

        checkpoints = field(self.job, "checkpoint.dir", "")
        claims = {held(each, checkpoints, "checkpoint.dir", True) for each in (self.servers, self.trainers)}
        self.expect(len(claims) == 1, f"checkpoint.dir is in different claims: {claims}")
        for part in ("train", "eval"):
            held(self.trainers, field(self.job, f"data.{part}.files", ""), f"data.{part}", False)

    def security(self):
        images = {containers(each)[0]["image"] for each in (self.servers, self.trainers)}
        self.expect(len(images) == 1, f"servers and trainers have different images: {sorted(images)}")
        for image in images:
            self.expect(":" in image and not image.endswith(":latest"), f"image {image} names no version")
        for thing in (self.servers, self.trainers):
            name, pod, container = thing["metadata"]["name"], pod_spec(thing), containers(thing)[0]
            self.expect(len(containers(thing)) == 1, f"{name} has several containers")
            self.expect(pod["securityContext"].get("runAsNonRoot"), f"{name} may run as root")
            self.expect(pod.get("automountServiceAccountToken") is False, f"{name} gets a service account's token")
            of = container["securityContext"]
            self.expect(of.get("readOnlyRootFilesystem"), f"{name} can write its root file system")
            self.expect(of.get("allowPrivilegeEscalation") is False, f"{name} may gain privileges")
            self.expect(of.get("capabilities", {}).get("drop") == ["ALL"], f"{name} keeps capabilities")
            self.expect(container["resources"]["limits"].get("cpu"),
                        f"{name} has no limit of cpu: it starts a thread for each of the node's processors")


def wrong_in(directory, *, codes=None, change=None):
    """Returns a message for each thing that is wrong. `change(objects)` alters the objects before (for tests)."""
    objects = build(directory)
    claims = {each["metadata"]["name"]: each for each in load(pathlib.Path(directory) / "volumes.yaml")}
    if change is not None:
        objects = copy.deepcopy(objects)
        change(objects)
    return Check(objects, claims, codes or exit_codes()).run()


def wrong_by_schema(objects, versions=VERSIONS):
    """Returns the message of each object that its schema refuses. ImportError without kubernetes-validate."""
    import kubernetes_validate

    wrong = []
    for version in versions:
        for each in objects:
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                wrong.append(f"{each['kind']} {each['metadata']['name']}: not of Kubernetes {version}: {error}")
    return wrong


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "examples/kubernetes")
    try:
        wrong = wrong_in(directory)
        others = [each for name in ("volumes.yaml", "data_pod.yaml") if (directory / name).exists()
                  for each in load(directory / name)]
        schemas = f"of {' and '.join(VERSIONS)}"
        try:
            wrong += wrong_by_schema(build(directory) + others)
        except ImportError:
            schemas = "not compared: install the Python package kubernetes-validate"
    except (OSError, Unsupported, ValueError, yaml.YAMLError) as error:
        sys.exit(f"kubernetes_check.py: {error}")
    for each in wrong:
        print(each)
    print(f"{len(wrong)} wrong; schemas {schemas}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
