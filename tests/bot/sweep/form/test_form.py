"""The form as a value: options become a view for Slack, and a view's state becomes options."""

import json
from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.request import Notify, SweepRequest
from bot.platform.config.limits import Limits
from bot.platform.config.policy import Config
from bot.platform.config.profiles import Profile
from bot.platform.config.repositories import Repository
from bot.platform.config.teams import Price
from bot.platform.repos.catalog import GitNames, Name
from bot.sweep.form.preview import preview
from bot.sweep.form.view import (
    MAX_METADATA,
    Draft,
    checking,
    errors_by_block,
    errors_by_field,
    expired,
    form,
    launched,
    metadata,
    options_of,
    read,
    request,
)
from bot.sweep.launch.plan import plan
from handlers.menus import names, repositories
from local.slack import validation
from local.slack.views import initial
from tests.bot.factories import CONFIG, NOW, ORDER, PLAN, REQUEST, SETTINGS
from tests.cases import cases

SAID = {"branch": "main", "space": "lr"}
SPACE = "command: python t.py\nobjective: {metric: loss, goal: minimize}\nparameters: {w: [a, b]}\n"
WORST = "ﷺ*_~`<!channel>&" * 20  # escapes to several times its length


def shown(view):
    """Return the view as Slack sends it back without input."""
    assert validation.view_complaints(view, view["type"]) == []
    blocks = validation.completed(view["blocks"])
    values = {block: {one["action_id"]: initial(one)} for block, one in validation.elements(blocks)}
    return view | {"blocks": blocks, "state": {"values": values}}


def fields(view):
    return [block["element"]["action_id"] for block in view["blocks"] if block["type"] == "input"]


def words(view):
    return json.dumps(view["blocks"], ensure_ascii=False)


@cases(
    "asked",
    [
        REQUEST,
        SweepRequest(branch="fix/loss", space="wide", gpus=2, parallel=3, trials=9, algorithm="grid"),
        SweepRequest(branch="main", space="lr", cmd="python a.py --x='1'", notify=Notify.DM, name="night"),
        SweepRequest(branch="main", space="lr", repo="digits", image="registry:5000/lab/ready:1"),
        SweepRequest(branch="main", space="written", text=SPACE.rstrip(), gpus=1),
        SweepRequest(branch="main", space="lr", commit="0123" * 10),
        SweepRequest(branch="main", space="lr", parallel=8, auto=True),
        SweepRequest(
            branch="main", space="seeds", seeds="0-4", cmd="python t.py", metric="acc", goal="maximize"
        ),
    ],
)
def test_form_round_trips_a_request(asked):
    draft = Draft(options=options_of(asked), channel="C1", inline=asked.text is not None)
    again, wrong = request(read(shown(form(draft, CONFIG))), CONFIG)
    assert wrong == {}
    assert again == replace(asked, repo=asked.repo or "digits", commit=None)


def test_form_reports_errors_at_its_field_and_line_within_slacks_limit():
    draft = Draft(options=SAID | {"trials": "2", "parallel": "4", "branch": "-"}, channel="C1")
    view = shown(form(draft, CONFIG))
    asked, wrong = request(read(view), CONFIG)
    assert asked is None
    found = {block.partition(":")[0]: text for block, text in errors_by_block(view, wrong).items()}
    assert found.keys() == {"branch", "parallel"}
    assert "got parallel=4, trials=2" in found["parallel"]
    draft = Draft(options={"branch": "main", "text": SPACE + "trials: {max: 0}\n"}, channel="C1", inline=True)
    view = shown(form(draft, CONFIG))
    assert "text" in fields(view)
    asked, wrong = request(read(view), CONFIG)
    assert asked is None
    assert errors_by_block(view, wrong) == {"text": "your space:4: trials.max: must be at least 1; got 0"}
    view = form(Draft(options={"text": "x"}, channel="C1", inline=True), CONFIG)
    [sentence] = errors_by_block(view, {"text": "the space: " * 1_000}).values()
    assert len(sentence) <= 1_000


