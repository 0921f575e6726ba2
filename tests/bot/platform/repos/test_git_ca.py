"""A git host whose certificate is of a company's own CA."""

import ssl
import sys

import pytest
from aiohttp import web

from bot import __main__
from bot.core.errors import UserError
from bot.platform.repos.git import Git
from bot.platform.repos.git_commands import GitUnavailableError
from tests.deploy.test_in_cluster import certificate


async def test_git_trusts_the_ca_of_ssl_cert_file(tmp_path, monkeypatch):
    ca = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca, tmp_path / "key.pem")
    runner = web.AppRunner(web.Application())  # it has no repository
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/acme/digits.git"
    git = Git(tmp_path / "cache", {}, timeout=200, protocols="https")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(GitUnavailableError, match="certificate"):
        await git.check_access(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    with pytest.raises(UserError):
        await git.check_access(url)
    await runner.cleanup()


@pytest.mark.parametrize(("own", "used"), [("", "/ca.crt"), ("/own.crt", "/own.crt")])
def test_mlflows_client_trusts_the_ca_of_ssl_cert_file(own, used, monkeypatch, capsys):
    monkeypatch.setenv("SSL_CERT_FILE", "/ca.crt")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", own)
    if not own:
        monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.setattr(sys, "argv", ["sweepbot", "schema", "space"])
    assert __main__.main() == 0
    assert __main__.os.environ["REQUESTS_CA_BUNDLE"] == used
