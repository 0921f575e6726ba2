"""A server over real HTTP that answers as a test says."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

KINDS = {"/events": "text/event-stream", "format=csv": "text/csv"}  # by a part of the path


@pytest.fixture
def server():
    """Answers with the next of `answers` (status, headers, text), the last one again; notes `calls`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            made.calls.append((self.command, self.path, dict(self.headers)))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, text = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            self.send_response(status)
            kind = next((kind for part, kind in KINDS.items() if part in self.path), "application/json")
            for name, value in ({"Content-Type": kind} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET  # noqa: N815 - the name of the library

        def log_message(self, *_):
            """Print nothing."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.calls, made.answers = [], []
    threading.Thread(target=made.serve_forever, args=(0.01,)).start()
    yield made
    made.shutdown()
    made.server_close()
