"""Settings: one sentence for each error, without secrets; .env.example is complete."""

import json
from base64 import b64encode
from itertools import pairwise
from pathlib import Path

import pytest

from bot.core.errors import UserError
from bot.platform.config.settings import Settings, description_of

EXAMPLE = Path(__file__).parents[4] / ".env.example"
NEEDED = {
    "SLACK_BOT_TOKEN": "xoxb-1",
    "REDIS_URL": "redis://redis:6379/0",
    "SWEEPBOT_CONFIG": "/etc/sweepbot/config.yaml",
    "IMAGE_REGISTRY": "registry.example:5000",
    "MLFLOW_TRACKING_URI": "http://mlflow:5000/",
}
GOOD = {**NEEDED, "SLACK_APP_TOKEN": "xapp-1"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def read(monkeypatch, **changes):
    for name, value in {**GOOD, **changes}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    return Settings.read()


def test_settings_need_five_values_and_print_no_secrets(monkeypatch):
    settings = read(monkeypatch)
    assert settings.slack_secret() == "xapp-1"
    assert settings.registry_push == settings.registry_api == "registry.example:5000"
    assert settings.mlflow_ui == settings.mlflow_tracking_uri == "http://mlflow:5000"
    assert [read(monkeypatch, SWEEP_DAYS=days).sweep_days for days in ("", "0", "90")] == [30, 0, 90]
    assert "xoxb-1" not in repr(read(monkeypatch))


@pytest.mark.parametrize("name", NEEDED)
def test_read_missing_setting_is_named(monkeypatch, name):
    with pytest.raises(UserError, match=rf"^{name} isn't set \("):
        read(monkeypatch, **{name: None})


@pytest.mark.parametrize(
    ("mode", "name", "what"),
    [("socket", "SLACK_APP_TOKEN", "Socket Mode"), ("http", "SLACK_SIGNING_SECRET", "signed HTTP")],
)
def test_slack_secret_of_the_mode_must_be_set(monkeypatch, mode, name, what):
    settings = read(monkeypatch, SLACK_MODE=mode, SLACK_APP_TOKEN="")
    with pytest.raises(UserError, match=rf"^{name} isn't set \(.* for {what}\)\.$"):
        settings.slack_secret()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("SLACK_BOT_TOKEN", "hunter2", "must start with xoxb-"),
        ("SLACK_APP_TOKEN", "xoxb-hunter2", "must start with xapp-"),
        ("SLACK_MODE", "events", "must be 'socket' or 'http' (how Slack"),
        ("REDIS_URL", "redis:6379", "must be a URL such as redis://host:6379/0 ("),
        ("REDIS_URL", ":hunter2@redis:6379", "must be a URL such as redis://host:6379/0"),
        ("REDIS_URL", "http://redis:6379", "must be a URL such as redis://host:6379/0"),
        ("MLFLOW_TRACKING_URI", "redis://mlflow", "must be a URL such as https://host"),
        ("MLFLOW_TRACKING_URI", "http://mlflow:port", "must be a URL such as https://host"),
        ("SLACK_API_URL", "http://[::1/api", "must be a URL such as https://host"),
        ("PROMETHEUS_URL", "https://", "must be a URL such as https://host"),
        ("PROMETHEUS_LABELS", "cluster", "must be NAME=VALUE, or several with commas, such as cluster=lab"),
        ("PROMETHEUS_LABELS", "a=b,c=}", "must be NAME=VALUE, or several with commas, such as cluster=lab"),
        ("LOG_LEVEL", "debug", "must be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("USAGE_SECONDS", "2s", "must be a whole number (seconds between GPU samples)."),
        ("SHUTDOWN_GRACE", "0", "must be above 0"),
        ("SHUTDOWN_GRACE", "nan", "must be at most 86400 ("),
        ("SHUTDOWN_GRACE", "inf", "must be at most 86400 ("),
        ("IMAGE_DAYS", "9999999999", "must be at most 36500"),
        ("HTTP_PORT", "65536", "must be at most 65535"),
        ("IMAGE_REGISTRY", "https://registry", "must be HOST[:PORT][/PREFIX] without scheme or user"),
        ("IMAGE_REGISTRY", "ghcr.io/Acme", "in lowercase; got 'ghcr.io/Acme'"),
        ("IMAGE_REGISTRY", "ghcr.io/../acme", "must be HOST[:PORT][/PREFIX]"),
        ("IMAGE_REGISTRY", "https://ada:hunter2@registry", "must be HOST[:PORT][/PREFIX]"),
        ("IMAGE_REGISTRY_PUSH", "ada:hunter2@registry", "must be HOST or HOST:PORT"),
        ("MLFLOW_TRACKING_URI", "http://ada:hunter2@mlflow", "must not contain a user or a password"),
        ("MLFLOW_UI_URL", "http://hunter2@mlflow", "must not contain a user or a password"),
        ("KATIB_UI_URL", "http://ada:hunter2@katib", "must not contain a user or a password"),
        ("IMAGE_REGISTRY_PLAIN_HTTP", "maybe", "must be true or false"),
        ("WORKER_CONCURRENCY", "0", "must be at least 1"),
    ],
)
def test_read_invalid_setting_is_named_with_its_error(monkeypatch, name, value, sentence):
    with pytest.raises(UserError) as caught:
        read(monkeypatch, **{name: value})
    assert str(caught.value).startswith(f"{name} is invalid: ")
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "kubectl -n sweepbot exec deployment/sweepbot-work -- sweepbot doctor" in str(caught.value)


