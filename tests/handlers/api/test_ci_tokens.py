"""Tokens of CI jobs, by an issuer over real HTTP: whose are accepted, and what forgers can't reach."""

import asyncio
import base64
import json
from dataclasses import replace
from time import time

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.core.commands import Action
from bot.core.record import Phase
from bot.platform.config.api_access import ApiAccess, CiJobs
from bot.platform.config.permissions import denial, queue_member
from bot.platform.config.policy import parse_config
from bot.platform.config.teams import Team
from bot.sweep.launch.spending import limits
from handlers.api import ci_tokens
from handlers.api.callers import CALLS_PER_MINUTE
from tests.bot.factories import ADMIN, OWNER, STRANGER
from tests.cases import cases
from tests.free_port import free_port
from tests.handlers.api.test_sweeps import stored

AUDIENCE, REPOSITORY = "https://sweepbot.example.com", "acme/models"


def new_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


KEY, OTHER = new_key(), new_key()


class Issuer:
    def __init__(self):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.keys, self.reads, self.documents, self.is_down = {"k1": KEY}, 0, {}, False
        self.status = 200  # of its configuration

    async def answer(self, request):
        if self.is_down:
            return web.Response(status=502)
        if request.path.endswith("/openid-configuration"):
            found = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.documents
            return web.json_response(found, status=self.status)
        self.reads += 1
        return web.json_response({"keys": [self.shown(*each) for each in self.keys.items()]})

    def shown(self, key_id, key):
        found = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        return found | {"kid": key_id, "use": "sig", "alg": "RS256"}

    def claims(self, **changes):
        about = {"iss": self.url, "aud": AUDIENCE, "iat": int(time()), "exp": int(time()) + 300}
        job = {"sub": f"repo:{REPOSITORY}:ref:refs/heads/main", "repository": REPOSITORY, "run_id": "7"}
        return {key: each for key, each in (about | job | changes).items() if each is not None}

    def token(self, key=KEY, key_id="k1", algorithm="RS256", **changes):
        return jwt.encode(self.claims(**changes), key, algorithm, headers={"kid": key_id})


