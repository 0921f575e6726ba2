"""`/gpus`: the options and the replies."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.measure.gpus.billing import bill, bill_file, by_cluster, month
from bot.measure.gpus.command import (
    ASK_OWNER,
    GROUP,
    MAX_ANSWER,
    VIEWS,
    ParsedCommand,
    answer,
    shown,
    table_of,
)
from bot.measure.gpus.hour_format import add_sums
from bot.measure.gpus.models import HOUR, Gpu, NodeUse, PodUse, Snapshot
from bot.measure.gpus.sums import Totals
from bot.platform.config.teams import Price
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import local_time
from k8s.nodes.dcgm import Load
from local.slack.validation import complaints
from tests.bot.measure.gpus.factories import hour, hour_of, lazy, stored, totals, use

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
IDLE, BUSY, UNSEEN = Gpu(device="a", peak=0, mean=0), Gpu(device="b", peak=1, mean=0.9), Gpu(device="c")
POD = PodUse(
    namespace="sweeps",
    pod="lr-brave-otter-x7-abc",
    node="n1",
    owner="U1ADA",
    team="vision",
    sweep="lr-brave-otter",
    trial="lr-brave-otter-x7",
    started=NOW - 3 * HOUR,
    allocated=2,
    gpus=(BUSY, IDLE),
)
NOTEBOOK = PodUse(
    namespace="speech", pod="notebook-0", node="n2", allocated=1, gpus=(IDLE,), started=NOW - HOUR
)
PULLING = PodUse(namespace="speech", pod="pulling-0", node="n2", team="speech", allocated=4)
NODES = (
    NodeUse(node="n1", model="NVIDIA H100", physical=8, allocatable=7, allocated=2),
    NodeUse(node="n2", model="NVIDIA H100", physical=8, allocatable=8, allocated=5),
    NodeUse(node="n3", model="NVIDIA A10", physical=2, allocatable=2, allocated=0, cordoned=True),
)
KNOWN = Snapshot(at=NOW - timedelta(seconds=40), nodes=NODES, pods=(POD, NOTEBOOK, PULLING))
MEASURED = f"Measured {local_time(KNOWN.at)}."


SAID = {
    "free": """\
*8 of 17 GPUs free*
• NVIDIA A10: 0 of 2 free
• NVIDIA H100: 8 of 15 free, largest block 5 on `n1`
:warning: GPUs unavailable: 1 on `n1`.
:warning: Cordoned or not ready: `n3`.""",
    "mine": """\
*You have 2 GPUs.*
• `lr-brave-otter-x7` of `lr-brave-otter`: 2 GPUs on `n1`, for 3 h, 45% busy, :zzz: 1 of 2 idle""",
    "team": """\
• *speech*: 4 GPUs allocated, 0 idle for 30 min, 4 not measured
• *vision*: 2 GPUs allocated, 1 idle for 30 min (<@U1ADA>)
• *no team*: 1 GPU allocated, 1 idle for 30 min""",
    "nodes": """\
• `n1` NVIDIA H100: 5 of 7 free, :warning: 1 unavailable
• `n2` NVIDIA H100: 3 of 8 free
• `n3` NVIDIA A10: 0 of 2 free, :warning: cordoned""",
    "now": """\
