"""A git host, from which the bot and Kaniko fetch over smart HTTP as from GitHub.

git itself answers (`git http-backend`, a CGI program); this only carries requests to it. Reading only.
"""

import asyncio
import base64
import gzip
import os
from pathlib import Path

from aiohttp import web

from local.serving import Server, listen

# A commit can be fetched by its SHA although no branch ends there, and without its files: both as on GitHub.
# Repositories of other users are safe here: this server only reads.
CONFIG = {
    "uploadpack.allowReachableSHA1InWant": "true",
    "uploadpack.allowFilter": "true",
    "http.receivepack": "false",
    "safe.directory": "*",
}


async def serve(folder: Path) -> Server:
    """Serve every bare repository below `folder`: its `a/b.git` is at `{url}/a/b.git`.

    A repository with a file `password` (`user:password`) requires it.
    """

    async def answer(request: web.Request) -> web.Response:
        if not _may(request, folder):
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        return await _ask_git(_environment(folder, request, len(body)), body)

    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", answer)
    return await listen(app)


def _may(request: web.Request, folder: Path) -> bool:
    password = folder / f"{request.path.partition('.git')[0].strip('/')}.git" / "password"
    credentials = request.headers.get("Authorization", "").removeprefix("Basic ")
    return not password.exists() or base64.b64decode(credentials).decode() == password.read_text()


def _environment(folder: Path, request: web.Request, length: int) -> dict[str, str]:
    config = {"GIT_CONFIG_COUNT": str(len(CONFIG))}
    for i, (key, value) in enumerate(CONFIG.items()):
        config |= {f"GIT_CONFIG_KEY_{i}": key, f"GIT_CONFIG_VALUE_{i}": value}
    return config | {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(folder),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "REQUEST_METHOD": request.method,
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query_string,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(length),
        "REMOTE_ADDR": "127.0.0.1",
    }


async def _ask_git(environment: dict[str, str], body: bytes) -> web.Response:
    pipe = asyncio.subprocess.PIPE
    git = await asyncio.create_subprocess_exec(
        "git", "http-backend", env=environment, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    head, _, content = (await git.communicate(body))[0].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
    status = int(headers.pop("Status", "200").split()[0])
    return web.Response(status=status, headers=headers, body=content)
