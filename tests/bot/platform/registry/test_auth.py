"""Each cloud's own library logs the bot in, against the endpoints that the cloud gives a pod."""

import json
import ssl
import subprocess
import sys
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from bot.platform.registry import auth
from bot.platform.registry.auth import CloudLogin, RegistryError

SELF_SIGNED = [
    "openssl",
    "req",
    "-x509",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-days",
    "1",
    "-subj",
    "/CN=localhost",
]
ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
ECR_IPV6 = "123456789012.dkr-ecr.eu-west-1.on.aws"


@pytest.fixture
def pair(tmp_path):
    """Files with a key, and a certificate for localhost."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    options = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*SELF_SIGNED, *options], check=True, capture_output=True)
    return key, certificate


@pytest.fixture
def masked():
    """What the logins gave to the mask."""
    return []


@pytest.mark.parametrize("host", [ECR, ECR_IPV6])
async def test_aws_logs_in_by_the_role_of_the_service_account(toy, tmp_path, monkeypatch, masked, host):
    """As on EKS: the token of the ServiceAccount for a role, and the role for ECR's password."""
    (tmp_path / "token").write_text("service-account-token")
    ends = [datetime.now(UTC) + timedelta(hours=hours) for hours in (0, 12)]

    async def aws(request):
        form, region = await request.post(), request.headers.get("Authorization", "")
        if form.get("Action") == "AssumeRoleWithWebIdentity":
            assert form["WebIdentityToken"] == "service-account-token"
            assert form["RoleArn"] == "arn:aws:iam::123456789012:role/sweepbot"
            names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
            keys = "".join(f"<{name}>x</{name}>" for name in names)
            body = f"<Credentials>{keys}<Expiration>{ends[1].isoformat()}</Expiration></Credentials>"
            kind = "AssumeRoleWithWebIdentity"
            return web.Response(
                text=f"<{kind}Response><{kind}Result>{body}</{kind}Result></{kind}Response>",
                content_type="text/xml",
            )
        assert request.headers["X-Amz-Target"].endswith("GetAuthorizationToken")
        assert "/eu-west-1/ecr/aws4_request" in region
        token, end = b64encode(f"AWS:password-{len(ends)}".encode()).decode(), ends.pop(0)
        found = {"authorizationToken": token, "expiresAt": end.timestamp(), "proxyEndpoint": ECR}
        return web.json_response({"authorizationData": [found]}, content_type="application/x-amz-json-1.1")

    url = f"http://{await toy(aws)}"
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/sweepbot",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    login = CloudLogin("aws", host, masked.extend)
    assert await login() == ("AWS", "password-2")
    assert await login() == ("AWS", "password-1"), "the first one has ended"
    assert await login() == ("AWS", "password-1"), "this one is valid for 12 h"
    assert masked[::2] == ["password-2", "password-1"]
    assert masked[1] == b64encode(b"AWS:password-2").decode()


async def test_google_logs_in_by_the_metadata_server(toy, monkeypatch, tmp_path, masked):
    """As on GKE with Workload Identity."""

    async def metadata(request):
        flavor = {"Metadata-Flavor": "Google"}
        if request.path.endswith("/token"):
            return web.json_response({"access_token": "ya29", "expires_in": 3600}, headers=flavor)
        if request.path.endswith("/project-id"):
            return web.Response(text="lab", headers=flavor)
        return web.json_response({"email": "sweepbot@lab", "scopes": []}, headers=flavor)

    host = await toy(metadata)
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
        monkeypatch.setenv(name, host)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert await CloudLogin("google", "europe-docker.pkg.dev", masked.extend)() == (
        "oauth2accesstoken",
        "ya29",
    )


async def test_azure_exchanges_the_identity_for_the_registrys_token(pair, tmp_path, monkeypatch, masked):
    """As on AKS with Workload Identity; both endpoints are https."""
    key, certificate = pair
    (tmp_path / "token").write_text("service-account-token")

    async def azure(request):
        form = await request.post()
        if request.path == "/oauth2/exchange":
            assert (form["grant_type"], form["access_token"]) == ("access_token", "of-entra")
            assert form["service"] == request.host
            return web.json_response({"refresh_token": "of-the-registry"})
        assert request.path == "/tenant/oauth2/v2.0/token"
        assert (form["client_assertion"], form["scope"]) == (
            "service-account-token",
            auth.AZURE_AUDIENCE,
        )
        return web.json_response({"access_token": "of-entra", "expires_in": 3600, "token_type": "Bearer"})

    app = web.Application()
    app.router.add_post("/{path:.*}", azure)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    host = f"localhost:{runner.addresses[0][1]}"
    for name, value in {
        "AZURE_AUTHORITY_HOST": f"https://{host}",
        "AZURE_TENANT_ID": "tenant",
        "AZURE_CLIENT_ID": "client",
        "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
        "REQUESTS_CA_BUNDLE": str(certificate),
    }.items():
        monkeypatch.setenv(name, value)
    assert await CloudLogin("azure", host, masked.extend)() == (auth.AZURE_USER, "of-the-registry")
    await runner.cleanup()


async def test_a_cloud_that_refuses_is_an_error_with_its_words(toy, monkeypatch, masked):
    async def aws(_):
        return web.Response(
            status=400, text=json.dumps({"__type": "AccessDeniedException", "message": "no ecr for you"})
        )

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{await toy(aws)}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(RegistryError, match=rf"no login at {ECR} by REGISTRY_IDENTITY=aws: .*no ecr for you"):
        await CloudLogin("aws", ECR, masked.extend)()


async def test_a_library_that_is_not_installed_is_named(monkeypatch, masked):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(RegistryError, match=r'REGISTRY_IDENTITY=azure needs pip install "sweepbot\[azure\]"'):
        await CloudLogin("azure", "lab.azurecr.io", masked.extend)()


def test_no_cloud_library_is_imported_without_its_setting():
    """They take half a second and 30 MB."""
    there = "import sys, bot.client_setup; print({'boto3', 'azure.identity', 'google.auth'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