*7 GPUs allocated, 2 idle for 30 min, 4 not measured.*
• `lr-brave-otter-x7` of `lr-brave-otter` (<@U1ADA>): 2 GPUs on `n1`, for 3 h, 45% busy, :zzz: 1 of 2 idle
• `notebook-0` in `speech`: 1 GPU on `n2`, for 59 min, :zzz: idle
• `pulling-0` in `speech`: 4 GPUs on `n2`, not running yet, not measured""",
}


@pytest.mark.parametrize("view", VIEWS)
def test_gpus_views_show_their_data(view: str) -> None:
    assert answer(view, KNOWN, "U1ADA") == f"{SAID[view]}\n{MEASURED}"
    assert f"`/gpus {view}`" in table_of().help_of(GROUP)


@pytest.mark.parametrize(
    ("view", "lines"),
    [
        (
            "now",
            [
                "*2 GPUs allocated, 1 idle for 30 min, 3 reserved and unused.*",
                "• *Reserved, unused*: 3 GPUs (1 for speech, 2 for vision)",
                SAID["now"].splitlines()[1],
            ],
        ),
        ("team", [SAID["team"].splitlines()[1], "• *Reserved, unused*: 3 GPUs (1 for speech, 2 for vision)"]),
    ],
)
def test_placeholders_of_reservations_are_not_idle(view: str, lines: list[str]) -> None:
    held = [
        replace(NOTEBOOK, pod=f"sweepbot-reserved-{team}-1a2b3-{n}-x", team=team)
        for n, team in enumerate(("vision", "speech", "vision"))
    ]
    known = replace(KNOWN, pods=(POD, *held))
    assert answer(view, known, "U1ADA").splitlines()[:-1] == lines


def loaded(gpu: Gpu, sm: float | None, watts: float | None, memory: float | None = 70) -> Gpu:
    return replace(gpu, load=Load(sm=sm, watts=watts, memory=memory))


@pytest.mark.parametrize(
    ("gpus", "activity"),
    [
        ((loaded(BUSY, 0.76, 412),), "90% busy (SM activity 76%, 412 W, 70 GiB memory used)"),
        ((loaded(BUSY, None, 412),), "90% busy (412 W, 70 GiB memory used)"),
        (
            (loaded(BUSY, 0.02, 111),),
            "90% busy, :zzz: hardly computing (SM activity 2%, 111 W, 70 GiB memory used)",
        ),
        ((loaded(BUSY, 0.02, None, None),), "90% busy (SM activity 2%)"),
        ((loaded(IDLE, 0, 70),), ":zzz: idle (SM activity 0%, 70 W, 70 GiB memory used)"),
        (
            (loaded(BUSY, 0.02, 11, 6), loaded(BUSY, 0.14, 41, 8)),
            "90% busy, :zzz: 1 of 2 hardly computing (mean per GPU: SM activity 8%, 26 W, 7 GiB memory used)",
        ),
        ((loaded(BUSY, 0.8, 413), BUSY), "90% busy"),
    ],
)
def test_gpus_now_shows_what_is_measured_beside_utilization(gpus: tuple[Gpu, ...], activity: str) -> None:
    pod = replace(NOTEBOOK, gpus=gpus, allocated=len(gpus), started=NOW - 3 * HOUR)
    line = answer("now", replace(KNOWN, pods=(pod,)), "U1ADA").splitlines()[1]
    assert line.partition(" h, ")[2] == activity


def test_gpus_now_counts_waiting_gpus_and_shows_them_after_idle_ones() -> None:
    spin = replace(POD, trial="spin", gpus=(loaded(BUSY, 0.02, 111),) * 2)
    busy = replace(POD, trial="busy", gpus=(BUSY,) * 4, allocated=4)
    head, *pods = answer("now", replace(KNOWN, pods=(busy, spin, NOTEBOOK)), "").splitlines()[:-1]
    assert head == "*7 GPUs allocated, 1 idle for 30 min, 2 busy but hardly computing.*"
    assert [line.split("`")[1] for line in pods] == ["notebook-0", "spin", "busy"]


@pytest.mark.parametrize("view", VIEWS)
def test_gpus_views_handle_no_data_and_very_much(view: str) -> None:
    nothing = Snapshot(at=KNOWN.at, nodes=(), pods=())
    assert answer(view, nothing, "U1ADA").endswith(MEASURED)
    pods = tuple(replace(POD, pod=f"{n}" * 60, trial="<!here>" * 20, team=f"t{n}") for n in range(1000))
    nodes = tuple(replace(NODES[0], node=f"{n}" + "x" * 200, model=f"{n}<!here>") for n in range(1000))
    message = answer(view, replace(KNOWN, nodes=nodes, pods=pods), "U1ADA")
    assert len(message) < 3000
    assert "<!here>" not in message
    assert message.endswith(MEASURED)


PRICES = (Price(model="NVIDIA H100", hourly=2.5),)
DAY = datetime(2026, 11, 20, tzinfo=UTC)


def test_bill_shows_the_measured_share_of_its_month() -> None:
    half = [
        replace(hour, capacity=replace(hour.capacity, coverage=0.5)) for hour in lazy(DAY, DAY + 24 * HOUR)
    ]
    message = bill(ParsedCommand(view="bill"), totals(half), (), "$", DAY.replace(day=2) + 22 * HOUR)
    assert "_Measured: 26% of the month so far." in message
    begin = datetime(2026, 12, 1, tzinfo=UTC)
    whole = totals(lazy(begin, begin + 31 * 24 * HOUR))
    for now in (begin + 31 * 24 * HOUR, datetime(2027, 1, 31, 23, 59, tzinfo=UTC)):
        message = bill(ParsedCommand(view="bill", month="last"), whole, (), "$", now)
        assert message.startswith("*December 2026*: 5,208 GPU-h allocated")
        assert message.endswith("_Measured: 100% of the month. Months in UTC._")
    [hour] = lazy(DAY, DAY + HOUR)
    unseen = (use._replace(observed=0, used=0) for use in hour.columns.rows())
    blind = totals([hour_of(unseen, hour.capacity)])
    message = bill(ParsedCommand(view="bill"), blind, (), "$", DAY + HOUR)
    assert "*November 2026*: 7 GPU-h allocated, 7 unknown" in message
    hardly = totals([hour_of((use(DAY, "lr-1", 100, observed=99),), hour.capacity)])
    nearly = bill(ParsedCommand(view="bill"), hardly, (), "$", DAY + HOUR)
    assert nearly.splitlines()[0] == "*November 2026*: 100 GPU-h allocated, 0 used (0%)"


def test_bill_shows_allocated_and_used_hours() -> None:
    message = bill(
        ParsedCommand(view="bill"), totals(lazy(DAY, DAY + 24 * HOUR)), PRICES, "$", DAY + 24 * HOUR
    )
    assert message == (
        "*November 2026*: 168 GPU-h allocated, 67.2 used (43%), 12 unknown, at least $360\n"
        "*By team*\n"
        "• vision: 96 GPU-h allocated, 24 used (25%), $240\n"
        "• speech: 48 GPU-h allocated, 43.2 used (90%), $120\n"
        "• no team: 24 GPU-h allocated, 0 used (0%), 12 unknown\n"
        "*By person*\n"
        "• <@U1ADA>: 96 GPU-h allocated, 24 used (25%), $240\n"
        "• <@U2GRACE>: 48 GPU-h allocated, 43.2 used (90%), $120\n"
        "• unknown: 24 GPU-h allocated, 0 used (0%), 12 unknown\n"
        "*By sweep*\n"
        "• `lr-brave-otter`: 96 GPU-h allocated, 24 used (25%), $240\n"
        "• not from a sweep: 72 GPU-h allocated, 43.2 used (72%), 12 unknown, at least $120\n"
        "_Measured: 5% of the month so far. Months in UTC._ No price for NVIDIA A10."
    )
    one = bill(
        ParsedCommand(view="bill", team="speech"), totals(lazy(DAY, DAY + HOUR)), PRICES, "EUR", DAY + HOUR
    )
    assert "*November 2026, speech*: 2 GPU-h allocated, 1.8 used (90%), EUR 5.00" in one
    assert "By team" not in one
    assert "No GPU-hours recorded for November 2026." in bill(
        ParsedCommand(view="bill"), Totals(), PRICES, "$", NOW
    )


@pytest.mark.parametrize(("sweeps", "more"), [(10, ""), (12, "… and 2 more in the CSV")])
def test_bill_lists_ten_of_each_part(sweeps: int, more: str) -> None:
    uses = [use(DAY, f"lr-{n}", 1 + n, sweep=f"lr-{n}") for n in range(sweeps)]
    message = bill(ParsedCommand(view="bill"), totals([hour(DAY, *uses)]), (), "$", NOW)
    listed = message.partition("*By sweep*\n")[2].splitlines()[:-1]
    assert listed[0].startswith(f"• `lr-{sweeps - 1}`: {sweeps} GPU-h")
    assert len(listed) == 10 + bool(more)
    assert not more or listed[-1] == more
    long = [
        use(DAY, f"lr-{n}", 1, sweep=f"lr-{n}-{'x' * 200}", owner=f"U{n}", team=f"t{n}") for n in range(9)
    ]
    message = bill(ParsedCommand(view="bill"), totals([hour(DAY, *long)]), PRICES, "$", NOW)
    assert message.endswith("_Measured: 0% of the month so far. Months in UTC._")
    assert 2600 < len(message) <= MAX_ANSWER + 1


def test_bill_has_unused_reservations_as_their_own_line() -> None:
    sums, held = Totals(), use(DAY, "sweepbot-reserved-vision-1a2b3-0", 23.4, team="vision")
    add_sums(sums, stored([held, use(DAY, "nb-0", 1)], hour(DAY, held).capacity))
    lines = bill(ParsedCommand(view="bill"), sums, PRICES, "$", NOW).splitlines()
    assert [line for line in lines if "unused" in line or "unknown" in line] == [
        "• reserved, unused: 23.4 GPU-h allocated, 0 used (0%), $58.50",
        "• unknown: 1 GPU-h allocated, 0 used (0%), $2.50",
        "• reserved, unused: 23.4 GPU-h allocated, 0 used (0%), $58.50",
    ]


def test_bill_and_totals_of_several_clusters_list_those_with_gpu_hours() -> None:
    short, long = (totals(lazy(DAY, DAY + n * HOUR)) for n in (1, 2))
    sums = {"west": short, "main": long, "east": short, "new": Totals()}
    assert by_cluster(ParsedCommand(view="bill", team="vision"), sums, PRICES, "$") == (
        "*By cluster*\n"
        "• `main`: 8 GPU-h allocated, 2 used (25%), $20.00\n"
        "• `east`: 4 GPU-h allocated, 1 used (25%), $10.00\n"
        "• `west`: 4 GPU-h allocated, 1 used (25%), $10.00"
    )
    for clusters in ((short, long), (long, short)):
        whole = Totals.all(clusters)
        assert (whole.coverage, sum(use.allocated for use in whole.uses)) == (2, 21)
    assert Totals.all(()).coverage == 0


def test_bill_file_adds_up_and_has_a_column_for_several_clusters() -> None:
    day = totals(lazy(DAY, DAY + 24 * HOUR))
    lines = bill_file(ParsedCommand(view="bill"), {"main": day}, PRICES).splitlines()
    assert lines == [
        "team,owner,sweep,namespace,model,allocated,used,idle,unknown,cost",
        "vision,U1ADA,lr-brave-otter,sweeps,NVIDIA H100 80GB HBM3,96.0,24.0,72.0,0.0,240.0",
        "speech,U2GRACE,,speech,NVIDIA H100 80GB HBM3,48.0,43.2,0.0,0.0,120.0",
        ",,,sweeps,NVIDIA A10,24.0,0.0,0.0,12.0,",
    ]
    two = {"main": totals(lazy(DAY, DAY + HOUR)), "west": totals(lazy(DAY, DAY + HOUR))}
    head, *lines = bill_file(ParsedCommand(view="bill", team="vision"), two, PRICES).splitlines()
    assert head == "cluster,team,owner,sweep,namespace,model,allocated,used,idle,unknown,cost"
    assert lines == [
        f"{name},vision,U1ADA,lr-brave-otter,sweeps,NVIDIA H100 80GB HBM3,4.0,1.0,3.0,0.0,10.0"
        for name in two
    ]


@pytest.mark.parametrize(
    ("message", "begin", "end"),
    [
        ("", "2026-11-01", "2026-12-01"),
        ("last", "2026-10-01", "2026-11-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("10", "2026-10-01", "2026-11-01"),
        ("11", "2026-11-01", "2026-12-01"),
        ("12", "2025-12-01", "2026-01-01"),
    ],
)
def test_bill_accepts_months(message: str, begin: str, end: str) -> None:
    found = month(ParsedCommand(view="bill", month=message), NOW + timedelta(seconds=1, microseconds=1))
    assert [each.isoformat() for each in found] == [f"{each}T00:00:00+00:00" for each in (begin, end)]


def test_owners_of_idle_pods_outside_sweeps_can_be_asked_below_the_list() -> None:
    idle = [replace(NOTEBOOK, pod=f"n{n}", owner=f"U{n}") for n in range(2)]
    known = replace(
        KNOWN, pods=(*idle, NOTEBOOK, replace(NOTEBOOK, owner="U1ADA"), POD, replace(PULLING, owner="U3"))
    )
    parts = [answer("now", known, "U1ADA"), "Refreshing…"]
    message = shown(parts, "now", known, "U1ADA")
    assert isinstance(message, Message)
    assert message.text == "\n".join(parts)
    [ask] = message.blocks[-1]["elements"]
    assert (ask["action_id"], ask["text"]["text"], ask["value"]) == (
        ASK_OWNER,
        "Ask owners",
        "speech/n0 speech/n1",
    )
    assert complaints(list(message.blocks)) == []
    assert shown(parts, "mine", known, "U1ADA") == message.text
    assert shown(parts, "now", KNOWN, "U2BO") == message.text, "the owner is unknown, or it's a sweep's"


def test_pod_of_a_few_minutes_is_not_idle() -> None:
    young = replace(NOTEBOOK, started=NOW - timedelta(minutes=5))
    message = answer("now", replace(KNOWN, pods=(young,)), "U1ADA")
    assert "*1 GPU allocated, 0 idle for 30 min.*" in message
    assert "1 GPU on `n2`, for 4 min, 0% busy" in message
    new = replace(NOTEBOOK, started=NOW - timedelta(seconds=50))
    assert "for less than 1 min, 0% busy" in answer("now", replace(KNOWN, pods=(new,)), "U1ADA")
