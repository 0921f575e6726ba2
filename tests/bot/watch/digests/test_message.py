"""The digest's message and thread."""

from dataclasses import replace
from datetime import date, datetime, timedelta

from hypothesis import given

from bot.measure.gpus.command import VIEWS, answer
from bot.measure.gpus.models import HOUR, Hour, HourUse, NodeUse, PodUse, Snapshot
from bot.measure.gpus.overrequest import GIB, ram_peaks, with_past_peaks
from bot.measure.gpus.sums import Totals
from bot.platform.config.teams import Price
from bot.watch.digests.chart import alt_text
from bot.watch.digests.details import details, table
from bot.watch.digests.figures import Figures, figures
from bot.watch.digests.message import DigestContext, Waiting, headline, message
from local.slack.validation import complaints, too_long
from tests.bot.measure.gpus.factories import hour, lazy, use
from tests.bot.platform.slack.test_escaping import NASTY, safe
from tests.bot.watch.digests.days import BERLIN, DAY, NODES, PRICES, of


def blocks(figures: Figures, now: DigestContext) -> str:
    return str(message(figures, now, "F1").blocks)


def texts(found: Figures) -> list[list[str]]:
    """Return the cells of the message's table."""
    [table] = [block for block in message(found, DigestContext()).blocks if block["type"] == "table"]
    return [[cell["text"] for cell in row] for row in table["rows"]]


def test_table_sums_underused_gpu_hours_by_team_and_of_the_others() -> None:
    begin, _ = BERLIN.window(DAY)
    teams = [f"team-{n}" for n in range(7)]
    day = [
        hour(
            at,
            *(use(at, f"{team}/a", 8 - n, 0.1, owner=f"U{n % 2}", team=team) for n, team in enumerate(teams)),
        )
        for at in (begin + n * HOUR for n in range(24))
    ]
    found = figures(BERLIN, DAY, day, Totals(), PRICES)
    assert [row[0] for row in texts(found)] == ["Team", *teams[:5], "2 others"]
    assert [row[4] for row in texts(found)[1:]] == ["190", "166", "142", "118", "93.6", "115"]
    assert [(row.name, round(row.underused, 1)) for row in found.people] == [("U0", 470.4), ("U1", 352.8)]
    assert [len(row) for row in texts(of())] == [4] * 4  # a day without


def test_headline_names_the_measured_share() -> None:
    begin, end = BERLIN.window(DAY)
    half = figures(BERLIN, DAY, lazy(begin, end - 12 * HOUR), Totals(), PRICES)
    assert headline(half, DigestContext()).startswith("GPU digest, Fri, Nov 20 (50% measured): 36 of 84")
    assert "50% measured." in blocks(half, DigestContext())
    assert "–" in blocks(half, DigestContext())  # no data for the week before
    none = figures(BERLIN, DAY, (), Totals(), PRICES)
    reported = headline(none, DigestContext())
    assert reported == "GPU digest, Fri, Nov 20: no data; GPU metrics were unavailable."


def test_message_of_a_team_lists_its_people() -> None:
    found = of(replace(BERLIN, team="vision"))
    assert (found.total.allocated, found.free) == (96, 192)
    assert [row.name for row in found.rows] == ["U1ADA"]
    shown = message(found, DigestContext(names={"U1ADA": "Ada"}), "")
    assert shown.text.startswith("GPU digest, Fri, Nov 20, vision: 72 of 96")
    assert "Ada" in str(shown.blocks)


def test_message_of_a_team_says_what_is_of_all_teams() -> None:
    team, everyone = (blocks(of(replace(BERLIN, team=name)), DigestContext()) for name in ("vision", ""))
    assert "unknown 0  ·  all teams: capacity 360 GPU-h, free 192, unhealthy 24" in team
    assert "*All teams*\\n:hourglass_flowing_sand: Queued: 48 GPU-hours." in team
    assert "'alt_text': 'Chart of GPUs of all teams by hour on November 20" in team
    assert "ll teams" not in everyone
    assert "capacity 360 GPU-h  ·  allocated 168 (47%)" in everyone