def test_form_restores_the_inline_text_and_fits_slacks_limits():
    written = Draft(options={"branch": "main", "text": SPACE}, channel="C1", inline=True)
    chosen = shown(form(replace(read(shown(form(written, CONFIG))), inline=False), CONFIG))
    assert "text" not in fields(chosen)
    assert read(chosen).options["text"] == SPACE.rstrip()
    many = tuple(Repository(name=f"r{n}" * 40, url=f"https://git.example/{'x' * 200}") for n in range(300))
    config = Config(repositories=many, limits=Limits(trials=10**9), allowed_urls=("https://git.example/",))
    options = dict.fromkeys(("repo", "branch", "space", "cmd", "image", "name", "trials", "text"), WORST * 10)
    wrong = dict.fromkeys(("", "repo", "branch", "space", "cmd", "text"), WORST * 40)
    for writes in (False, True):
        draft = Draft(options=options, channel="C1", inline=writes)
        worst = REQUEST.__class__(branch=WORST, space="x", cmd=WORST, text=WORST, name=None)
        made = plan(replace(ORDER, request=REQUEST), SETTINGS)
        made = replace(made, subject=WORST, recipe=WORST * 10, space=replace(made.space, command=WORST * 9))
        for view in (
            form(draft, config, wrong),
            checking(draft),
            expired(draft, WORST),
            launched(draft, "x" * 27),
            preview(draft, worst, made, config),
        ):
            shown(view)
            assert len(view.get("private_metadata", "")) <= MAX_METADATA
    long = dict.fromkeys(("repo", "branch", "name", "image"), "\x01" * 300)
    hidden = metadata(Draft(options={**long, "text": '"' * 1_000}, channel="C1"), commit="a" * 40)
    assert len(hidden) <= MAX_METADATA
    assert {"channel": "C1", "commit": "a" * 40}.items() <= json.loads(hidden).items()
    evil = "`<!channel> <@U1> <https://evil|here> *"
    draft = Draft(options={"branch": evil, "space": "x", "text": evil, "cmd": evil}, channel="C1")
    asked = SweepRequest(branch=evil, space="x", name=evil)
    space = replace(PLAN.space, command=evil, metric=evil, image=evil)
    for made in (replace(PLAN, subject=evil, recipe=evil, space=space), replace(PLAN, recipe=evil)):
        message = words(preview(draft, asked, made, CONFIG))
        assert "<!channel>" not in message
        assert "<@U1>" not in message
        assert "<https:" not in message
        assert "```" not in message.replace("```\\n", "").replace("\\n```", "")


@pytest.mark.parametrize(
    ("about_what", "writes", "field"),
    [
        ("branch", False, "branch"),
        ("repo", False, "repo"),
        ("space", False, "space"),
        ("space", True, "text"),
        ("trials", False, "trials"),
        ("image", False, ""),
        ("", False, ""),
    ],
)
def test_worker_errors_are_routed_to_their_form_field(about_what, writes, field):
    draft = Draft(options=SAID, channel="C1", inline=writes)
    wrong = errors_by_field(UserError("<sweeps/lr.yaml>: no", field=about_what), draft)
    assert wrong == {field: "&lt;sweeps/lr.yaml&gt;: no"}
    blocks = form(draft, CONFIG, wrong)["blocks"]
    place = next(i for i, b in enumerate(blocks) if "sweeps/lr.yaml&" in json.dumps(b, ensure_ascii=False))
    before = blocks[place - 1].get("block_id", "") if place else ""
    assert before.partition(":")[0] == field


def test_preview_sums_up_the_sweep():
    config = replace(CONFIG, prices=(Price(model="A", hourly=1.5), Price(model="H", hourly=3.0)))
    text = words(preview(Draft(options=SAID, channel="C1"), REQUEST, PLAN, config, free=3))
    for fact in (
        "4, random search",
        "2 (2 trials × 1 GPU); 3 free now",
        "No limit; 4 if each trial runs 1 h (up to $12.00)",
        "python train.py --lr=0.0001 --layers=1 --optimizer=adam",
        "`01234567` “Try a wider net”",
        "Minimize `val_loss`",
    ):
        assert fact in text
    config = replace(CONFIG, prices=(Price(model="A", hourly=1.5),))
    plan = replace(PLAN, space=replace(PLAN.space, trial_hours=2.5), gpus=2)
    text = words(preview(Draft(options=SAID, channel="C1"), REQUEST, plan, config))
    assert "Up to 20 ($30.00)" in text
    weeks = replace(plan, space=replace(plan.space, trial_hours=168, max_trials=6000))
    text = words(preview(Draft(options=SAID, channel="C1"), REQUEST, weeks, config))
    assert "Up to 2,016,000 ($3,024,000)" in text
    space = replace(PLAN.space, algorithm="tpe", settings={"gamma": "0.3"})
    text = words(preview(Draft(options=SAID, channel="C1"), REQUEST, replace(PLAN, space=space), CONFIG))
    assert "4, tpe search, gamma=0.3" in text
    assert "*Example trial* (actual values are sampled)" in text
    view = preview(Draft(channel="C1"), REQUEST, replace(PLAN, profile="1xh100"), CONFIG)
    assert "`1xh100`: 1 GPU per trial" in words(view)