@pytest.fixture
async def issuer():
    made = Issuer()
    app = web.Application()
    app.router.add_get("/{tail:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(made.url.rpartition(":")[2])).start()
    yield made
    await runner.cleanup()


@pytest.fixture
def rule(issuer):
    return CiJobs(
        name="nightly",
        issuer=issuer.url,
        audience=AUDIENCE,
        claims={"repository": REPOSITORY},
        person=OWNER,
        channel="C1",
    )


@pytest.fixture
def context(context, rule):
    context.channel_setup.config = replace(context.config, api=ApiAccess(ci=(rule,)))
    return context


async def test_job_launches_as_the_person_who_answers_for_it(call, context, issuer, caplog):
    with caplog.at_level("INFO", "sweepbot.audit"):
        status, made = await call("POST", "/sweeps", "branch=main space=lr", key="7", by=issuer.token())
    assert status == 202, made
    requester = (await context.store.get(made["id"])).requester
    assert (requester.user, requester.channel, requester.via) == (OWNER, "C1", "API for CI nightly")
    assert requester.user_name == "ada"  # what Slack says of them
    assert f"user={OWNER} ci='repo:acme/models:ref:refs/heads/main' rule=nightly" in caplog.text
    again = await call("POST", "/sweeps", "branch=main space=lr", key="7", by=issuer.token(jti="other"))
    assert again == (202, made), "another token of the same run"
    other = await call("POST", "/sweeps", "branch=main space=lr", key="7", by=issuer.token(run_id="8"))
    assert other[1]["id"] != made["id"], "another run"
    assert issuer.reads == 1


async def test_forged_and_foreign_tokens_are_refused_with_one_sentence(call, issuer):
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    def unsigned(algorithm, signature=""):
        header = {"alg": algorithm, "kid": "k1", "typ": "JWT"}
        return f"{part(header)}.{part(issuer.claims())}.{signature}"

    def confused():
        """Sign with the public key, as if it were a shared secret."""
        import hmac  # noqa: PLC0415

        text = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{part(issuer.claims())}"
        mac = hmac.digest(public, text.encode(), "sha256")
        return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    good = issuer.token()
    bad = {
        "another key": issuer.token(OTHER),
        "none": unsigned("none"),
        "None": unsigned("None"),
        "RS256 without a signature": unsigned("RS256"),
        "signed by the public key": confused(),
        "RS512": issuer.token(algorithm="RS512"),
        "PS256": issuer.token(algorithm="PS256"),
        "changed": ".".join([good.split(".")[0], part(issuer.claims(repository="x")), good.split(".")[2]]),
        "wrong audience": issuer.token(aud="https://other.example.com"),
        "no audience": issuer.token(aud=None),
        "expired": issuer.token(exp=int(time()) - 60),
        "no expiry": issuer.token(exp=None),
        "for a year": issuer.token(exp=int(time()) + 365 * 86400),
        "not yet": issuer.token(nbf=int(time()) + 600),
        "issued later": issuer.token(iat=int(time()) + 600),
        "no subject": issuer.token(sub=None),
        "another issuer": issuer.token(iss="https://gitlab.com"),
        "an issuer that is no text": issuer.token(iss=None) + "x",
        "another repository": issuer.token(repository="acme/other"),
        "case": issuer.token(repository="Acme/models"),
        "a list of repositories": issuer.token(repository=[REPOSITORY]),
        "no repository": issuer.token(repository=None),
        "no key id": jwt.encode(issuer.claims(), KEY, "RS256"),
        "nested": f"{part({'alg': 'RS256', 'kid': 'k1'})}.{'W1tb' * 3000}.x",
        "large": f"{good}{'x' * 20_000}",
    }
    answers = {}
    for name, token in bad.items():
        answers[name] = await call("GET", "/sweeps", by=token)
        if len(answers) % 20 == 0:
            await asyncio.sleep(0)
    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(bad, 401)
    assert len({problem["detail"] for _, problem in answers.values()}) == 1
    assert (await call("GET", "/sweeps", by=good))[0] == 200


async def test_clocks_can_differ_by_half_a_minute(call, issuer):
    assert (await call("GET", "/sweeps", by=issuer.token(exp=int(time()) - 20)))[0] == 200
    assert (await call("GET", "/sweeps", by=issuer.token(iat=int(time()) + 20)))[0] == 200


async def test_flood_of_unknown_keys_reads_them_once_and_keeps_nobody_out(call, issuer):
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 200
    forged = [call("GET", "/sweeps", by=issuer.token(OTHER, f"k{n + 2}")) for n in range(100)]
    answers = await asyncio.gather(*forged, call("GET", "/sweeps", by=issuer.token()))
    assert [status for status, _ in answers] == [401] * 100 + [200]
    assert issuer.reads == 1


async def test_new_key_is_found_after_a_minute(call, issuer, monkeypatch):
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 200
    issuer.keys = {"k2": OTHER}
    assert (await call("GET", "/sweeps", by=issuer.token(OTHER, "k2")))[0] == 401
    monkeypatch.setattr(ci_tokens, "MIN_INTERVAL", -1)
    assert (await call("GET", "/sweeps", by=issuer.token(OTHER, "k2")))[0] == 200
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 401, "the old one is gone"


async def test_issuer_that_cannot_be_read_is_named_and_known_keys_stay(call, issuer, monkeypatch):
    issuer.is_down = True
    status, problem = await call("GET", "/sweeps", by=issuer.token())
    assert (status, issuer.url in problem["detail"]) == (503, True)
    monkeypatch.setattr(ci_tokens, "MIN_INTERVAL", -1)
    issuer.is_down = False
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 200
    issuer.is_down = True
    monkeypatch.setattr(ci_tokens, "MAX_AGE", -1)
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 200


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"issuer": "https://evil.example"}, 200),
        ({"jwks_uri": "file:///etc/passwd"}, 200),
        ({"more": "x" * ci_tokens.MAX_SIZE}, 200),
        ({}, 203),
    ],
    ids=["issuer", "keys", "size", "status"],
)
async def test_configuration_of_another_issuer_or_in_another_answer_is_not_trusted(
    call, issuer, document, status
):
    issuer.documents, issuer.status = document, status
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 503
    assert issuer.reads == 0


async def test_job_has_the_persons_permissions_and_no_more(call, context, issuer):
    sweep = await stored(context, Phase.RUNNING)  # of U1
    status, problem = await call("POST", f"/sweeps/{sweep.id}/commands", "cancel", key="k", by=issuer.token())
    assert (status, "or an admin can cancel" in problem["detail"]) == (403, True)


@pytest.fixture
def team(context, rule, redis):
    """Jobs of a team with a budget; one member and everyone else are people."""
    made = replace(rule, person="", team="vision", budget="40")
    vision = Team(name="vision", members=(STRANGER,), budget="100", approvers=(ADMIN,))
    config = replace(
        context.config,
        api=ApiAccess(ci=(made,)),
        teams=(vision,),
        launch=replace(context.config.launch, people=(OWNER,)),
    )
    context.channel_setup.config = config
    return config