def test_unused_reservations_have_their_own_line() -> None:
    begin, _ = BERLIN.window(DAY)
    held = [use(begin, f"sweepbot-reserved-{team}-1a2b3-0", 8, team=team) for team in ("vision", "speech")]
    found = figures(BERLIN, DAY, [hour(begin, *held)], Totals(), PRICES)
    assert "GPU digest, Fri, Nov 20 (4% measured): 0 of 16 GPU-hours allocated." in blocks(
        found, DigestContext()
    )
    assert "unknown 0  ·  reserved, unused 16  ·  free 0" in blocks(found, DigestContext())
    assert details(found, DigestContext()) == (
        "*By person*\n*Reserved, unused*\n• speech: 8 GPU-h, $20.00\n• vision: 8 GPU-h, $20.00"
    )
    assert "reserved 16; free" not in alt_text(of())
    assert alt_text(found).endswith("GPU-hours: capacity 16; reserved 16.")


def test_most_idle_has_a_button_beside_each_pod_whose_owner_can_be_asked() -> None:
    begin, _ = BERLIN.window(DAY)
    mine = {"owner": "U1ADA"}
    uses = [
        use(begin, "vision/notebook", 1, 0, 1, **mine),
        use(begin, "vision/unowned", 1, 0, 1),
        use(begin, "vision/far", 1, 0, 1, cluster="west", **mine),
        use(begin, "homes/env-lab-0", 1, 0, 1, **mine),
        use(begin, "sweeps/t-1", 1, 0, 1, sweep="lr-brave-otter", **mine),
    ]
    found = figures(BERLIN, DAY, [hour(begin, *uses)], Totals(), PRICES, "homes")
    shown = message(found, DigestContext(), "")
    beside = {
        line.split("`")[1]: block.get("accessory", {}).get("value")
        for block in shown.blocks
        for line in block.get("text", {}).get("text", "").splitlines()
        if "GPU-h idle" in line
    }
    assert beside == {
        "homes/env-lab-0": None,
        "lr-brave-otter": None,
        "west/vision/far": None,
        "vision/unowned": None,
        "vision/notebook": "vision/notebook",
    }
    assert complaints(list(shown.blocks)) == []


def test_message_of_a_quiet_team_ignores_waiting_pods() -> None:
    speech = of(replace(BERLIN, team="speech"))
    assert (speech.waited, speech.unhealthy) == (48, 24)
    shown = message(speech, DigestContext(), "F1")
    assert (shown.text, shown.blocks) == (
        "GPU digest, Fri, Nov 20, speech: 48 GPU-hours allocated, 90% used. Nothing to report.",
        (),
    )
    robots = message(of(replace(BERLIN, team="robots")), DigestContext(nodes=NODES), "F1")
    assert (robots.text, robots.blocks) == (
        "GPU digest, Fri, Nov 20, robots: no GPUs allocated. 8 of 15 GPUs free now.",
        (),
    )


def test_headline_has_cost_and_free_gpus() -> None:
    now = DigestContext(nodes=NODES)
    assert headline(of(), now) == (
        "GPU digest, Fri, Nov 20: 72 of 168 allocated GPU-hours idle (43%), "
        "at least $180 at $2.50/GPU-h. "
        "8 of 15 GPUs free now."
    )
    assert "$" not in headline(of(prices=()), now)
    assert "No price for" not in str(message(of(prices=()), now).blocks)
    priced = message(of(prices=(Price(model="A100", hourly=1),)), replace(now, has_prices=True))
    assert "No price for NVIDIA A10 and NVIDIA H100 80GB HBM3." in str(priced.blocks), "key in no name"


