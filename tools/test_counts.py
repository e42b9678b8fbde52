"""Counts the test cases of Bazel and pytest runs and prints "N passed, N failed, N skipped" as its last line.

  test_counts.py --status=S [--no_skips] [--took=NAME=SECONDS]... EVENTS.json|RESULTS.xml...

EVENTS.json is what bazel writes with --build_event_json_file, RESULTS.xml what pytest writes with
--junitxml; S is 0 when every command succeeded. Exit status 1 when anything failed. With
WEIR_DATA_DIR set, a test case that was skipped for want of it counts as failed, with --no_skips each one that was
skipped, unless for something that "this machine has no". Before that line come, with --took, the times of the parts of
the run, the tests that took longest, and how many results came from a cache.
"""

import argparse
import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


_LONGEST = 10  # tests that the end names


class Times:
    """Times of tests, and what came from a cache."""

    def __init__(self):
        self.tests = []  # (seconds, name)
        self.ran = self.cached = 0

    def add_result(self, label, result):
        """Adds the event of a test's end."""
        if result.get("cachedLocally") or result.get("executionInfo", {}).get("cachedRemotely"):
            self.cached += 1
            return
        self.ran += 1
        self.tests.append((int(result.get("testAttemptDurationMillis", 0)) / 1000, label))

    def add_case(self, name, seconds):
        """Adds a test case of pytest."""
        self.tests.append((seconds, name))

    def lines(self, took):
        """What the end says."""
        if took:
            yield "took: " + ", ".join("%s %s s" % (name, seconds) for name, seconds in took)
        for seconds, name in sorted(self.tests, reverse=True)[:_LONGEST]:
            yield "longest: %5.1f s  %s" % (seconds, name)
        if self.ran + self.cached:
            yield "from a cache: the results of %d of %d tests of Bazel" % (self.cached, self.ran + self.cached)


def results(path, times):
    """Yields (label, status, path of test.xml) of every test, run or not even built; adds to times.

    Nothing for a file that bazel did not come to write. The tests of pytest are one.
    """
    if path.endswith(".xml"):
        yield "tests/python", "PASSED" if os.path.exists(path) else "NO RESULTS", path
        return
    tests = set()
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # bazel was killed while it wrote
                return
            kind, key = next(iter(event["id"].items()))
            if "testSize" in event.get("configured", {}):
                tests.add(key["label"])
            elif kind == "testResult" and "testResult" in event:
                outputs = event["testResult"].get("testActionOutput", [])
                uris = [o.get("uri", "") for o in outputs if o["name"] == "test.xml"]
                xml = urllib.parse.unquote(urllib.parse.urlparse(uris[0]).path) if uris else ""
                times.add_result(key["label"], event["testResult"])
                yield key["label"], event["testResult"]["status"], xml
            elif kind == "targetCompleted" and key["label"] in tests:
                if not event.get("completed", {}).get("success"):
                    yield key["label"], "FAILED TO BUILD", ""


def cases(xml):
    """Yields (name, outcome, message, seconds) of every test case; nothing for a file that is not whole."""
    try:
        root = ElementTree.parse(xml).getroot()
    except (OSError, ElementTree.ParseError):
        return
    for case in root.iter("testcase"):
        if case.get("status") == "notrun":
            continue
        name = "%s.%s" % (case.get("classname", ""), case.get("name"))
        seconds = float(case.get("time") or 0)
        bad = case.find("failure")
        if bad is None:
            bad = case.find("error")
        skip = case.find("skipped")
        if bad is not None:
            yield name, "failed", bad.get("message", ""), seconds
        elif skip is not None or case.get("result") == "skipped":
            yield name, "skipped", "" if skip is None else skip.get("message") or skip.text or "", seconds
        else:
            yield name, "passed", "", seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--status", type=int, required=True)
    parser.add_argument("--no_skips", action="store_true")
    parser.add_argument("--took", action="append", default=[])
    parser.add_argument("paths", nargs="*")
    args = parser.parse_args()
    need_data = bool(os.environ.get("WEIR_DATA_DIR"))
    times = Times()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in args.paths:
        for label, result, xml in results(path, times):
            failed_before = counts["failed"]
            for name, outcome, message, seconds in cases(xml):
                if label == "tests/python":
                    times.add_case(name, seconds)
                if outcome == "skipped" and need_data and "WEIR_DATA_DIR" in message:
                    outcome = "failed"
                    message = "skipped although WEIR_DATA_DIR is set"
                elif outcome == "skipped" and args.no_skips and "this machine has no" not in message:
                    outcome = "failed"
                    message = "skipped: " + message
                counts[outcome] += 1
                if outcome != "passed":
                    print("%s: %s %s: %s" % (outcome, label, name, " ".join(message.split())))
            # A program that died or ran out of time may leave no test case that says so.
            if result != "PASSED" and counts["failed"] == failed_before:
                counts["failed"] += 1
                print("failed: %s: %s" % (label, result))
    if args.status != 0 and counts["failed"] == 0:
        counts["failed"] += 1
        print("failed: the build, or what comes before it")
    for line in times.lines([each.rsplit("=", 1) for each in args.took]):
        print(line)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
