"""A real Chromium without a window, driven by its DevTools protocol over pipes; it is Debian's `chromium`."""

from __future__ import annotations

import base64
import json
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import needs
from tests.programs import Running

PATIENCE = 60.0
"""Seconds for an answer, and for a condition."""
_COMMAND = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-features=OptimizationHints,MediaRouter", "--remote-debugging-pipe"),
)
_HASTY = "{ const wait = setTimeout; window.setTimeout = (then, pause) => wait(then, pause / 10) }"


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Runs a browser while the block runs; skips where there is none."""
    program = needs.program("chromium")
    needs.require("fonts-dejavu-core")
    its_input, ours_out = os.pipe()
    ours_in, its_output = os.pipe()
    script = f'exec "$@" 3<&{its_input} 4>&{its_output}'  # the browser takes these two descriptors
    command = ["bash", "-c", script, "bash", program, *_COMMAND, f"--user-data-dir={profile}", "about:blank"]
    process = Running(command, pass_fds=(its_input, its_output), env={**os.environ, "HOME": str(profile)})
    os.close(its_input)
    os.close(its_output)
    browser = Browser(ours_in, ours_out, process)
    try:
        yield browser
    finally:
        process.kill()
        os.close(ours_in)
        os.close(ours_out)


class Browser:
    """The browser as a whole."""

    def __init__(self, reader: int, writer: int, process: Running) -> None:
        self._process = process
        self._reader, self._writer = reader, writer
        self._text = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        """Everything that was told and not asked for."""

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Returns the answer to a command."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._text:
            ready, _, _ = select.select([self._reader], [], [], PATIENCE)
            assert ready, f"the browser does not answer; it said:\n{self._process.said}"
            block = os.read(self._reader, 1 << 20)
            assert block, f"the browser has ended; it said:\n{self._process.said}"
            self._text += block
        line, _, self._text = self._text.partition(b"\0")
        return json.loads(line)

    @contextmanager
    def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True) -> Iterator[Tab]:
        """Opens a tab of its own, in which a page waits a tenth as long as for people."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.ask(f"{domain}.enable")
        tab.ask("Page.addScriptToEvaluateOnNewDocument", source=_HASTY)
        tab.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        tab.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.ask("Emulation.setEmulatedMedia", features=[scheme])
        tab.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        yield tab
        self.ask("Target.closeTarget", targetId=target)


class Tab:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **params)

    def permit(self, *permissions: str) -> None:
        self._browser.ask("Browser.grantPermissions", permissions=[*permissions])

    def resize(self, width: int, height: int) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, address: str) -> None:
        """Opens an address, and returns when the page has its content."""
        self.ask("Page.navigate", url=address)
        self.until(lambda: self.run("document.readyState") == "complete" and self.run("location.href") == address)

    def run(self, expression: str) -> Any:
        """Returns the value of an expression in the page; works where the page itself may run no scripts."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self, selector: str = "main") -> str:
        """Returns the text that is seen in an element, empty if there is none."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector: str) -> None:
        """Clicks with the mouse in the middle of an element."""
        x, y = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView();"
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def until(self, holds: Callable[[], Any]) -> Any:
        """Returns what the condition returns when it holds; fails if it does not for a long time."""
        ends = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert time.monotonic() < ends, self.text("body")
            select.select([], [], [], 0.05)
        return found

    def picture(self, path: Path) -> None:
        """Writes a picture of the whole page; docs/page.png is one."""
        width, height = self.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        self.resize(width, height)
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def requests(self) -> list[str]:
        """Returns every address that the tab has asked."""
        return [said["params"]["request"]["url"] for said in self._said("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """Returns what the browser complains of: errors of scripts, and what the policy of the page forbids."""
        entries = [said["params"]["entry"] for said in self._said("Log.entryAdded")]
        thrown = [str(said["params"]) for said in self._said("Runtime.exceptionThrown")]
        return [entry["text"] for entry in entries if entry["level"] == "error"] + thrown

    def _said(self, method: str) -> list[dict[str, Any]]:
        return [
            one for one in self._browser.events if one["method"] == method and one.get("sessionId") == self._session
        ]