def test_message_of_an_underused_day_names_every_part() -> None:
    begin, _ = BERLIN.window(DAY)
    times = [begin + n * HOUR for n in range(24)]
    bursts = {at: use(at, "a", 8, 0.4, owner="U1ADA") for at in times}
    found = figures(BERLIN, DAY, [hour(at, each) for at, each in bursts.items()], Totals(), PRICES)
    assert headline(found, DigestContext()) == (
        "GPU digest, Fri, Nov 20: 182 of 192 allocated GPU-hours paused in jobs with less than 15% use."
    )
    shown = blocks(found, DigestContext())
    assert (
        "allocated 192 (50%)  ·  used 9.6 (5% of allocated)  ·  pauses 182  ·  idle 0  ·  unknown 0" in shown
    )
    assert (
        "*Most idle or underused*\\n• `sweeps/a` (U1ADA): 8 GPUs, 0 of 192 GPU-h idle, $0.00, 5% used"
        in shown
    )
    assert texts(found) == [
        ["Team", "Used (GPU-h)", "Idle (GPU-h)", "Idle cost", "Underused (GPU-h)"],
        ["no team", "5% of 192", "0", "$0.00", "182"],
    ]
    assert "Underused: pauses of jobs with less than 15% use." in shown
    assert "• U1ADA: 192 GPU-h, 5% used, 0 idle, 182 underused, $480" in details(found, DigestContext())
    idle = [hour(at, each, use(at, "b", 1, 0, 1)) for at, each in bursts.items()]
    assert "less than 15% use; 24 idle, $60.00 at $2.50/GPU-h." in headline(
        figures(BERLIN, DAY, idle, Totals(), PRICES), DigestContext()
    )


def test_message_shows_the_prices_of_its_hours() -> None:
    begin, _ = BERLIN.window(DAY)
    models = (("H100", 8), ("A100", 8), ("L4", 0))
    uses = [use(begin, model, 8, 0, idle, model=model) for model, idle in models]
    prices = tuple(
        Price(model=model, hourly=price) for model, price in (("H100", 2.5), ("A100", 1.5), ("L4", 0.5))
    )
    found = figures(BERLIN, DAY, [hour(begin, *uses)], Totals(), prices)
    assert "$32.00 at $1.50–$2.50/GPU-h." in headline(found, DigestContext())
    assert "Prices per GPU-hour: A100 $1.50, H100 $2.50, and L4 $0.50." in blocks(found, DigestContext())
    assert "Prices" not in blocks(of(prices=()), DigestContext())


def test_price_beside_the_cost_is_the_one_that_was_charged() -> None:
    begin, _ = BERLIN.window(DAY)
    prices = (Price(model="H100", hourly=2.5), Price(model="H100", hourly=1.8, team="vision"))

    def shown(*uses: HourUse) -> tuple[str, str]:
        found = figures(BERLIN, DAY, [hour(begin, *uses)], Totals(), prices)
        return headline(found, DigestContext()), blocks(found, DigestContext())

    vision = use(begin, "a", 8, 0, 8, model="H100", team="vision")
    speech = use(begin, "b", 8, 4, 0, model="H100", team="speech")
    first, text = shown(vision, speech)
    assert "$14.40 at $1.80/GPU-h." in first
    assert "Prices per GPU-hour: H100 $1.80–$2.50." in text
    first, _ = shown(vision, speech._replace(idle=4, price=3))
    assert "$26.40 at $1.80–$3.00/GPU-h." in first


def test_message_of_a_quiet_day_is_one_line() -> None:
    begin, _ = BERLIN.window(DAY)
    busy = [hour(begin + n * HOUR, use(begin + n * HOUR, "a", 2, 1.9)) for n in range(24)]
    shown = message(figures(BERLIN, DAY, busy, Totals(), ()), DigestContext(missed=(date(2026, 11, 18),)))
    assert shown.blocks == ()
    assert shown.text == (
        "GPU digest, Fri, Nov 20: 48 GPU-hours allocated, 95% used. Nothing to report. Missed digest: Nov 18."
    )
    empty = [hour(begin + n * HOUR) for n in range(24)]
    assert headline(figures(BERLIN, DAY, empty, Totals(), ()), DigestContext()) == (
        "GPU digest, Fri, Nov 20: 0 of 384 GPU-hours allocated."
    )