def test_space_around_values_does_not_count(monkeypatch):
    """As in a Secret made of `echo TOKEN | base64`, or a file of Windows."""
    settings = read(monkeypatch, SLACK_BOT_TOKEN="xoxb-1\n", IMAGE_REGISTRY="r.example\r", LOG_FORMAT=" ")
    assert (settings.slack_bot_token.get_secret_value(), settings.image_registry) == ("xoxb-1", "r.example")
    assert settings.log_format == "json"


def test_labels_of_prometheus_become_matchers(monkeypatch):
    settings = read(monkeypatch, PROMETHEUS_LABELS="cluster=gke_lab_eu-1,region=eu")
    assert settings.prometheus_labels == 'cluster="gke_lab_eu-1",region="eu"'


def test_quotes_of_an_env_file_are_named_without_the_value(monkeypatch):
    with pytest.raises(UserError, match=r"^SLACK_BOT_TOKEN and HTTP_PORT: remove the quotes") as refused:
        read(monkeypatch, SLACK_BOT_TOKEN='"xoxb-1"', HTTP_PORT="'8080'")
    assert "xoxb" not in str(refused.value)


def test_example_lists_every_setting_with_its_description():
    lines = EXAMPLE.read_text().splitlines()
    listed = {
        line.lstrip("# ").partition("=")[0]: above.removeprefix("# ")
        for above, line in pairwise(lines)
        if "=" in line and not line.startswith("# -")
    }
    assert listed == {name.upper(): description_of(name) for name in Settings.model_fields}


def test_secrets_include_files_urls_and_proxies(monkeypatch, tmp_path):
    logins = tmp_path / "config.json"
    login = {"username": "ada", "auth": b64encode(b"ada:registry:pw").decode()}
    damaged = {"auth": "+", "password": None}
    auths = {"damaged": damaged, "text": "x", "registry": login, "other": {"password": "other-pw"}}
    logins.write_text(json.dumps({"auths": auths}))
    monkeypatch.setenv("GIT_PASSWORD_ACME_BOT", "git-pw")
    monkeypatch.setenv("HTTPS_PROXY", "http://ada:proxy-pw@proxy:3128")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "mlflow-token")
    settings = read(
        monkeypatch,
        SLACK_SIGNING_SECRET="5167",
        REGISTRY_AUTH_FILE=str(logins),
        REDIS_URL="rediss://default:p%40ss@redis:6379/0",
        SLACK_API_URL="https://url-token@slack/api",
        MLFLOW_UI_URL="https://mlflow.example/?password=in-query",
    )
    ours = {"xoxb-1", "xapp-1", "5167", "p%40ss", "p@ss", "url-token", "in-query"}
    registries = {login["auth"], "registry:pw", "other-pw"}
    assert settings.secrets() >= ours | registries | {"proxy-pw", "mlflow-token", "git-pw"}
    assert settings.mask("registry:pw") == "***"


def test_renewed_registry_login_is_masked_beside_the_former_one(monkeypatch, tmp_path):
    """Kubelets write a changed Secret's file anew; all of a process shares one mask."""
    file = tmp_path / "config.json"
    settings = read(monkeypatch, REGISTRY_AUTH_FILE=str(file))
    mask = settings.mask
    for password in ("hunter-1", "hunter-2"):
        file.write_text(
            json.dumps({"auths": {"registry": {"auth": "", "username": "ada", "password": password}}})
        )
        assert settings.login("registry") == ("ada", password)
    assert mask("hunter-1, hunter-2, xoxb-1") == "***, ***, ***"
