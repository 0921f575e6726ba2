"""Research environments for the demo (docs/environments.md): their namespace, rights, and configuration.

The image's server stands in for Jupyter: it answers each request with one page. The local nodes share this
machine's ports, so one environment can run at a time.
"""

import yaml

from local import manifests
from local.world import ROOT, World

PORT = 8888
FILES = ("namespace.yaml", "rights.yaml")
SERVER = f"""\
from http.server import BaseHTTPRequestHandler, HTTPServer

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"In a cluster, Jupyter is here.")

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", {PORT}), Page).serve_forever()
"""
CONFIG = {
    "environments": {
        "namespace": "environments",
        "images": {"jupyter": {"image": "python:3.11-slim", "command": ["python3", "-c", SERVER]}},
        "sizes": {"m": {"cpu": 4, "memory": "16Gi"}, "l": {"cpu": 8, "memory": "64Gi"}},
        "url": f"http://localhost:{PORT}/{{name}}/",
    }
}


def install(here: World) -> None:
    """Add environments to a world whose bot isn't running yet."""
    for file in FILES:
        for obj in manifests.read(ROOT / "deploy" / "environments" / file):
            here.store.create(obj)
    config = here.folder / "config.yaml"
    config.write_text(f"{config.read_text()}\n{yaml.safe_dump(CONFIG, sort_keys=False)}")
