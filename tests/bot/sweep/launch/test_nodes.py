"""A request with several nodes per trial: its GPUs, its limits, and what it starts at a time."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.record import Phase
from bot.platform.config.limits import Launch, Limits
from bot.platform.config.permissions import peak_gpus, size_denial
from bot.platform.config.policy import parse_config
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.form.preview import preview
from bot.sweep.form.view import Draft, form, options_of
from bot.sweep.launch.command_line import parse
from bot.sweep.launch.plan import plan
from bot.sweep.launch.queueing import Queueing, one_at_a_time
from bot.sweep.launch.resolve import look_up
from bot.sweep.model.observation import Observation
from bot.sweep.spaces.describe import as_yaml, explain
from bot.sweep.spaces.space import parse_space
from tests.bot.factories import CONFIG, NOW, ORDER, OWNER, PLAN, REQUEST, SETTINGS, SPACE, a_sweep
from tests.bot.sweep.launch.test_capacity import POOL, PROFILES, node, refusal
from tests.bot.sweep.launch.test_resolve import Files

MULTI = replace(REQUEST, gpus=8, nodes=4)
MULTI_PLAN = plan(replace(ORDER, request=MULTI), SETTINGS)


def test_parse_reads_nodes_up_to_the_limit():
    assert parse("branch=main space=lr nodes=4", CONFIG).nodes == 4
    assert parse("branch=main space=lr", CONFIG).nodes is None
    with pytest.raises(UserError, match="nodes= can be at most 2 on this cluster"):
        parse("branch=main space=lr nodes=3", replace(CONFIG, limits=Limits(nodes_per_trial=2)))
    with pytest.raises(UserError, match="nodes= must be a whole number from 1 to 8"):
        parse("branch=main space=lr nodes=0", CONFIG)


LR = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters: {lr: [1, 2, 3]}
"""
WHERE = "repositories:\n  digits: {url: https://git.example/digits.git}\n"
PAIR = parse_config(
    f"{WHERE}profiles: {{pair: {{gpus: 8, nodes_per_trial: 2}}, one: {{gpus: 8}}}}\n", "c.yaml"
)


@pytest.mark.parametrize(
    ("typed", "space", "nodes"),
    [
        ("nodes=1", "nodes: 4", 1),
        ("nodes=3", "", 3),
        ("", "nodes: 4", 4),
        ("profile=pair", "nodes: 1", 1),
        ("profile=pair", "", 2),
        ("profile=one", "", 1),
        ("", "", 2),  # the default profile's
    ],
)
async def test_nodes_of_the_command_override_the_space_file_and_that_the_profile(typed, space, nodes):
    request = parse(f"branch=main space=lr gate=off {typed}", PAIR)
    files = Files({"sweeps/lr.yaml": LR + space, "Dockerfile": "FROM scratch"})
    who = {"sweep": "s", "owner": OWNER, "request_id": "d"}
    made = plan(await look_up(files, PAIR.repositories[0], request, PAIR, **who), SETTINGS)
    assert (made.nodes, made.trial_gpus) == (nodes, nodes * 8)
    job = made.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]
    assert job.get("completions", 1) == nodes
    assert (made.space.parallel == 1) == (nodes > 1), "without a queue, one trial runs at a time"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("two", 'lr.yaml:4: nodes: must be a number; got "two"'),
        ("1.5", "lr.yaml:4: nodes: must be a whole number; got 1.5"),
        ("0", "lr.yaml:4: nodes: must be at least 1; got 0"),
        ("9", "lr.yaml:4: nodes: can be at most 8 on this cluster (limits.nodes_per_trial); got 9"),
    ],
)
def test_nodes_of_a_space_file_that_are_invalid_name_its_line(value, error):
    with pytest.raises(UserError) as refused:
        parse_space(f"{LR}nodes: {value}\n", "lr.yaml", REQUEST, Limits())
    assert error in str(refused.value)


