"""The token is stored for its owner's eyes only, and sent only to the server that it is for."""

import pytest

from bot.core.errors import UserError
from bot.remote import credentials
from bot.remote.credentials import Credentials, current, store
from k8s.retry import Retry
from tests.cases import cases

TOKEN, OTHER = "swb_" + "a" * 43, "swb_" + "b" * 43
URL = "https://sweepbot.example.com"


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "sweepbot" / "credentials.json"
    monkeypatch.setattr(credentials, "FILE", path)
    return path


def test_stored_file_is_readable_only_by_its_owner(file):
    file.parent.mkdir()
    file.write_text("{}")
    file.chmod(0o644)
    store(Credentials(URL, TOKEN))
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    assert current({}) == Credentials(URL, TOKEN)
    assert TOKEN not in repr(current({}))


def test_environment_wins(file):
    store(Credentials(URL, TOKEN))
    assert current({"SWEEPBOT_TOKEN": OTHER}) == Credentials(URL, OTHER)
    assert current({"SWEEPBOT_URL": f"{URL}/"}) == Credentials(URL, TOKEN)
    both = {"SWEEPBOT_URL": "http://localhost:8090", "SWEEPBOT_TOKEN": OTHER}
    assert current(both) == Credentials("http://localhost:8090", OTHER)
    assert current({"SWEEPBOT_URL": f"{URL}\n", "SWEEPBOT_TOKEN": f"{OTHER}\n"}) == Credentials(URL, OTHER)


def test_stored_token_is_not_sent_to_another_url(file):
    store(Credentials(URL, TOKEN))
    with pytest.raises(UserError, match="Set SWEEPBOT_TOKEN, too"):
        current({"SWEEPBOT_URL": "https://elsewhere.example.com"})


def test_without_login_there_are_no_credentials(file):
    assert current({}) is None
    with pytest.raises(UserError, match="Set SWEEPBOT_URL, too"):
        current({"SWEEPBOT_TOKEN": TOKEN})


@pytest.mark.parametrize(
    "text", ["", "[]", '{"url": 5, "token": 5}', "{}", '{"url": "https://a.example", "token": "x"}']
)
def test_damaged_file_is_named_with_what_to_do(file, text):
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(UserError, match="sweepbot login URL"):
        current({})


@cases(
    "url",
    [
        *("", "sweepbot.example.com", "ftp://a.example", "https://", "https://a.example:port", "https://a b"),
        *("https://ada:secret@a.example", "https://a.example/?x=1", "https://a.example/#x", "http://[a"),
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url):
    with pytest.raises(UserError, match="The URL must be"):
        Credentials(url, TOKEN)


@pytest.mark.parametrize("token", ["", "xoxb-1", TOKEN[:-1], TOKEN + "\n", "swb_" + "é" * 43])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(UserError, match="/sweep token"):
        Credentials(URL, token)


JOB = {"ACTIONS_ID_TOKEN_REQUEST_URL": "", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-job"}


@pytest.fixture
def job(server):
    address = f"http://127.0.0.1:{server.server_port}/token?api-version=2.0"
    return JOB | {"ACTIONS_ID_TOKEN_REQUEST_URL": address, "SWEEPBOT_URL": URL}


def test_github_job_gets_tokens_for_this_url_alone_and_renews_them(server, job, file, monkeypatch):
    server.answers = [(200, {}, '{"value": "a.b.c"}'), (200, {}, '{"value": "d.e.f"}')]
    found = current(job)
    assert (found.url, [found.token, found.token]) == (URL, ["a.b.c"] * 2)
    [(_, path, headers)] = server.calls
    assert path == "/token?api-version=2.0&audience=https%3A%2F%2Fsweepbot.example.com"
    assert headers["Authorization"] == "Bearer of-the-job"
    monkeypatch.setattr("bot.remote.credentials.RENEWED", -1)
    assert found.token == "d.e.f"


def test_github_job_outlives_an_outage_of_github(server, job, file, monkeypatch):
    monkeypatch.setattr("bot.remote.credentials.RETRY", Retry(base=0, attempts=3))
    server.answers = [(503, {}, ""), (429, {}, ""), (200, {}, '{"value": "a.b.c"}')]
    assert current(job).token == "a.b.c"
    server.answers = [(503, {}, "")]
    with pytest.raises(UserError, match="gave the job no token"):
        _ = current(job).token
    assert len(server.calls) == 6


@pytest.mark.parametrize("answer", [(403, {}, ""), (200, {}, "x"), (200, {}, "[]"), (200, {}, "{}")])
def test_github_that_gives_no_token_is_reported_with_what_to_do(server, job, file, answer):
    server.answers = [answer]
    with pytest.raises(UserError, match="id-token: write"):
        _ = current(job).token


def test_token_or_login_of_the_job_goes_before_githubs(server, job, file):
    assert current(job | {"SWEEPBOT_TOKEN": TOKEN}) == Credentials(URL, TOKEN)
    store(Credentials(URL, OTHER))
    assert current(job) == Credentials(URL, OTHER)
    with pytest.raises(UserError, match="The URL must be"):
        current(job | {"SWEEPBOT_URL": "ftp://x"})


def test_token_of_a_gitlab_job_is_one():
    assert Credentials(URL, f"{'a' * 100}.{'b' * 1000}.{'c' * 342}").token
    with pytest.raises(UserError, match="The token must be"):
        Credentials(URL, "a.b.c")
