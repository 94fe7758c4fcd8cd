"""A headless Chromium, driven through its DevTools pipe: what a page looks like and complains of in a real browser."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATH = next(filter(None, map(shutil.which, NAMES)), None)
# A browser expects the two ends of its pipe at descriptors 3 and 4.
_LAUNCH = """
import os, sys
ends = [os.dup2(int(end), 100 + i) for i, end in enumerate(sys.argv[1:3])]
for i, end in enumerate(ends):
    os.dup2(end, 3 + i)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 180.0  # seconds to wait for the browser


class Page:
    """One tab. `complaints` holds whatever the console, the log or a failed request had to say."""

    def __init__(self, to, back):
        self._to, self._back, self._rest, self._number = to, back, b"", 0
        self.complaints, self.requests, self._loaded = [], [], set()
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = None
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Page.setLifecycleEventsEnabled", {"enabled": True})

    def open(self, url, *, width, height, mobile=False, scheme="light"):
        """Load the page in a window of this size, on a system with light or with dark colors."""
        colors = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", {"features": colors})
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile}
        self._call("Emulation.setDeviceMetricsOverride", size)
        self._load("about:blank")  # The page before has no more to say, and does not load itself again.
        self.complaints.clear()
        self.requests.clear()
        self._load(url)

    def evaluate(self, script):
        """The value of a script in the page. If the page reloads itself meanwhile, the script runs again."""
        deadline = time.monotonic() + _PATIENCE
        while (done := self._answer("Runtime.evaluate", {"expression": script, "returnByValue": True})) is None:
            assert time.monotonic() < deadline, "the page reloads without end"
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def type(self, text):
        """Type a text where the cursor is."""
        self._call("Input.insertText", {"text": text})

    def print_styles(self):
        """Apply the styles of print from now on."""
        self._call("Emulation.setEmulatedMedia", {"media": "print"})

    def pdf(self):
        """The page as it is printed on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True, "preferCSSPageSize": True}
        return base64.b64decode(self._call("Page.printToPDF", paper)["data"])

    def screenshot(self, clip=None):
        """The page as PNG: all of it, or a piece at x, y of so many pixels in width and height."""
        piece = {"clip": dict(zip(("x", "y", "width", "height", "scale"), (*clip, 1), strict=True))} if clip else {}
        return base64.b64decode(self._call("Page.captureScreenshot", {"captureBeyondViewport": True, **piece})["data"])

    def _load(self, url):
        """Load a page, and wait until it is there: what is heard of the loading of another one does not count."""
        loader = self._call("Page.navigate", {"url": url})["loaderId"]
        while loader not in self._loaded:
            self._hear(self._read())

    def _call(self, method, parameters=None):
        result = self._answer(method, parameters)
        assert result is not None, f"the page was left during {method}"
        return result

    def _answer(self, method, parameters=None):
        """What the browser answers, or None if the page was left or reloaded before it could."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if answer.get("error", {}).get("message") == "Inspected target navigated or closed":
                    return None
                assert "error" not in answer, answer
                return answer["result"]
            self._hear(answer)

    def _hear(self, event):
        method, what = event.get("method"), event.get("params", {})
        if method == "Page.lifecycleEvent" and what["name"] == "load":
            self._loaded.add(what["loaderId"])
        if method in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed"):
            self.complaints.append(what)
        if method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def _read(self):
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            assert time.monotonic() < deadline, "the browser does not answer"
            try:
                part = os.read(self._back, 2**20)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            assert part, "the browser has gone"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)


@contextlib.contextmanager
def page(profile):
    """A tab of a browser of its own, with this folder for its files."""
    theirs, to = os.pipe()
    back, answers = os.pipe()
    os.set_blocking(back, False)
    # Containers mostly run as root and with little shared memory.
    options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"
    command = [sys.executable, "-c", _LAUNCH, str(theirs), str(answers), PATH, *options.split()]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile)},
    )
    os.close(theirs)
    os.close(answers)
    try:
        yield Page(to, back)
    finally:
        process.terminate()
        process.wait(timeout=_PATIENCE)
        os.close(to)
        os.close(back)
