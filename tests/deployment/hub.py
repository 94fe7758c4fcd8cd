"""Flower's Hub, played by a server of this process that answers as it does, and may answer falsely."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub(ThreadingHTTPServer):
    """Flower's Hub, with one app and what is said to be its signatures; None where it knows of no such thing."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.fab, self.signatures = b"", None
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        where = {"fab_url": f"{self.server.url}/app.fab", "verifications": self.server.signatures}
        self._answer(json.dumps(where).encode())

    def do_GET(self):
        self._answer(self.server.fab)

    def log_message(self, *_):
        """Nothing."""

    def _answer(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
