#!/usr/bin/env python3
"""Makes docs/images/job_page.png: the page of a job with two servers and two trainers (`launch --page`), in Chromium.

    bazel build //pserver //trainer //transpiler:transpile //tools:launch //tools:generate_ctr
    build/peers/python/bin/python tests/bench/page_picture.py    # of `tools/test --peers`: it needs Pillow
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))

import chromium  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=str(ROOT / "bazel-bin/tools"), help="where launch and generate_ctr are")
    parser.add_argument("--output", default=str(ROOT / "docs/images/job_page.png"))
    parser.add_argument("--seconds", type=float, default=27, help="age of the job in the picture")
    options = parser.parse_args()
    program = chromium.find()
    if program is None:
        sys.exit("page_picture: no Chromium here (tools/setup --peers)")
    with tempfile.TemporaryDirectory(prefix="page_picture.") as name:
        directory = pathlib.Path(name)
        subprocess.run([f"{options.tools}/generate_ctr", f"--output={directory}", "--rows=1500000"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(directory / "log", "w+", encoding="utf-8") as log:
            settings = [f"data.train.files={directory}/train-*.tsv", f"data.eval.files={directory}/eval.tsv",
                        f"checkpoint.dir={directory}/checkpoints", "checkpoint.every_steps=2000",
                        "train.epochs=4", "train.eval_every_steps=1000"]
            job = subprocess.Popen(
                [f"{options.tools}/launch", "--job=examples/synthetic_ctr/job.textproto", "--servers=2", "--trainers=2",
                 "--page=0", f"--log_dir={directory / 'logs'}", *(f"--set={each}" for each in settings)],
                cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            try:
                time.sleep(2)
                found = re.search(r"page is (http://127\.0\.0\.1:\d+/)", (directory / "log").read_text())
                if found is None:
                    sys.exit("page_picture: launch names no page:\n" + (directory / "log").read_text())
                browser = chromium.Browser(program, directory / "profile")
                try:
                    browser.open(found.group(1), width=1400, height=1400)
                    browser.call("Emulation.setScrollbarsHidden", hidden=True)
                    time.sleep(options.seconds)
                    # As far as the parts below the curves go.
                    bottom = browser.evaluate("document.getElementById('time').getBoundingClientRect().bottom")
                    browser.screenshot(directory / "page.png")
                finally:
                    browser.close()
            finally:
                job.terminate()
                job.wait(60)
        pathlib.Path(options.output).parent.mkdir(parents=True, exist_ok=True)
        picture = Image.open(directory / "page.png").convert("RGB").crop((0, 0, 1400, round(bottom) + 12))
        picture.quantize(128, dither=Image.Dither.NONE).save(options.output, optimize=True)
    print(f"{options.output}: {pathlib.Path(options.output).stat().st_size} bytes")


if __name__ == "__main__":
    main()
