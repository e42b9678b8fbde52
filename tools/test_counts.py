"""Counts the test cases of Bazel and pytest runs and prints "N passed, N failed, N skipped" as its last line.

  test_counts.py --status=S [--no_skips] EVENTS.json|RESULTS.xml...

EVENTS.json is what bazel writes with --build_event_json_file, RESULTS.xml what pytest writes with
--junitxml; S is 0 when every command succeeded. Exit status 1 when anything failed. With
WEIR_DATA_DIR set, a test case that was skipped for want of it counts as failed, with --no_skips each one that was
skipped, unless for something that "this machine has no".
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def results(path):
    """Yields (label, status, path of test.xml) of every test, run or not even built.

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
                yield key["label"], event["testResult"]["status"], xml
            elif kind == "targetCompleted" and key["label"] in tests:
                if not event.get("completed", {}).get("success"):
                    yield key["label"], "FAILED TO BUILD", ""


def cases(xml):
    """Yields (name, outcome, message) of every test case; nothing for a file that is not whole."""
    try:
        root = ElementTree.parse(xml).getroot()
    except (OSError, ElementTree.ParseError):
        return
    for case in root.iter("testcase"):
        if case.get("status") == "notrun":
            continue
        name = "%s.%s" % (case.get("classname", ""), case.get("name"))
        bad = case.find("failure")
        if bad is None:
            bad = case.find("error")
        skip = case.find("skipped")
        if bad is not None:
            yield name, "failed", bad.get("message", "")
        elif skip is not None or case.get("result") == "skipped":
            yield name, "skipped", "" if skip is None else skip.get("message") or skip.text or ""
        else:
            yield name, "passed", ""


def main():
    status = int(sys.argv[1].removeprefix("--status="))
    need_data = bool(os.environ.get("WEIR_DATA_DIR"))
    paths = sys.argv[2:]
    no_skips = paths[:1] == ["--no_skips"]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths[1:] if no_skips else paths:
        for label, result, xml in results(path):
            failed_before = counts["failed"]
            for name, outcome, message in cases(xml):
                if outcome == "skipped" and need_data and "WEIR_DATA_DIR" in message:
                    outcome = "failed"
                    message = "skipped although WEIR_DATA_DIR is set"
                elif outcome == "skipped" and no_skips and "this machine has no" not in message:
                    outcome = "failed"
                    message = "skipped: " + message
                counts[outcome] += 1
                if outcome != "passed":
                    print("%s: %s %s: %s" % (outcome, label, name, " ".join(message.split())))
            # A program that died or ran out of time may leave no test case that says so.
            if result != "PASSED" and counts["failed"] == failed_before:
                counts["failed"] += 1
                print("failed: %s: %s" % (label, result))
    if status != 0 and counts["failed"] == 0:
        counts["failed"] += 1
        print("failed: the build, or what comes before it")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
