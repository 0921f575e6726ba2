"""Other systems' answers contain secrets everywhere; users and programs can read none."""

import io
import json
import logging
from base64 import b64encode
from dataclasses import replace

import pytest
from slack_sdk.errors import SlackApiError

from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.platform.runtime.log_format import JsonLines
from bot.text.masking import Mask
from k8s.api.errors import ApiError
from tests.bot.factories import OWNER
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

OWN = {  # by where the bot has it from
    "GIT_PASSWORD_GIT_DIGITS": "planted-git",
    "MLFLOW_TRACKING_PASSWORD": "planted-mlflow",
    "UV_INDEX_ACME_PASSWORD": "planted-index",
    "HTTPS_PROXY": "planted-proxy",
    "PROMETHEUS_URL": "planted-prometheus",
    "SLACK_BOT_TOKEN": "xoxb-planted-bot",
    "SLACK_SIGNING_SECRET": "planted-signing",
    "REGISTRY_AUTH_FILE": "planted-registry",
}
LOGIN = b64encode(b"ada:planted-registry").decode()
FOREIGN = (
    "ghp_plantedplantedplanted1234",
    "hf_plantedplantedplanted1234",
    "planted-in-a-url",
    "planted-s3cret",
)
SAID = "\n".join(
    [
        "Looking in indexes: https://ada:planted-in-a-url@pypi.acme/simple",
        f"GITHUB_TOKEN={FOREIGN[0]} {FOREIGN[1]} password: planted-s3cret",
        *(f"{name} is \x1b[31m{value[:9]}\x1b[0m{value[9:]}" for name, value in OWN.items()),
        f"auth {LOGIN}",
        "the end",
    ]
)
PLANTED = (*OWN.values(), *FOREIGN, LOGIN)


@pytest.fixture
def lines(monkeypatch, tmp_path):
    """The installation's secrets, from their sources to its log."""
    for name in ("GIT_PASSWORD_GIT_DIGITS", "MLFLOW_TRACKING_PASSWORD", "UV_INDEX_ACME_PASSWORD"):
        monkeypatch.setenv(name, OWN[name])
    monkeypatch.setenv("HTTPS_PROXY", f"http://ada:{OWN['HTTPS_PROXY']}@proxy:3128")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"auths": {"registry:5000": {"auth": LOGIN}}}))
    stream = io.StringIO()
    handler, level = logging.StreamHandler(stream), logging.root.level
    settings = {
        "slack_bot_token": OWN["SLACK_BOT_TOKEN"],
        "slack_signing_secret": OWN["SLACK_SIGNING_SECRET"],
        "prometheus_url": f"https://ada:{OWN['PROMETHEUS_URL']}@prometheus",
        "registry_auth_file": file,
    }
    yield handler, stream, settings
    logging.root.removeHandler(handler)
    logging.root.setLevel(level)


class AlertStore:
    """A simulation in which all answers of other systems contain secrets."""

    def __init__(self, redis, lines, **scenario):
        handler, self.stream, settings = lines
        self.simulation = SimulatedSweep(redis, Clock(None), **scenario)
        self.simulation.clients = replace(
            self.simulation.clients,
            settings=type(self.simulation.clients.settings)(
                **self.simulation.clients.settings.model_dump(exclude=settings.keys()) | settings
            ),
        )
        handler.setFormatter(JsonLines(Mask(self.simulation.clients.settings.secrets())))
        logging.root.addHandler(handler)
        logging.root.setLevel("DEBUG")
        self.simulation.cluster.log = self.log

    async def log(self, *_, **__):
        return SAID

    async def everything(self):
        """All that is left to be read, by place."""
        simulation, redis = self.simulation, self.simulation.redis
        slack = [
            simulation.slack.posted,
            simulation.slack.ephemeral_messages,
            simulation.slack.files,
            simulation.slack.views,
        ]
        slack.append([(m.text, m.blocks) for m in simulation.slack.parents])
        maps = [simulation.kubernetes.list(kind) for kind in ("ConfigMap", "Experiment", "Job")]
        kept = [await _value(redis, key) async for key in redis.scan_iter()]
        return {
            "Slack": str(slack),
            "the cluster": str(maps),
            "Redis": str(kept),
            "the log": self.stream.getvalue(),
        }


async def _value(redis, key):
    match await redis.type(key):
        case b"hash":
            return await redis.hgetall(key)
        case b"string":
            return await redis.get(key)
        case b"list":
            return await redis.lrange(key, 0, -1)
        case _:
            return ""


def refuse(kind):
    """A webhook's refusal of this kind of object."""

    def spoil(reported):
        create = reported.simulation.cluster.create

        async def refusing(manifest):
            if manifest["kind"] == kind:
                raise ApiError(400, "BadRequest", f"admission webhook denied the request: {SAID}")
            return await create(manifest)

        reported.simulation.cluster.create = refusing

    return spoil


def git_fails(reported):
    async def resolve(url, branch):
        raise UserError(f"fatal: {SAID}")

    reported.simulation.git.resolve = resolve


def something_fails(reported):
    async def digest(repository, tag):
        raise SlackApiError(SAID, {"error": "internal_error"})

    reported.simulation.registry.digest = digest


STORIES = {
    "a build fails": ({"bad_build": "build"}, None),
    "a training crashes": ({"crash": True, "image": True}, None),
    "a Job is refused": ({}, refuse("Job")),
    "an experiment is refused": ({"image": True}, refuse("Experiment")),
    "the record is refused": ({}, refuse("ConfigMap")),
    "git fails": ({}, git_fails),
    "a library raises": ({}, something_fails),
    "a log is asked for": ({"endless": "trainings", "image": True}, None),
}


@pytest.mark.parametrize("scenario", STORIES)
async def test_secrets_are_printed_nowhere_whatever_other_systems_answer(redis, lines, scenario):
    given, spoil = STORIES[scenario]
    reported = AlertStore(redis, lines, **given)
    if spoil:
        spoil(reported)
    async with reported.simulation.started():
        for number in range(25):
            if number == 15:
                command = Command(
                    action=Action.LOGS, user=OWNER, user_name="ada", response_url="https://hooks/1"
                )
                await reported.simulation.store.add_command(SWEEP, command)
            await reported.simulation.round(failures=9)
        found = await reported.everything()
    assert "***" in found["Slack"]
    for place, text in found.items():
        assert [secret for secret in PLANTED if secret in text] == [], place