async def test_job_of_a_team_launches_in_its_name_and_its_members_can_cancel(call, context, issuer, team):
    status, made = await call("POST", "/sweeps", "branch=main space=lr", key="7", by=issuer.token())
    assert status == 202, made
    sweep = await context.store.get(made["id"])
    requester = sweep.requester
    assert (requester.user, requester.user_name, requester.via) == (
        "team-vision",
        "team vision",
        "API for CI nightly",
    )
    assert (requester.account, requester.account_budget) == ("ci nightly", "40")
    assert [each.whose for each in limits(requester, team)] == ["the token", "team vision"]
    assert limits(requester, team)[1].owners == {"team-vision", STRANGER}
    assert queue_member(requester.user, team).team == "vision"
    denied = {each: denial(each, Action.CANCEL, sweep, team) for each in (STRANGER, ADMIN, OWNER)}
    assert denied == {
        STRANGER: "",
        ADMIN: "",
        OWNER: f"Only team vision (owner) or an admin can cancel `{sweep.id}`.",
    }
    path = f"/sweeps/{sweep.id}/commands"
    assert (await call("POST", path, "cancel", key="8", by=issuer.token()))[0] == 202
    [cancel] = await context.store.commands(sweep.id)
    assert (cancel.user, cancel.via) == ("team-vision", "API for CI nightly")


async def test_job_of_a_team_has_no_rights_beyond_the_teams(call, context, issuer, team):
    sweep = await stored(context, Phase.RUNNING)  # of U1, who is in no team
    status, problem = await call("POST", f"/sweeps/{sweep.id}/commands", "cancel", key="k", by=issuer.token())
    assert (status, "or an admin can cancel" in problem["detail"]) == (403, True)
    text = "branch=main space=lr notify=dm"
    status, problem = await call("POST", "/sweeps", text, key="l", by=issuer.token())
    assert (status, problem["detail"]) == (
        422,
        "notify=dm needs a person, and team vision starts this sweep. Omit it.",
    )


async def test_run_has_so_many_calls_a_minute_whatever_its_tokens(call, issuer):
    statuses = [
        (await call("GET", "/sweeps", by=issuer.token(jti=str(n))))[0] for n in range(CALLS_PER_MINUTE + 1)
    ]
    assert statuses == [200] * CALLS_PER_MINUTE + [429]


async def test_stream_of_a_job_lasts_as_long_as_its_rule(api, context, issuer, monkeypatch):
    monkeypatch.setattr("handlers.api.events.POLL_SECONDS", 0.01)
    monkeypatch.setattr("handlers.api.events.COMMENT_SECONDS", 0.01)
    sweep = await stored(context, Phase.RUNNING)
    headers = {"Authorization": f"Bearer {issuer.token()}"}
    async with asyncio.timeout(60), api.get(f"/api/v1/sweeps/{sweep.id}/events", headers=headers) as stream:
        for _ in range(3):
            assert b"still here" in await stream.content.readuntil(b": still here\n\n")
        context.channel_setup.config = replace(context.config, api=ApiAccess())
        await stream.read()


async def test_without_rules_no_such_token_is_read(call, context, issuer):
    context.channel_setup.config = replace(context.config, api=ApiAccess())
    assert (await call("GET", "/sweeps", by=issuer.token()))[0] == 401
    assert issuer.reads == 0


CI = """
repositories: {digits: {url: https://github.com/acme/digits.git}}
admins: [U012ABC]
teams: {vision: {members: [U012ABC]}}
api:
  ci:
    nightly:
      issuer: https://token.actions.githubusercontent.com
      audience: https://sweepbot.example.com
      claims: {repository_id: 123, ref: refs/heads/main}
      person: U012ABC
      channel: C012ABC
"""


def test_rule_is_read_from_the_configuration():
    [rule] = parse_config(CI, "config.yaml").api.ci
    claims = {"iss": rule.issuer, "aud": [rule.audience], "ref": "refs/heads/main"}
    assert rule.admits(claims | {"repository_id": "123"})
    assert not rule.admits(claims | {"repository_id": "1234"})
    assert not rule.admits(claims)


@cases(
    ("old", "new", "sentence"),
    [
        ("repository_id: 123, ", "", "must have a claim that says whose job it is"),
        ("repository_id: 123", 'repository: "acme/*"', "must have whole values, without "),
        ("https://token.actions", "http://token.actions", "must be an https URL"),
        ("      person: U012ABC\n", "", "must have either `person` or `team`"),
        ("person: U012ABC\n", "person: U012ABC\n      team: vision\n", "either `person` or `team`"),
        ("person: U012ABC", "team: visoin", "must be a name under `teams`"),
        ("person: U012ABC\n", "person: U012ABC\n      budget: $40\n", "no prices are configured"),
        ("      audience: https://sweepbot.example.com\n", "", "audience"),
    ],
)
def test_rule_that_would_admit_strangers_is_refused(old, new, sentence):
    with pytest.raises(Exception, match=sentence):
        parse_config(CI.replace(old, new), "config.yaml")
