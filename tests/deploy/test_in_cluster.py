"""A pod finds its cluster by what a kubelet gives it: two variables, its account's token, the server's CA."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes.aio.config import incluster_config

from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from local import manifests
from local.kubernetes.apiserver.api import ApiServer, serve
from local.kubernetes.apiserver.store import Store
from tests.deploy.kustomize import DEPLOY

WORKER = "system:serviceaccount:sweepbot:sweepbot-work"


def certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that is its own CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, *plain))
    (folder / "ca.crt").write_bytes(made.public_bytes(encoding))
    return folder / "ca.crt"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    store = Store()
    for file in ("namespaces.yaml", "rights.yaml"):
        for obj in manifests.read(DEPLOY / "base" / file):
            store.create(obj)
    server = await serve(store)
    yield server
    await server.close()


@pytest.fixture
async def pod(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A folder of the account's files, and the API server behind TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate(tmp_path), tmp_path / "key.pem")
    plain = int(server.url.rpartition(":")[2])

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_behind = await asyncio.open_connection("127.0.0.1", plain)
        with suppress(OSError):
            await asyncio.gather(copy(reader, to_behind), copy(behind, writer))

    front = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=context)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(front.sockets[0].getsockname()[1]))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("first")
    server.tokens["first"] = WORKER
    yield tmp_path
    front.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while some := await reader.read(65536):
        writer.write(some)
        await writer.drain()
    writer.close()


async def test_worker_authenticates_with_its_service_account(server: ApiServer, pod: Path) -> None:
    cluster = await KubernetesClient.connect()
    try:
        assert await cluster.list("Job", "sweeps") == []
        with pytest.raises(ApiError, match=f'User "{WORKER}" cannot list resource "jobs"'):
            await cluster.list("Job", "default")
    finally:
        await cluster.close()


async def test_worker_reads_a_renewed_token(
    server: ApiServer, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet writes another token into the file long before the old one ends."""
    cluster = await KubernetesClient.connect()
    try:
        await cluster.list("Job", "sweeps")
        (pod / "token").write_text("second")
        server.tokens = {"second": WORKER}
        later = datetime.now() + timedelta(minutes=2)  # noqa: DTZ005 - as the client reads its clock
        clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda: later), timedelta=timedelta)
        monkeypatch.setattr(incluster_config, "datetime", clock)
        assert await cluster.list("Job", "sweeps") == []
    finally:
        await cluster.close()
