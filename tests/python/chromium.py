"""A headless Chromium that tests steer over a pipe, by the DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Optional

SECONDS = 30  # deadline of every answer and of every wait


def find() -> Optional[str]:
    """The browser's path, None where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One window. Not thread-safe; close() ends the browser."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def place() -> None:
            # --remote-debugging-pipe reads from 3 and writes to 4; the pipes may have these numbers already.
            ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, to_write)]
            for place, end in zip((3, 4), ends):
                os.dup2(end, place)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--disable-background-networking", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [program, *flags, "about:blank"],
            close_fds=False,
            preexec_fn=place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._bytes = b""
        self._id = 0
        self._session: Optional[str] = None
        self.errors: list[str] = []  # exceptions, errors on the console and violations of the policy since open()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def close(self) -> None:
        os.close(self._write)
        self._process.kill()
        self._process.wait()
        os.close(self._read)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._bytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError(f"chromium did not answer within {SECONDS} s")
            some = os.read(self._read, 1 << 20)
            if not some:
                raise RuntimeError("chromium has ended")
            self._bytes += some
        message, self._bytes = self._bytes.split(b"\0", 1)
        return json.loads(message)  # type: ignore[no-any-return]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        self._id += 1
        request: dict[str, Any] = {"id": self._id, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            message = self._message(deadline)
            if message.get("id") == self._id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]  # type: ignore[no-any-return]
            self._notice(message)

    def _notice(self, message: dict[str, Any]) -> None:
        method, what = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and what["type"] == "error":
            self.errors.append(" ".join(str(a.get("description", a.get("value"))) for a in what["args"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error" and what["entry"]["source"] != "network":
            self.errors.append(what["entry"]["text"])

    def open(self, url: str, width: int = 1400, height: int = 1000, dark: bool = False, scale: int = 1) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", mobile=False, **size)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.errors.clear()
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition: str) -> Any:
        """Waits until an expression is true, and returns its value. It may fail while the page is being loaded."""
        return self.evaluate(
            "new Promise((resolve, reject) => { const end = performance.now() + %d; const look = () => { let v; "
            "try { v = %s; } catch (error) { v = false; } if (v) resolve(v); "
            "else if (performance.now() > end) reject(new Error('never true: ' + %s)); else setTimeout(look, 20); };"
            " look(); })" % (1000 * SECONDS, condition, json.dumps(condition))
        )

    def text(self, selector: str) -> str:
        """The text of the first element that matches, whether it is seen or not; "" if there is none."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that match."""
        query = f"[...document.querySelectorAll({json.dumps(selector)})].map(x => x.textContent)"
        return [str(text) for text in self.evaluate(query)]

    def visible(self, selector: str) -> bool:
        return bool(self.evaluate(f"document.querySelector({json.dumps(selector)}).getClientRects().length > 0"))

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS.get(key, 0))

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


_KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27, "Tab": 9, "Enter": 13}
