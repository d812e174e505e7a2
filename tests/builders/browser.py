# SPDX-License-Identifier: BSD-3-Clause
"""A real browser without a network: Chromium, driven through a pipe, in namespaces that end with it."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.requirements import require_browser, require_program, require_user_namespaces

SECONDS = 60.0  # for one answer; a busy machine needs seconds, a broken browser never answers
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the namespaces below are its box, and in them it is root
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-breakpad",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


class Browser:
    """One tab; `requests` and `complaints` are those of the page that was opened last."""

    def __init__(self, process: subprocess.Popen[bytes], orders: int, answers: int, log: Path) -> None:
        self._process, self._orders, self._answers, self._log = process, orders, answers, log
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []  # of the console, the page's scripts and the browser itself
        self._is_loaded = False
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def open(self, page: Path, *, width: int = 1400, height: int = 900, is_dark: bool = False) -> None:
        """Load a file in a window of this size, and wait until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.requests, self.complaints, self._is_loaded = [], [], False
        self.ask("Page.navigate", url=page.resolve().as_uri())
        end = time.monotonic() + SECONDS
        while not self._is_loaded:
            self._take_message(end)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def take_picture(self, path: Path, *, is_whole: bool = True) -> None:
        """A PNG of the page, or of what is in the window."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def print_page(self, path: Path) -> None:
        """The PDF that its print command makes."""
        path.write_bytes(base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """One call of the DevTools protocol."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._orders, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            answer = self._take_message(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _take_message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._answers, 1 << 20) if ready else b""
            if not piece:
                said = self._log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"the browser does not answer (it ended with {self._process.poll()}): {said}")
            self._rest += piece
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        self._note_event(message.get("method", ""), message.get("params", {}))
        return message

    def _note_event(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._is_loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialog: {parameters.get('message')}")


@contextlib.contextmanager
def start_browser() -> Iterator[Browser]:
    """A browser that has no network, keeps its files in a directory of its own, and is gone afterwards."""
    program = require_browser()
    if os.geteuid() != 0:
        require_user_namespaces()
    folder = Path(tempfile.mkdtemp(prefix="browser-"))  # short: a socket of its is in it
    far_orders, orders = os.pipe()
    answers, far_answers = os.pipe()
    # The browser wants the numbers 3 and 4; from 10 on they are not in each other's way.
    far = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (far_orders, far_answers)]
    os.close(far_orders)
    os.close(far_answers)
    script = f'exec "$@" 3<&{far[0]} 4>&{far[1]}'
    words = ["bash", "-c", script, "browser", program, *_OPTIONS, f"--user-data-dir={folder}/profile"]
    names = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_make_box(), *words],
            env=names,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=far,
            start_new_session=True,
        )
    for each in far:
        os.close(each)
    try:
        yield Browser(process, orders, answers, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
        os.close(orders)
        os.close(answers)
        shutil.rmtree(folder, ignore_errors=True)


def _make_box() -> list[str]:
    """Namespaces without a network, whose processes all end with the first; as another user than root, with a root."""
    names = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [require_program("unshare"), *([] if os.geteuid() == 0 else ["--map-root-user"]), *names, "--"]