def test_menu_lists_matches_with_the_last_branch_first_within_slacks_limits():
    known = GitNames(names=tuple(Name(name=n) for n in ("dev", "fix/loss", "main", "wide")), at=NOW)

    def offered(typed, known=known):
        return [one["value"] for one in names(known, typed, first=["wide"])]

    assert offered("") == ["wide", "main", "dev", "fix/loss"]
    both = GitNames(names=(Name(name="main"), Name(name="master")), at=NOW)
    assert [one["value"] for one in names(both, "", first=["master"])] == ["master", "main"]
    assert offered("LOSS") == ["fix/loss", "LOSS"]
    assert offered("v1.0") == ["v1.0"]  # a tag, perhaps
    assert offered("main") == ["main"]
    assert offered("", GitNames()) == ["-"]
    late = names(replace(known, error="https://git.example didn't respond within 60 s"), "wi")
    assert [one["value"] for one in late] == ["wide", "wi", "-"]
    assert late[-1]["text"]["text"].startswith("⚠ https://git.example did")
    known = GitNames(
        names=tuple(Name(name=f"{n}" + WORST[: n % 200], about=WORST) for n in range(2000)),
        at=NOW,
        error="x" * 500,
    )
    for typed in ("", "1", WORST, "x" * 149):
        assert validation.options_complaints({"options": names(known, typed, first=["7"])}) == []
    many = tuple(Repository(name=f"r{n}", url=f"https://git.example/{'x' * 200}") for n in range(300))
    config = Config(repositories=many, allowed_urls=("https://git.example/",))
    for typed in ("", "https://git.example/other"):
        assert validation.options_complaints({"options": repositories(config, typed)}) == []


def test_form_with_profiles_offers_them_with_their_size():
    shape = {"cpu": "16", "memory": "200Gi"}
    profiles = (Profile(name="1xh100", gpus=1, **shape), Profile(name="cpu", gpus=0, cpu="4"))
    config = replace(CONFIG, profiles=profiles)
    view = shown(form(Draft(options=SAID | {"profile": "cpu"}, channel="C1"), config))
    assert "cpu: 4 CPUs" in words(view)
    assert "1xh100: 1 GPU, 16 CPUs, and 200 GiB of memory" in words(view)
    asked, errors = request(read(view), config)
    assert (asked.profile, asked.gpus, errors) == ("cpu", 0, {})
    again = shown(form(Draft(options=options_of(asked), channel="C1"), config))
    assert request(read(again), config)[0] == asked
    assert "profile" not in fields(form(Draft(options=SAID, channel="C1"), CONFIG))
    nodes = _by_block(form(Draft(channel="C1", more=True), CONFIG))["nodes"]
    assert nodes["hint"]["text"] == "Each node has the GPUs above."


def _by_block(view):
    return {each["block_id"]: each for each in shown(view)["blocks"]}


def test_form_has_five_fields_and_those_with_a_value_until_more_are_asked_for():
    """No value is hidden: a field that has one, or an error, is shown."""
    five = fields(form(Draft(channel="C1"), CONFIG))
    assert five == ["sweep_repo", "sweep_branch", "sweep_space", "gpus", "trials"]
    few = form(Draft(options={"parallel": "3"}, channel="C1"), CONFIG, {"metric": "No."})
    assert {*fields(few)} - {"parallel", "metric"} == {*five}
    assert "sweep_more" in str(few)
    whole = form(replace(read(shown(few)), more=True), CONFIG)
    assert "sweep_more" not in str(whole)
    assert {"parallel", "metric", "algorithm", "notify"} <= {*fields(whole)}
    again = read(shown(whole))
    assert (again.more, again.options["parallel"]) == (True, "3")