def test_plan_counts_and_shows_the_gpus_of_all_nodes():
    assert (MULTI_PLAN.trial_gpus, MULTI_PLAN.size) == (32, "4 nodes × 8 GPUs")
    assert peak_gpus(MULTI_PLAN) == 64
    assert (PLAN.trial_gpus, PLAN.size) == (1, "1 GPU")
    shown = str(preview(Draft(channel="C1"), MULTI, MULTI_PLAN, CONFIG, free=8))
    assert "64 (2 trials × 4 nodes × 8 GPUs); 8 free now" in shown
    assert "No limit; 128 if each trial runs 1 h" in shown
    assert "Up to 64 GPU-hours: 4 nodes × 8 GPUs per trial" in explain(
        replace(SPACE, trial_hours=0.5), 8, nodes=4
    )
    space = parse_space(f"{LR}nodes: 4\ntrials: {{trial_hours: 1}}\n", "lr.yaml", REQUEST, Limits())
    assert parse_space(as_yaml(space), "lr.yaml", REQUEST, Limits()).nodes == 4
    shown = explain(replace(SPACE, command="python \x1b]0;title\x07train.py"), 1)
    assert "Example: python  ]0;title train.py --lr=" in shown


def test_size_and_capacity_denials_count_nodes():
    config = replace(CONFIG, launch=Launch(gpus=32))
    assert size_denial(OWNER, MULTI_PLAN, config).startswith(
        "This sweep needs 64 GPUs (2 parallel × 4 nodes × 8 GPUs); the limit is 32 per sweep. "
        "Lower parallel=, nodes=, or gpus=,"
    )
    two = (node(8, cpu="190", memory="1900Gi"), node(8, cpu="190", memory="1900Gi", name="gpu-2"))
    assert refusal("profile=8xh100 nodes=2", *two) == ""
    assert refusal("profile=8xh100 nodes=4", *two) == (
        "profile=8xh100 nodes=4 can't run on this cluster: each node of a trial requests 8 GPUs, 128 CPUs, "
        "and 1.562 TiB of memory, and only 2 machines have that. *Fix:* Use nodes=2."
    )
    assert "only one machine has that. *Fix:* Use nodes=1." in refusal("profile=8xh100 nodes=2", two[0])
    assert refusal("profile=8xh100 nodes=2", node()).startswith(
        "profile=8xh100 can't run on this cluster: each node of a trial requests 8 GPUs"
    )
    pool = parse_config(PROFILES + POOL, "c.yaml")
    assert refusal("profile=1xh100 nodes=4", config=pool) == ""


def test_one_at_a_time_without_a_queue_sets_parallel_and_says_why():
    space = one_at_a_time(SPACE, 4, MULTI, Queueing())
    assert space.parallel == 1
    [note] = space.notes
    assert note == (
        "nodes=4: one trial runs at a time, because two half-started trials could wait for each other's "
        "nodes. Use a queue, or set parallel= to run several."
    )


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        (REQUEST, Queueing()),
        (MULTI, Queueing(queue="research")),
        (replace(MULTI, parallel=2), Queueing()),
    ],
)
def test_one_at_a_time_keeps_what_starts_together_or_was_set(request_, place):
    assert one_at_a_time(SPACE, request_.nodes or 1, request_, place) == SPACE


def test_form_has_nodes_where_several_are_allowed():
    draft = Draft(options=options_of(MULTI), channel="C1")
    blocks = {b["block_id"]: b for b in form(draft, CONFIG)["blocks"] if b["type"] == "input"}
    assert blocks["nodes"]["element"]["initial_value"] == "4"
    one = replace(CONFIG, limits=Limits(nodes_per_trial=1))
    assert "nodes" not in {b.get("block_id") for b in form(draft, one)["blocks"]}


@pytest.mark.features("nodes")
def test_submission_creates_the_service_before_the_experiment():
    sweep = a_sweep(Phase.PENDING, plan=MULTI_PLAN, image="registry/x@sha256:1")
    assert [each["kind"] for each in required_changes(sweep, Observation(), NOW).create] == [
        "Service",
        "Experiment",
    ]
    single = replace(sweep, plan=PLAN)
    assert [each["kind"] for each in required_changes(single, Observation(), NOW).create] == ["Experiment"]
