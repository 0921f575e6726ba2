"""Sessions with API servers: their proxy, and what a request costs."""

import asyncio
import shutil
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from aiohttp import web
from kubernetes.aio.config import incluster_config

from k8s.api.client import KubernetesClient
from k8s.api.errors import UnreachableError
from k8s.sessions import by_kubeconfig

FAR = "http://api.example:6443"  # an API server that only a proxy reaches


@pytest.fixture
def requests():
    return []


@pytest.fixture
async def proxy(toy, requests):
    async def answer(request):
        requests.append((request.raw_path, request.headers.get("Proxy-Authorization")))
        return web.json_response({"gitVersion": "v1.36.2"})

    return await toy(answer)


@pytest.fixture
async def version(tmp_path, monkeypatch):
    """`await version(server)`: what a client of that API server reads."""

    async def read(server, **cluster):
        file = tmp_path / "kubeconfig"
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": {"token": "local-admin"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(file))
        client = await KubernetesClient.connect()
        try:
            return await client.version()
        finally:
            await client.close()

    return read


@pytest.fixture(autouse=True)
def no_other_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_session_uses_the_proxy_of_the_environment(proxy, version, requests, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://ada:secret@{proxy}")
    assert await version(FAR) == "v1.36.2"
    assert requests == [(f"{FAR}/version", "Basic YWRhOnNlY3JldA==")]


@pytest.mark.parametrize("bypass", ["example,127.0.0.1", "{server}", "*", ".svc, 127.0.0.0/8"])
async def test_session_with_no_proxy_connects_directly(proxy, version, requests, monkeypatch, bypass):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", bypass.format(server=proxy))
    assert await version(f"http://{proxy}") == "v1.36.2"


async def test_session_with_an_ipv6_address_in_no_proxy_connects_directly(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "localhost,fd00::1")
    file = tmp_path / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://[fd00::1]:443"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "local-admin"}}],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(config))
    session = await by_kubeconfig(str(file))
    assert session.configuration.proxy is None
    await session.close()


async def test_session_prefers_the_proxy_of_the_kubeconfig(proxy, version, requests, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert await version(FAR, **{"proxy-url": f"http://{proxy}"}) == "v1.36.2"
    assert requests == [(f"{FAR}/version", None)]


async def test_request_uses_no_thread(proxy, version):
    class Threads(ThreadPoolExecutor):
        used = 0

        def submit(self, *args, **kwargs):
            self.used += 1
            return super().submit(*args, **kwargs)

    threads = Threads()
    asyncio.get_running_loop().set_default_executor(threads)
    assert await version(f"http://{proxy}") == "v1.36.2"
    assert threads.used == 0


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl isn't installed")
async def test_session_of_the_service_account_trusts_a_rotated_ca(tmp_path, monkeypatch):
    async def answer(request):
        return web.json_response({"gitVersion": "v1.36.2"}, headers={"Connection": "close"})

    def certify(name):
        key, cert = tmp_path / f"{name}.key", tmp_path / f"{name}.crt"
        subject = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
        subprocess.run([*new, "-keyout", key, "-out", cert], check=True, capture_output=True)
        return cert, key

    former, rotated = certify("former"), certify("rotated")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*former)
    app = web.Application()
    app.router.add_get("/version", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    (tmp_path / "token").write_text("local-admin")
    ca = tmp_path / "ca.crt"
    shutil.copy(former[0], ca)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(runner.addresses[0][1]))
    client = await KubernetesClient.connect()
    assert await client.version() == "v1.36.2"
    context.load_cert_chain(*rotated)
    shutil.copy(rotated[0], ca)
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        await client.version()
    assert await client.version() == "v1.36.2"
    await client.close()
    await runner.cleanup()