def test_message_shows_queue_and_free_nodes_without_mentions() -> None:
    now = DigestContext(
        names={"U1ADA": "ada"},
        links={"lr-brave-otter": "https://lab.slack.com/archives/C1/p1"},
        nodes=(*NODES, NodeUse(node="n3", physical=4, allocatable=4, allocated=0, cordoned=True)),
        waiting=(Waiting(sweep="wd-calm-fox", trials=3, hours=2.5),),
    )
    shown = blocks(of(), now)
    for part in (
        "<https://lab.slack.com/archives/C1/p1|lr-brave-otter> (ada): 4 GPUs, 72 of 96 GPU-h idle",
        ":hourglass_flowing_sand: Queued: 48 GPU-hours. Peak 3 pods (2 GPUs), longest wait 5.5 h.",
        ":hourglass_flowing_sand: Waiting to start: `wd-calm-fox`, 3 trials, 2.5 h",
        "6 GPUs on `n2`",
        ":warning: GPUs unavailable: 1 on `n1`.",
        ":warning: Cordoned or not ready: `n3`.",
    ):
        assert part in shown
    assert "<@" not in shown + details(of(), now)


REQUESTED = {"gpus": 2, "cpu_requested": 32.0, "ram_requested": 256.0 * GIB, "owner": "U1ADA"}


def asking(*hours: float, before: float = 0.0, **more: object) -> str:
    """The thread of a day with a pod that had used so many GiB at most in each of some hours, and before."""
    begin, _ = BERLIN.window(DAY)
    asked = REQUESTED | more

    def at(hour_: datetime, peak: float) -> Hour:
        return hour(hour_, use(hour_, "lr-1", 2, 1.9, cpu_mean=1.2, ram_peak=peak * GIB, **asked))

    known = [at(begin + number * HOUR, peak) for number, peak in enumerate(hours)]
    found = figures(BERLIN, DAY, known, Totals(), ())
    peaks = ram_peaks(at(begin - HOUR, before).columns)
    found = replace(found, overrequests=with_past_peaks(found.overrequests, peaks))
    return details(found, DigestContext(names={"U1ADA": "ada"}))


def test_details_list_overrequested_cpu_and_memory() -> None:
    assert asking(20, 7, 7).endswith(
        "• ada, `lr-1`: 32 cores requested, 1.2 used; 256 GiB requested, 20.0 peak"
    )
    assert asking(20, sweep="lr-brave-otter").endswith(
        "ada, `lr-brave-otter`: 32 cores requested, 1.2 used; 256 GiB requested, 20.0 peak"
    )
    assert "Overrequested" not in asking(20, cpu_requested=2.0, ram_requested=2.0**30)
    assert "Overrequested" not in asking(20, gpus=4)  # that was half an hour
    assert "ada: 96 GPU-h, 25% used, 72 idle, $240" in details(of(), DigestContext(names={"U1ADA": "ada"}))


def test_overrequest_counts_the_peak_memory() -> None:
    """While its data is loaded a pod needs the most, perhaps the day before."""
    assert asking(200, 7, 7).endswith("32 cores requested, 1.2 used")
    assert asking(7, 7, before=200).endswith("32 cores requested, 1.2 used")


