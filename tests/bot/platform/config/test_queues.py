"""`queues:` and `priorities:` of the configuration, and who can use them."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.platform.config.permissions import queue_member
from bot.platform.config.policy import parse_config
from bot.platform.config.queues import Member, priority_denial, queue_denial
from bot.sweep.form.preview import preview
from bot.sweep.form.view import Draft, form, options_of
from bot.sweep.form.view import request as read_form
from bot.sweep.launch.command_line import parse
from bot.sweep.launch.plan import plan
from bot.sweep.launch.queueing import queueing, with_priority
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from tests.bot.factories import ADMIN, ORDER, OWNER, REQUEST, SETTINGS, STRANGER
from tests.cases import cases

REPOSITORIES = "repositories: {digits: {url: https://git.example/digits.git}}"
FILE = (
    f"{REPOSITORIES}\n"
    """
admins: [UADMIN]
teams: {vision: {members: [UOWNER]}}
queues:
  research:
  urgent: {teams: [vision]}
priorities:
  high: {class: sweeps-high, people: [UOWNER]}
  low: {class: sweeps-low}
  normal: {class: sweeps-normal}
"""
)
CONFIG = parse_config(FILE, "config.yaml")
POLICY = CONFIG.queueing


def a_draft(**options):
    return Draft(options=options, channel="C1")


def job_labels(manifest):
    return manifest["spec"]["trialTemplate"]["trialSpec"]["metadata"]["labels"]


def pod_of(manifest):
    return manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]


def planned(request=REQUEST, config=CONFIG, user=OWNER):
    place = queueing(request, queue_member(user, config), config)
    shape = with_priority(ORDER.shape, place)
    return plan(replace(ORDER, request=request, queueing=place, shape=shape), SETTINGS)


def test_parse_config_queues_reads_them_in_order():
    assert [each.name for each in POLICY.queues] == ["research", "urgent"]
    assert [each.name for each in POLICY.priorities] == ["low", "normal", "high"]
    assert POLICY.priority_class("high") == "sweeps-high"
    assert POLICY.priority_of("sweeps-low") == "low"


@cases(
    ("line", "error"),
    [
        ("queues: {Bad_Name: {}}", "queues.Bad_Name: name must be that of a LocalQueue"),
        ("queues: [research]", "queues: must be a mapping"),
        ("queues: {a: {team: [vision]}}", "unknown key"),
        ("priorities: {urgent: {class: x}}", "name must be low, normal, or high"),
        ("priorities: {high: {}}", "missing key: class"),
        ("priorities: {high: }", "missing key: class"),
        ("priorities: {high: {class: A B}}", "must be the name of a priority class"),
        (
            "queues: {a: {teams: [vison]}}\nteams: {vision: {}}",
            'queues.a.teams[0]: must be a name under `teams`; got "vison". Did you mean vision?',
        ),
        ("priorities: {low: {class: x, teams: [vision]}}", "must be a name under `teams`"),
        ("queues: {a: {people: [ada]}}", "must be a Slack member ID such as U012ABC (Profile > More"),
    ],
)
def test_parse_config_invalid_queue_names_line_and_rule(line, error):
    with pytest.raises(UserError, match=r"config\.yaml:3: ") as raised:
        parse_config(f"{REPOSITORIES}\n\n{line}\n", "config.yaml")
    assert error in str(raised.value)


def test_queue_and_priority_need_the_team_a_grant_or_an_admin():
    assert queue_denial("urgent", queue_member(OWNER, CONFIG), POLICY) == ""
    assert queue_denial("urgent", queue_member(ADMIN, CONFIG), POLICY) == ""
    assert queue_denial("urgent", Member(user=STRANGER, team_queue="urgent"), POLICY) == ""
    denied = queue_denial("urgent", queue_member(STRANGER, CONFIG), POLICY)
    assert denied == "Queue `urgent` is for team vision and admins. You can use `research`."
    config = replace(CONFIG, self_assigned=frozenset({OWNER}))
    assert "is for team vision" in queue_denial("urgent", queue_member(OWNER, config), POLICY)
    assert priority_denial("high", queue_member(OWNER, CONFIG), POLICY) == ""
    assert priority_denial("normal", queue_member(STRANGER, CONFIG), POLICY) == ""
    denied = priority_denial("high", queue_member(STRANGER, CONFIG), POLICY)
    assert denied.startswith("Priority high is for people listed in the configuration and admins.")
    closed = parse_config(FILE.replace(", people: [UOWNER]", ""), "config.yaml")
    assert "is for admins." in priority_denial("high", queue_member(OWNER, closed), closed.queueing)


def test_plan_with_a_queue_labels_only_the_jobs_of_trials_and_the_preview_shows_it():
    made = planned(replace(REQUEST, queue="urgent", priority="high"))
    labels = job_labels(made.experiment)
    assert (labels[QUEUE_LABEL], labels[PRIORITY_LABEL]) == ("urgent", "sweeps-high")
    assert (made.queue, made.priority) == ("urgent", "high")
    pod = pod_of(made.experiment)
    assert QUEUE_LABEL not in pod["metadata"]["labels"]
    assert QUEUE_LABEL not in made.experiment["metadata"]["labels"]
    assert "priorityClassName" not in pod["spec"]
    assert made.builds
    assert all(QUEUE_LABEL not in build.job["metadata"]["labels"] for build in made.builds)
    made = replace(made, space=replace(made.space, gate=True, max_hours=12))
    config = replace(CONFIG, namespaces=("vision",))
    view = preview(a_draft(), REQUEST, made, config)
    facts = next(block["fields"] for block in view["blocks"] if "fields" in block)
    assert any("*Namespace, queue, and priority*\n`sweeps`, `urgent`, high" in f["text"] for f in facts)
    assert len(facts) <= 10
    labels = job_labels(planned(user=STRANGER).experiment)
    assert (labels[QUEUE_LABEL], labels[PRIORITY_LABEL]) == ("research", "sweeps-normal")
    config = parse_config(FILE.replace("queues:\n  research:\n  urgent: {teams: [vision]}\n", ""), "c.yaml")
    made = planned(replace(REQUEST, priority="low"), config)
    assert PRIORITY_LABEL not in job_labels(made.experiment)
    assert pod_of(made.experiment)["spec"]["priorityClassName"] == "sweeps-low"


def test_queueing_takes_a_queue_that_the_person_may_use():
    config = parse_config(FILE.replace("[UOWNER]}}\n", "[UOWNER], queue: vision}}\n"), "config.yaml")
    assert queueing(REQUEST, queue_member(OWNER, config), config).queue == "vision"
    assert queueing(REQUEST, queue_member(STRANGER, config), config).queue == "research"
    named = parse("branch=main space=lr queue=vision", config)
    with pytest.raises(UserError, match="Queue `vision` isn't configured"):
        queueing(named, queue_member(STRANGER, config), config)
    who = queue_member(STRANGER, CONFIG)
    for field, value in (("queue", "urgent"), ("priority", "high")):
        with pytest.raises(UserError) as raised:
            queueing(replace(REQUEST, **{field: value}), who, CONFIG)
        assert raised.value.field == field
    config = parse_config(
        FILE.replace("{class: sweeps-normal}", "{class: sweeps-normal, people: [UOWNER]}"), "c"
    )
    assert queueing(REQUEST, queue_member(OWNER, config), config).priority == "normal"
    with pytest.raises(UserError, match="Priority normal is for"):
        queueing(REQUEST, queue_member(STRANGER, config), config)
    config = parse_config(FILE.replace("  research:\n", ""), "config.yaml")
    with pytest.raises(UserError, match="Queue `urgent` is for team vision and admins"):
        queueing(REQUEST, queue_member(STRANGER, config), config)
    assert queueing(REQUEST, queue_member(ADMIN, config), config).queue == "urgent"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("queue=urgen", 'queue= must be a configured queue; got "urgen". Did you mean urgent?'),
        ("priority=hihg", 'priority= must be a configured priority; got "hihg". Did you mean high?'),
    ],
)
def test_parse_unknown_queue_names_the_choices(text, error):
    with pytest.raises(UserError) as raised:
        parse(f"branch=main space=lr {text}", CONFIG)
    assert str(raised.value) == error


def test_parse_queue_without_configuration_says_who_can_add_it():
    plain = replace(CONFIG, queues=(), priorities=())
    with pytest.raises(
        UserError, match=r"no queue is configured\. Remove queue=, or ask an admin to add one"
    ):
        parse("branch=main space=lr queue=urgent", plain)
    with pytest.raises(UserError, match="no priority is configured"):
        parse("branch=main space=lr priority=high", plain)
    assert not {"queue", "priority"} & {b.get("block_id") for b in form(a_draft(), plain)["blocks"]}


def test_form_keeps_queue_and_priority():
    asked = replace(REQUEST, queue="urgent", priority="high")
    draft = a_draft(**options_of(asked))
    assert {"queue", "priority"} <= {b.get("block_id") for b in form(draft, CONFIG)["blocks"]}
    found, errors = read_form(draft, CONFIG)
    assert (errors, found.queue, found.priority) == ({}, "urgent", "high")
