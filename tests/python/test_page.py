"""The page of a running job (tools/page/page.html) in a browser, on made-up jobs of page_server.py."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import chromium
import page_server
import pytest
from page_server import PAGE, PageServer, PlayedJob, State

ROOT = Path(__file__).parents[2]


def colours(dark: bool) -> dict[str, str]:
    """The page's colours by name, without their dashes."""
    blocks = re.findall(r":root \{(.*?)\n *\}", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, str] = {}
    for block in blocks[: 2 if dark else 1]:
        found.update(re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", block))
    return found


def light(channel: str) -> float:
    value = int(channel, 16) / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def contrast(a: str, b: str) -> float:
    """As WCAG defines it, between 1 and 21."""
    lights = []
    for colour in (a, b):
        red, green, blue = (light(colour[i : i + 2]) for i in (1, 3, 5))
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out(dark: bool) -> None:
    of = colours(dark)
    for ground, name in itertools.product(
        ("ground", "surface", "sunken"), ("text", "dim", "accent", "good", "warn", "bad")
    ):
        assert contrast(of[name], of[ground]) >= 4.5, f"{name} on {ground}"
    assert contrast(of["text"], of["bad-ground"]) >= 4.5
    assert contrast(of["bad"], of["bad-ground"]) >= 4.5
    assert contrast(of["dim"], of["bad-ground"]) >= 4.5
    for part in range(5):
        assert contrast(of["on2" if part == 2 else "on"], of[f"p{part}"]) >= 4.5, f"text of part {part}"
    for line in range(6):
        assert contrast(of[f"s{line}"], of["surface"]) >= 3, f"line {line}"


def test_the_page_of_an_explanation_has_the_same_colours() -> None:
    def block(path: Path) -> str:
        text = path.read_text(encoding="utf-8")
        return text[text.index(":root {") : text.index("/* End of the colours. */")]

    assert block(PAGE) == block(ROOT / "transpiler" / "explain" / "explain.css")


def test_data_enter_the_document_as_text_only() -> None:
    source = PAGE.read_text(encoding="utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "Function("):
        assert way not in source
    assert not re.search(r"(src|href)=\"https?:", source), "the page is one file"


@pytest.fixture(name="window", scope="module")
def fixture_window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    program = chromium.find()
    if program is None:
        pytest.skip("the page is tested in chromium: install the package chromium")
    browser = chromium.Browser(program, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


Play = Callable[..., PageServer]


@pytest.fixture(name="play")
def fixture_play(window: chromium.Browser) -> Iterator[Play]:
    """Opens the page on a source of states and waits for its first figures; no script may have failed at the end."""
    servers: list[PageServer] = []

    def play(source: page_server.Source, **look: Any) -> PageServer:
        servers.append(PageServer(source))
        window.open(servers[-1].url, **look)
        window.wait(f"location.href === {json.dumps(servers[-1].url)} && document.getElementById('link').textContent")
        return servers[-1]

    yield play
    window.evaluate("0")  # What has been reported until now is read.
    errors = list(window.errors)
    window.call("Page.navigate", url="about:blank")
    for server in servers:
        server.close()
    assert errors == []


class Frozen:
    """Replies with one state, as a server does that has no news."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __call__(self, since: Optional[int]) -> State:
        return page_server.since_of(self.state, since)


def a_state(**changes: Any) -> State:
    """A small job with figures that can be looked up."""
    now = 1_780_000_100.0
    state: State = {
        "seq": 30,
        "now": now,
        "job": {
            "name": "ctr",
            "file": "ctr.textproto",
            "fingerprint": "be46d29cc6e1528f",
            "started": now - 3725,
            "state": "running",
            "fraction": 0.5,
            "step": 812,
            "examples": 415744,
            "examples_per_s": 91234.4,
            "loss": 0.43121,
            "auc": 0.77126,
            "epochs": 3,
            "max_steps": 0,
        },
        "processes": [
            {"name": "pserver 0", "role": "pserver", "id": 0, "host": "10.0.0.7", "pid": 71, "state": "running"},
            {"name": "trainer 0", "role": "trainer", "id": 0, "host": "10.0.0.8", "pid": 72, "state": "running"},
        ],
        "points": [
            {"seq": i, "t": now - 30 + i, "step": 100 * i, "loss": 0.7 - 0.01 * i, "auc": 0.6 + 0.01 * i}
            for i in (1, 2, 3)
        ],
        "evaluations": [{"seq": 4, "t": now - 2, "step": 200, "loss": 0.5024, "auc": 0.7469, "more": {"gauc": 0.71}}],
        "log": [{"seq": 5, "t": now, "process": "trainer 0", "severity": "", "text": "step=812"}],
    }
    state.update(changes)
    return state


def test_the_figures_of_a_job_are_shown(window: chromium.Browser, play: Play) -> None:
    play(Frozen(a_state()))
    assert window.text("h1") == "ctr"
    assert window.text("#state") == "running"
    assert window.evaluate("document.title") == "50 % ctr"
    names = ("elapsed", "progress", "step", "speed", "loss", "auc")
    tiles = {name: window.text(f"#figure-{name} .now") for name in names}
    assert tiles == {
        "elapsed": "1 h 02 min",
        "progress": "50.0 %",
        "step": "812",
        "speed": "91,234",
        "loss": "0.4312",
        "auc": "0.7713",
    }
    # Half of it took 3,725 s.
    assert window.text("#figure-progress .beside") == "about 1 h 02 min left"
    assert window.text("#figure-step .beside") == "epoch 2 of 3"
    assert window.text("#figure-auc .beside") == "evaluation 0.7469"
    assert window.texts(".chart .title") == ["Loss", "AUC", "gauc"]
    assert window.texts("#evaluations tbody td")[0] == "200"


def test_a_played_job_fills_every_section(window: chromium.Browser, play: Play) -> None:
    play(PlayedJob())
    assert window.texts("#sections a") == [
        *("Processes", "Curves", "Time", "Memory", "Tables", "Importance", "Report", "Evaluations", "Checkpoints"),
        *("Log", "Plan"),
    ]
    assert window.evaluate("[...document.querySelectorAll('section')].filter(x => x.hidden).length") == 0
    assert window.text("#tables tbody td") == "field_vectors"
    assert "server 1: 16.2 k parameters" in window.text("#plan pre")
    assert window.texts("#phase-table tbody td:first-child") == [" read", " pull", " compute", " push", " wait"]
    assert window.evaluate("document.querySelectorAll('#phases .stack span').length") == 10


def test_importance_and_report_of_a_checkpoint_are_shown(window: chromium.Browser, play: Play) -> None:
    play(PlayedJob())
    assert window.texts("#importance tbody td") == [
        *("cat.C6", "", "+0.01260 ± 0.00020", "+0.01850 ± 0.00030"),
        *("dense.I3", "", "-0.00040 ± 0.00010", "+0.00010 ± 0.00010"),
    ]
    assert window.text("#importance-note") == "shuffled 5 times, 32,735 examples, step 574"
    assert window.texts("#report tbody td") == [
        *("field_vectors", "20,000", "1.83 MiB", "0.4100", "1.3000", "0.0 %", "5.0 %", "62 %", "12"),
        "storage=FLOAT16 312.5 KiB, lifecycle.ttl_steps=1000 37.5 KiB",
    ]


def test_it_says_who_waits_for_whom(window: chromium.Browser, play: Play) -> None:
    state = a_state()
    state["processes"][0]["waits"] = [{"for": "trainer 0", "what": "push of step 812", "seconds": 3.24}]
    play(Frozen(state))
    assert window.texts("#waits li span") == ["pserver 0 waits for trainer 0:", "3.2 s", "push of step 812"]
    assert window.text("#waits-note") == "trainer 0 holds up 1 process."
    assert window.text("#servers .wait") == "waits 3.2 s for trainer 0"
    assert window.text("#figure-wait .now") == "3.2 s"
    window.wait("document.querySelector('#graph .edge[data-tone=warn]')")
    assert window.texts("#graph svg text") == ["3.2 s"]


def test_it_says_what_restarts_have_cost(window: chromium.Browser, play: Play) -> None:
    state = a_state()
    play(Frozen(state))
    assert window.texts("#figure-restarts dd") == []
    state["job"].update(restarts=2, lost_seconds=7.4, repeated_steps=34)
    play(Frozen(state))
    assert window.texts("#figure-restarts dd") == ["2", "7 s lost, 34 steps done twice"]


def test_processes_that_are_gone_stand_out(window: chromium.Browser, play: Play) -> None:
    play(page_server.SCENES["lost"]())
    assert window.texts("#trainers .name span:last-child") == ["running", "lost"]
    assert window.texts("#servers .name span:last-child") == ["running", "restarting"]
    assert "restarted once" in window.texts("#servers .wait")[1]
    assert window.text("#outcome strong") == "trainer 1 is lost"
    assert window.evaluate("document.getElementById('outcome').dataset.tone") == "bad"


def test_a_failed_job_names_the_cause_and_what_the_code_means(window: chromium.Browser, play: Play) -> None:
    play(page_server.SCENES["failed"]())
    assert window.text("#state") == "failed, exit code 137"
    assert window.text("#outcome strong") == "The job has failed: exit code 137, killed by signal 9, SIGKILL"
    assert window.text("#outcome p") == "trainer 1 was killed by signal 9 (Killed) – 3 processes followed"
    tones = "[...document.querySelectorAll('.node')].map(x => x.dataset.tone)"
    assert window.evaluate(tones) == ["warn", "warn", "warn", "bad"]
    assert window.evaluate("document.title") == "failed synthetic_ctr"


def test_processes_that_the_message_does_not_name_are_named(window: chromium.Browser, play: Play) -> None:
    state = a_state()
    state["job"].update(state="failed", exit_code=2)
    state["processes"][0].update(state="exited", exit_code=3)
    state["processes"][1].update(state="exited", exit_code=2)
    play(Frozen(state))
    said = window.text("#outcome p")
    assert said.startswith("trainer 0 on 10.0.0.8 ended with 2 (bad input:") and said.endswith("; 1 process followed")


@pytest.mark.parametrize(
    "code, meaning", [(1, "an error"), (2, "bad input"), (3, "a peer is lost; run again with --resume"), (4, "damaged"),
                      (5, "stopped by a signal")]
)
def test_exit_codes_are_explained(window: chromium.Browser, play: Play, code: int, meaning: str) -> None:
    state = a_state()
    state["job"].update(state="failed", exit_code=code, message="the message")
    play(Frozen(state))
    assert meaning in window.text("#outcome strong")
    assert "the message" in window.text("#outcome p")


def test_a_job_that_is_done_stays_when_launch_has_ended(window: chromium.Browser, play: Play) -> None:
    server = play(page_server.SCENES["done"]())
    assert window.text("#state") == "done"
    assert window.text("#link") == "final state"
    assert window.text("#outcome strong") == "The job is done after 15 min 00 s"
    assert window.text("#figure-progress .now") == "100.0 %"
    server.source = lambda since: None
    window.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    window.wait("!document.getElementById('lost').hidden")
    assert "launch has ended" in window.text("#lost")
    assert not window.evaluate("document.body.classList.contains('stale')")


def test_a_stopped_job_is_neither_done_nor_failed(window: chromium.Browser, play: Play) -> None:
    play(page_server.SCENES["stopped"]())
    assert window.text("#state") == "stopped"
    assert window.text("#outcome strong").startswith("The job was stopped before it was complete, after ")
    assert window.text("#outcome p") == "Run again with --resume"
    assert window.evaluate("document.getElementById('outcome').dataset.tone") == "warn"
    tones = "[...document.querySelectorAll('.node')].map(x => x.dataset.tone)"
    assert set(window.evaluate(tones)) == {"warn"}
    assert window.text("#figure-progress .now") != "100.0 %"


def test_a_lost_connection_is_said_and_found_again(window: chromium.Browser, play: Play) -> None:
    job = PlayedJob()
    server = play(job)
    server.source = lambda since: None
    window.wait("!document.getElementById('lost').hidden")
    assert window.text("#lost strong").startswith("No connection to launch since ")
    assert window.text("#state") == "last seen running"
    assert window.evaluate("document.body.classList.contains('stale')")
    server.source = job
    window.wait("document.getElementById('lost').hidden")
    assert window.text("#state") == "running"


def test_a_reply_that_is_no_json_is_said(window: chromium.Browser, play: Play) -> None:
    server = play(PlayedJob())
    server.source = lambda since: b"<html>"
    window.wait("!document.getElementById('lost').hidden")
    assert "not JSON" in window.text("#lost p")


def test_it_asks_once_a_second_for_what_is_new(window: chromium.Browser, play: Play) -> None:
    job = PlayedJob()
    began = time.monotonic()
    server = play(job)
    lines = len(job.state["log"])
    window.wait(f"document.querySelectorAll('#lines > div').length > 0 && {lines} > 0")
    first = window.text("#lines > div:last-child .line")
    window.wait(f"document.querySelector('#lines > div:last-child .line').textContent !== {json.dumps(first)}")
    window.wait("document.getElementById('figure-step')")
    seconds = time.monotonic() - began
    assert server.asked[0] is None
    assert all(since is not None and since > 0 for since in server.asked[1:])
    assert 2 <= len(server.asked) <= seconds + 2
    shown = window.texts("#lines .line")
    steps = [line for line in shown if line.startswith("step=")]
    assert len(steps) == len(set(steps)), "no line is there twice"


def test_another_job_at_the_same_port_replaces_the_first(window: chromium.Browser, play: Play) -> None:
    first = a_state()
    server = play(Frozen(first))
    second = a_state(seq=7, log=[{"seq": 1, "process": "trainer 0", "text": "a new job"}], points=[])
    second["job"] = {"name": "other", "started": 1_780_000_099.0, "state": "running"}
    server.source = Frozen(second)
    window.wait("document.querySelector('h1').textContent === 'other'")
    assert window.texts("#lines .line") == ["a new job"]
    assert server.asked[-1] is None or server.asked[-2] is None


def test_hostile_text_is_shown_and_does_nothing(window: chromium.Browser, play: Play) -> None:
    play(page_server.HostileJob())
    window.wait("document.querySelector('#lines > div')")
    assert window.text("h1") == page_server.HOSTILE
    line = window.text("#lines .line")
    assert line == page_server.HOSTILE + " red \ufffdtxet&amp;</div></main>", "no escape sequence, no other direction"
    assert window.text("#plan pre").startswith("<script>")
    assert window.evaluate("document.querySelectorAll('img, body script').length") == 1, "the page's own script"
    assert window.evaluate("[...document.querySelectorAll('a')].every(a => /^(https?:|.*#)/.test(a.href))")
    assert window.evaluate("document.title").endswith(page_server.HOSTILE)
    assert "__proto__" in window.texts(".chart .title")
    assert window.evaluate("({}).loss === undefined && document.querySelectorAll('#curves .chart').length") == 7


@pytest.mark.parametrize("scene", ["empty", "broken", "young", "corner", "large"])
def test_any_field_may_be_missing_or_wrong(window: chromium.Browser, play: Play, scene: str) -> None:
    play(page_server.SCENES[scene]())
    assert window.text("#link") == "live"
    assert window.visible("#figures")


@pytest.mark.parametrize("missing", sorted(a_state()))
def test_each_part_is_optional(window: chromium.Browser, play: Play, missing: str) -> None:
    state = a_state()
    del state[missing]
    play(lambda since: state)
    assert window.text("#figure-step .now") == ("–" if missing == "job" else "812")
    # Without sequence numbers there is no ?since, and lists come whole each time.
    if missing == "seq":
        assert len(window.texts("#lines > div")) == 1


def test_lines_are_chosen_by_process_severity_and_text(window: chromium.Browser, play: Play) -> None:
    lines = [("trainer 0", "", "step=1"), ("trainer 1", "W", "slow disk"), ("pserver 0", "E", "no Space")]
    log = [{"seq": i, "process": p, "severity": s, "text": t} for i, (p, s, t) in enumerate(lines)]
    play(Frozen(a_state(log=log)))

    def shown_with(control: str, value: str) -> list[str]:
        window.evaluate(
            f"(c => {{ c.value = {json.dumps(value)}; c.dispatchEvent(new Event('input')); }})"
            f"(document.getElementById('log-{control}'))"
        )
        return window.texts("#lines .line")

    assert window.text("#log-note") == "1 warning, 1 error"
    assert shown_with("process", "trainer 1") == ["slow disk"]
    assert shown_with("process", "") == [text for _, _, text in lines]
    assert shown_with("severity", "WEF") == ["slow disk", "no Space"]
    assert shown_with("severity", "EF") == ["no Space"]
    assert shown_with("text", "space") == ["no Space"]
    assert shown_with("text", "nothing") == []


def test_following_ends_where_the_reader_scrolls_up(window: chromium.Browser, play: Play) -> None:
    play(PlayedJob())
    window.wait("document.querySelectorAll('#lines > div').length > 100")
    log = "document.getElementById('lines')"
    assert window.evaluate(f"{log}.scrollTop + {log}.clientHeight > {log}.scrollHeight - 24")
    window.evaluate(f"{log}.scrollTop = 0")
    window.wait("!document.getElementById('follow').checked")
    window.wait("/new line/.test(document.getElementById('unread').textContent)")
    assert window.evaluate(f"{log}.scrollTop") < 100
    window.evaluate("document.getElementById('follow').click()")
    window.wait(f"{log}.scrollTop + {log}.clientHeight > {log}.scrollHeight - 24")
    assert window.text("#unread") == ""


def test_the_log_and_the_curves_stay_bounded(window: chromium.Browser, play: Play) -> None:
    many = 9000
    log = [{"seq": i, "process": "trainer 0", "text": str(i)} for i in range(many)]
    points = [{"seq": i, "t": 1.78e9 + i, "step": i, "loss": (i * 37 % 101) / 101} for i in range(many)]
    points[4321]["loss"] = 9.0
    play(Frozen(a_state(seq=many, log=log, points=points, evaluations=[])))
    assert window.text("#lines > div:last-child .line") == str(many - 1)
    assert window.evaluate("document.querySelectorAll('#lines > div').length") == 600
    window.wait("document.querySelector('.plot path[d]')")
    drawn = window.evaluate("document.querySelector('.plot path[d]').getAttribute('d').match(/[ML]/g).length")
    assert 500 < drawn <= 1000
    # The one high point is not lost: something reaches the top of the plot.
    tops = window.evaluate("document.querySelector('.plot path[d]').getAttribute('d').match(/ [\\d.]+/g).map(Number)")
    assert sorted(tops)[0] < 20 < 100 < sorted(tops)[1]


def test_a_curve_is_read_by_pointer_and_keys(window: chromium.Browser, play: Play) -> None:
    play(Frozen(a_state()))
    window.wait("document.querySelector('.plot path[d]')")
    left, top = window.evaluate("(r => [r.left, r.top])(document.querySelector('.plot').getBoundingClientRect())")
    window.point(left + 60, top + 70)
    window.wait("document.querySelector('.chart .value').textContent === '0.6900'")
    assert window.text(".chart .note").startswith("step 100 · ")
    # Every chart shows the same moment.
    assert window.texts(".chart .value")[1] == "0.6100"
    window.point(2, 2)
    window.wait("document.querySelector('.chart .value').textContent === '0.6700'")
    window.evaluate("document.querySelector('.plot').focus()")
    window.press("ArrowLeft")
    window.press("ArrowLeft")
    window.wait("document.querySelector('.chart .note').textContent.startsWith('step 200')")
    window.press("Escape")
    window.wait("document.querySelector('.chart .note').textContent.startsWith('evaluation')")


def test_curves_by_time_show_the_same_points(window: chromium.Browser, play: Play) -> None:
    play(Frozen(a_state()))
    window.wait("document.querySelector('.plot path[d]')")
    window.evaluate("document.querySelector('#axis button:last-child').click()")
    assert window.evaluate("document.querySelector('#axis button:last-child').getAttribute('aria-pressed')") == "true"
    labels = window.texts(".plot text")
    assert any(re.fullmatch(r"1:01:\d\d", label) for label in labels), labels


def test_an_unchanged_state_changes_nothing_in_the_document(window: chromium.Browser, play: Play) -> None:
    server = play(Frozen(a_state()))
    window.wait("document.querySelector('.plot path[d]')")
    window.evaluate(
        "window.changes = []; new MutationObserver(all => changes.push(...all.filter(x => !x.target.closest?.('svg'))"
        ".map(x => x.target.outerHTML))).observe(document.body, {subtree: true, childList: true, characterData: true})"
    )
    asked = len(server.asked)
    seen = threading.Event()
    before = server.source

    def count(since: Optional[int]) -> Any:
        if len(server.asked) >= asked + 3:
            seen.set()
        return before(since)

    server.source = count
    assert seen.wait(chromium.SECONDS)
    assert window.evaluate("changes") == []


@pytest.mark.parametrize("width", [390, 768, 1400])
@pytest.mark.parametrize("scene", ["waiting", "hostile", "large"])
def test_it_fits_every_width(window: chromium.Browser, play: Play, width: int, scene: str) -> None:
    play(page_server.SCENES[scene](), width=width, height=900)
    assert window.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    cut = "[...document.querySelectorAll('.figures .now')].filter(x => x.scrollWidth > x.clientWidth).length"
    assert window.evaluate(cut) == 0, "a figure is cut"


def test_dark_and_light_follow_the_browser(window: chromium.Browser, play: Play) -> None:
    play(Frozen(a_state()), dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = window.evaluate(ground)
    play(Frozen(a_state()), dark=False)
    assert dark == "rgb(15, 19, 24)" and window.evaluate(ground) == "rgb(245, 246, 248)"


def test_every_control_has_a_name_and_a_focus(window: chromium.Browser, play: Play) -> None:
    play(PlayedJob())
    nameless = window.evaluate(
        "[...document.querySelectorAll('button, input, select, [tabindex]')].filter(x => !x.hidden && "
        "!(x.textContent.trim() || x.getAttribute('aria-label') || x.closest('label'))).map(x => x.outerHTML)"
    )
    assert nameless == []
    window.press("Tab")
    assert window.evaluate("document.activeElement.className") == "skip"
