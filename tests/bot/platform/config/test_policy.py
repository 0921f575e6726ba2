"""The configuration file, and the repository that a request selects."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.limits import Limits
from bot.platform.config.policy import Config, parse_config, prebuilt_image, repository
from bot.platform.config.repositories import Repository
from tests.cases import cases

FULL = """\
repositories:
  digits: {url: https://github.com/acme/digits.git, dockerfile: docker/Dockerfile}
  vision: {url: "http://git.local:3000/acme/vision.git"}
allowed_urls: [https://github.com/acme/]
admins: [U012ABC]
limits: {gpus_per_trial: 4, trials: 100, trial_hours: 24, grace_seconds: 900}
namespaces: [vision, nlp-2]
"""
DIGITS = Repository(name="digits", url="https://github.com/acme/digits.git", dockerfile="docker/Dockerfile")
VISION = Repository(name="vision", url="http://git.local:3000/acme/vision.git")
CONFIG = Config(
    repositories=(DIGITS, VISION),
    allowed_urls=("https://github.com/acme/",),
    admins=("U012ABC",),
    limits=Limits(gpus_per_trial=4, parallel=16, trials=100, trial_hours=24, grace_seconds=900),
    namespaces=("vision", "nlp-2"),
)


def test_parse_config_reads_all_keys_and_needs_only_one_repository() -> None:
    assert parse_config(FULL, "config.yaml") == CONFIG
    config = parse_config("repositories: {a: {url: https://x.org/a.git}}", "config.yaml")
    assert config == Config(repositories=(Repository(name="a", url="https://x.org/a.git"),))
    text = "repositories: {a: {url: https://x.org/a}}\nlimits: {gpus_per_trial: 0}"
    assert parse_config(text, "c.yaml").limits == Limits(gpus_per_trial=0)
    text = "repositories: {a: {url: https://x.org/a}}\nguests: true\nworkspaces: [T0PARTNER, E0GRID]\n"
    config = parse_config(f"{text}launch: {{gpus_per_person: 32}}", "c.yaml")
    assert (config.guests, config.workspaces) == (True, ("T0PARTNER", "E0GRID"))
    assert config.launch.gpus_per_person == 32
    with pytest.raises(UserError, match=r'c\.yaml:3: .*must be the ID of a Slack workspace.*got "partner"'):
        parse_config(text.replace("T0PARTNER", "partner"), "c.yaml")


URL = "must be the URL of a repository, such as https://github.com/acme/digits.git"


@cases(
    ("text", "expected"),
    [
        ("admins: []", "c.yaml:1: missing key: repositories"),
        ("repositories: {}", "c.yaml:1: repositories: must have at least one entry; got 0"),
        ("repositories: [a]", "c.yaml:1: repositories: must be a mapping; got a list"),
        ("repositories:\n  a: {}", "c.yaml:2: repositories.a: missing key: url"),
        (
            "repositories: {}\nlimits: {trial_hours: 0}",
            "c.yaml:2: limits.trial_hours: must be at least 0.017 (one minute); got 0",
        ),
        (
            "repositories: {a: {url: https://x.org/a}}\nnamespaces: [Team A]",
            "c.yaml:2: namespaces[0]: must be a namespace name (lowercase letters, digits, dashes); got",
        ),
        (
            "repositories:\n  A b: {url: https://x.org/a}",
            "c.yaml:2: repositories.A b: name must have only lowercase letters, digits, dots",
        ),
        ("repositories:\n  a: {url: git@github.com:acme/x.git}", f"c.yaml:2: repositories.a.url: {URL}"),
        ("repositories:\n  a: {url: https://x.org}", f"c.yaml:2: repositories.a.url: {URL}"),
        ("repositories:\n  a: {url: 'https://x.org/a?b=c'}", f"c.yaml:2: repositories.a.url: {URL}"),
        ("repositories:\n  a: {url: https://me:pw@x.org/a}", "must not contain a user or a password"),
        (
            "repositories:\n  a: {url: https://x.org/a/../b}",
            "must be a URL without empty, `.`, or `..` path segments",
        ),
        (
            "repositories:\n  a: {url: https://x.org/a, dockerfile: ../D}",
            "must be a path inside the repository",
        ),
        (
            "repositories:\n  a: {url: https://x.org/a, dockerfile: /D}",
            "must be a path inside the repository",
        ),
        ("repositories:\n  a: {url: https://x.org/a, docker: D}", "unknown key. Did you mean dockerfile?"),
        ("limit: {trials: 3}", "c.yaml:1: limit: unknown key. Did you mean limits?"),
        ("limits: {trials: 0}", "c.yaml:1: limits.trials: must be at least 1"),
        ("limits: {trials: many}", 'c.yaml:1: limits.trials: must be a number; got "many"'),
        (
            "limits: {gpu_per_trial: 1}",
            "limits.gpu_per_trial: unknown key. Did you mean gpus_per_trial",
        ),
        (
            "admins: [ada]",
            "c.yaml:1: admins[0]: must be a Slack member ID such as U012ABC",
        ),
        (f"workspaces: [{'t' * 101}]", f'Slack workspace such as T012ABC; got "{"t" * 99}…"'),
        ("allowed_urls: https://x.org/", "allowed_urls: must be a list; got text"),
        ("allowed_urls: [https://x.org/acme]", "allowed_urls[0]: must end with a slash: https://x.org/acme/"),
        ("allowed_urls: [https://x.org]", "allowed_urls[0]: must end with a slash: https://x.org/"),
        ("allowed_urls: ['http://x.org/']", "allowed_urls[0]: must start with https://"),
    ],
)
def test_parse_config_invalid_value_names_its_line(text: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config(text, "c.yaml")
    assert expected in str(error.value)


@cases(
    "text",
    [
        "webhooks: {secret: SECRET}",
        "webhooks: SECRET",
        "webhooks: [SECRET]",
        "webhooks: {alerts: {url: SECRET}}",
        "webhooks: {alerts: {url: 'https://u:SECRET@hooks.example.com/x'}}",
        "webhooks: {alerts: {url: 'https://hooks.example.com/x', secret: SECRET}}",
        "api: {ci: SECRET, secret: SECRET}",
        "api: {ci: {secret: SECRET}}",
        "repositories: {a: SECRET}",
        "repositories: {a: {url: SECRET, secret: SECRET!, push_secret: [SECRET]}}",
        "repositories: {a: {url: 'https://x.org/a', secret: {password: SECRET}, push_secret: SECRET!}}",
        "allowed_urls: ['https://u:SECRET@x.org/acme']",
        "secrets: SECRET",
        "secrets: {WANDB_API_KEY: SECRET}",
        "secrets: {wandb: {secret: SECRET!, keys: SECRET}}",
        "secrets: {wandb: {secret: wandb, keys: [SECRET!, WANDB_API_KEY=SECRET]}}",
        "env: {WANDB_API_KEY: SECRET}",
        "env: [WANDB_API_KEY=SECRET, {WANDB_API_KEY: SECRET}]",
        "clusters: {west: SECRET}",
        "clusters: {west: {kubeconfig: 'SECRET', context: 'a SECRET', registries: ['me:SECRET@r']}}",
        "environments: {secret: SECRET, server: SECRET}",
        "profiles: {p: {gpus: 1, tolerations: [{effect: SECRET}]}}",
        "slack_bot_token: SECRET",
        "webhooks: {secret: *SECRET}",
        "webhooks: {secret: !SECRET  x}",
        "webhooks: {secret: !!SECRET x}",
    ],
)
@cases(
    "secret",
    [
        *("hunter2", "31415926", "31.415926", "xoxb-hunter", "correct horse", "aB" * 21),
        *("qWeRtYuIoPaS", "a" * 32, "correct-horse-battery-staple"),
    ],
)
def test_parse_config_error_never_quotes_a_secret_in_place_of_its_name(text: str, secret: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config(text.replace("SECRET", secret), "c.yaml")
    assert secret not in str(error.value)


def test_parse_config_reports_errors_of_all_sections_at_once() -> None:
    text = """\
repositories: {a: {url: x, dockr: D}, b: y}
limits: {trials: many, gpus_per_trial: 2}
teams: {v: {namespace: w, members: [U11]}, w: {members: [U11]}}
digests: [{hour: 24, team: vv}, {channel: C1A}]
profiles: {big: {gpus: 9}, Big: {gpus: 2}}
queues: {a: , b: {people: [x]}}
priorities: {low: , top: {class: x}}
elastic: {}
"""
    with pytest.raises(UserError) as error:
        parse_config(text, "c")
    found = [line.partition("; got")[0][:80] for line in str(error.value).splitlines()]
    assert found == [
        "c:1: repositories.a.dockr: unknown key. Did you mean dockerfile?",
        "c:1: repositories.b: must be a mapping with url, dockerfile, requirements, insta",
        "c:1: repositories.a.url: must be the URL of a repository, such as https://github",
        "c:2: limits.trials: must be a number",
        "c:3: teams.v.namespace: must be one of `namespaces`",
        "c:3: teams.w: U11 is already in members of team v",
        "c:4: digests[0]: missing key: channel",
        "c:4: digests[0].hour: must be from 0 to 23",
        "c:4: digests[0].team: must be a name under `teams`",
        "c:5: profiles.big.gpus: must be from 0 to 8 (limits.gpus_per_trial)",
        "c:5: profiles.Big: name must have only lowercase letters, digits, dots, dashes, ",
        "c:6: queues.b.people[0]: must be a Slack member ID such as U012ABC (Profile > Mo",
        "c:7: priorities.low: missing key: class",
        "c:7: priorities.top: name must be low, normal, or high",
        "c:8: elastic: must be a list",
    ]


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        (None, DIGITS),
        ("vision", VISION),
        ("https://github.com/acme/digits.git", DIGITS),
        ("https://github.com/acme/digits", DIGITS),
        ("http://git.local:3000/acme/vision.git", VISION),
        ("https://github.com/acme/x.git", Repository(name="x", url="https://github.com/acme/x.git")),
        ("https://github.com/acme/a/b/", Repository(name="a-b", url="https://github.com/acme/a/b/")),
    ],
)
def test_repository_is_a_name_or_an_allowed_url(requested: str | None, found: Repository) -> None:
    expected = found if found in (DIGITS, VISION) else Repository(name=f"acme-{found.name}", url=found.url)
    assert repository(requested, CONFIG) == expected


@cases(
    ("requested", "expected"),
    [
        ("digitz", "repo=digitz isn't a configured repository. Available: `digits` and `vision`."),
        (
            "https://github.com/evil/x",
            "isn't allowed. Available: `digits` and `vision`, or any URL under https",
        ),
        ("https://github.com/acme-evil/x", "isn't allowed. Available: "),
        ("https://github.com/acme/../evil/x", "without empty, `.`, or `..` path segments"),
        ("https://github.com/acme/./x", "without empty, `.`, or `..` path segments"),
        ("https://github.com/acme//x", "without empty, `.`, or `..` path segments"),
        ("https://github.com/acme/%2e%2e/evil", URL),
        ("https://github.com/acme/x?token=1", URL),
        ("https://github.com/acme/x#y", URL),
        ("http://github.com/acme/x", "must start with https://"),
        ("https://ada:secret@github.com/acme/x", "must not contain a user or a password"),
        ("https://github.com@evil.org/acme/x", "must not contain a user or a password"),
        ("file:///etc/passwd", URL),
        ("ext::sh -c /bin/id", URL),
        ("--upload-pack=/bin/sh", URL),
        ("git@github.com:acme/x.git", URL),
    ],
)
def test_repository_rejects_other_urls(requested: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        repository(requested, CONFIG)
    assert expected in str(error.value)
    assert "secret" not in str(error.value)


def test_prebuilt_image_matches_repositories_and_prefixes() -> None:
    config = parse_config(
        "repositories:\n  a: {url: https://x.org/a}\nimages: [pytorch/, reg:5000/lab/one]\n", "c"
    )
    assert config.images == ("docker.io/pytorch/", "reg:5000/lab/one")
    for good in ("pytorch/pytorch:2.7", "docker.io/pytorch/x", "reg:5000/lab/one:v2"):
        assert prebuilt_image(good, config).repository
    for bad in ("pytorch-evil/x", "reg:5000/lab/one-evil", "reg:5000/lab", "python:3.11"):
        with pytest.raises(
            UserError, match=r"isn\'t allowed \(resolved to .*\)\. Allowed: docker\.io/pytorch/ or"
        ):
            prebuilt_image(bad, config)
    with pytest.raises(UserError, match="isn't an image name"):
        prebuilt_image("https://x", config)


@pytest.mark.parametrize(
    ("in_file", "given", "field"), [(True, "image: ", "space"), (False, "image=", "image")]
)
@pytest.mark.parametrize("image", ["python:3.11", "https://x"])
def test_prebuilt_image_is_refused_as_the_user_wrote_it(image, in_file, given, field) -> None:
    with pytest.raises(UserError) as refused:
        prebuilt_image(image, CONFIG, in_file=in_file)
    assert str(refused.value).startswith(f"{given}{image}")
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "images: [pytorch/pytorch:2.7]",
            "c:3: images[0]: must not have a tag or digest: all tags of the repo",
        ),
        ("images: [https://x/]", "must be an image repository, or a prefix ending in a slash"),
    ],
)
def test_parse_config_invalid_image_names_its_line(line: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config(f"repositories:\n  a: {{url: https://x.org/a}}\n{line}\n", "c")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("push_secret: hunter2!", "must be the name of a Kubernetes Secret, not its contents"),
        ("secret: hunter2!", "must be the name of a Kubernetes Secret, not its contents"),
        ("install: maybe", "must be true or false"),
        ("requirements: ../r.txt", "must be a path inside the repository, such as docker/Dockerfile"),
    ],
)
def test_parse_config_invalid_repository_key_names_its_line(keys: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config(f"repositories:\n  a: {{url: https://x.org/a, {keys}}}\n", "c")
    assert expected in str(error.value)