def test_most_idle_shows_gpus_that_are_never_used() -> None:
    begin, _ = BERLIN.window(DAY)
    known = {"sweep": "lr-brave-otter", "gpus": 4, "owner": "U1ADA"}

    def line(*unused: int, pods: int = 1, **more: object) -> str:
        day = [
            hour(at, *(use(at, f"lr-{n}", 4, 1, 3, unused=each, **known | more) for n in range(pods)))
            for at, each in ((begin + number * HOUR, each) for number, each in enumerate(unused))
        ]
        return blocks(figures(BERLIN, DAY, day, Totals(), ()), DigestContext())

    assert "6 of 8 GPU-h idle, 2 of 4 GPUs unused" in line(3, 2)
    assert "2 of 4 GPUs unused in each of 3 pods" in line(3, 2, pods=3)
    for none in (line(4, 0), line(4, 4), line(3, 3, gpus=0), line(3, 3, observed=2.0)):
        assert "unused" not in none


def test_table_has_each_hour_of_each_pod_and_no_formulas() -> None:
    lines = table(of(), DigestContext(names={"U1ADA": "=HYPERLINK(1)"})).splitlines()
    assert len(lines) == 1 + 3 * 24
    assert lines[1] == (
        "2026-11-19T23:00Z,sweeps,lr-1,n1,NVIDIA H100 80GB HBM3,U1ADA,'=HYPERLINK(1),"
        "vision,lr-brave-otter,4,4,1.0,3.0,0.0"
    )


def test_message_of_maximum_size_passes_slacks_limits() -> None:
    begin, _ = BERLIN.window(DAY)
    long, wild = "x" * 253, "<!channel> *&`_~" + "😀" * 200 + "שלום"
    asked = {"gpus": 8, "unused": 4, "cpu_requested": 64.0, "cpu_mean": 0.0}
    asked |= {"team": long[:63], "model": wild}
    uses = [use(begin, f"{long[:63]}/{n}{long}"[:300], 8, 0, 8, owner=f"U{n}", **asked) for n in range(500)]
    sweeps = {f"{n}{long[:60]}": "https://lab.slack.com/" + "p" * 200 for n in range(500)}
    uses += [use(begin, f"s{n}", 8, 0, 8, sweep=sweep, owner=f"U{n}") for n, sweep in enumerate(sweeps)]
    found = figures(BERLIN, DAY, [hour(begin, *uses, unhealthy=9, waited=1e6)], Totals(), PRICES)
    now = DigestContext(
        names={f"U{n}": wild for n in range(500)},
        links=sweeps,
        nodes=tuple(replace(NODES[0], node=f"{n}{long}", model=wild, cordoned=True) for n in range(500)),
        waiting=tuple(Waiting(sweep=sweep, trials=500, hours=1e4) for sweep in sweeps),
        missed=tuple(DAY - timedelta(days=n) for n in range(500)),
        currency="EUR",
    )
    shown = message(found, now, "F" * 20)
    assert complaints(list(shown.blocks)) == []
    assert not too_long(list(shown.blocks))
    assert len(shown.text) < 4000
    assert len(details(found, now)) < 3000
    assert len(alt_text(found)) < 2000
    assert "<!channel>" not in str(shown.blocks) + shown.text + details(found, now)


@given(NASTY, NASTY, NASTY)
def test_message_escapes_names_that_people_chose(name: str, model: str, sweep: str) -> None:
    begin, _ = BERLIN.window(DAY)
    asked = {"gpus": 8, "cpu_requested": 64.0, "cpu_mean": 0.0}
    lazy_pod = use(begin, "nb", 8, 0, 8, owner="U1", model=model, sweep=sweep, **asked)
    node = replace(NODES[0], model=model)
    now = DigestContext(names={"U1": name}, nodes=(node,))
    found = figures(BERLIN, DAY, [hour(begin, lazy_pod)], Totals(), PRICES)
    shown = message(found, now)
    assert complaints(list(shown.blocks)) == []
    for block in shown.blocks:
        for part in (block.get("text"), *block.get("elements", ())):
            assert part is None or safe(part["text"])
    safe(details(found, now))
    pod = PodUse(namespace="a", pod=sweep, node="n", allocated=1, trial=name, sweep=sweep)
    known = Snapshot(at=begin, nodes=(node,), pods=(pod,))
    for view in VIEWS:
        safe(answer(view, known, "U1"))
