"""The home tab's view."""

from dataclasses import replace
from datetime import date

from bot.core.events import Progress
from bot.core.record import Phase
from bot.core.request import Requester
from bot.core.sweep_summary import summary_of
from bot.measure.gpus.command import answer
from bot.measure.gpus.models import NodeUse, Snapshot
from bot.platform.config.teams import Team
from bot.watch.digests.latest import LatestDigest
from bot.watch.home.view import MAX_FINISHED, MAX_MINE, MAX_OTHERS, HomeFacts, home, shown
from local.slack import validation
from tests.bot.factories import CONFIG, NOW, OWNER, STRANGER, a_sweep

TEAMS = replace(CONFIG, teams=(Team(name="vision", members=(OWNER, STRANGER)),))
WORST = "ﷺ*_~`<!channel>&" * 20


def a_sweep_of(user, name, phase=Phase.RUNNING, **changes):
    requester = Requester(user=user, user_name=user.lower(), channel="C1")
    return a_sweep(phase, id=name, requester=requester, **changes)


def facts(sweeps, **seen):
    records = {sweep.id: sweep for sweep in sweeps}
    return HomeFacts(sweeps=[summary_of(sweep) for sweep in sweeps], records=records, **seen)


def digest(headline, link):
    return LatestDigest(day=date(2026, 11, 27), headline=headline, link=link)


def words(view):
    assert validation.view_complaints(view, "home") == []
    texts = [block.get("text", {}).get("text", "") for block in view["blocks"]]
    buttons = [e for block in view["blocks"] if block["type"] == "actions" for e in block["elements"]]
    return "\n".join(texts), [(b["text"]["text"], b.get("url") or b.get("value")) for b in buttons]


def test_home_shows_own_and_team_sweeps_queue_gpus_and_digest():
    sweeps = [
        a_sweep_of(OWNER, "mine-runs", permalink="https://s/mine-runs", progress=Progress(running=2)),
        a_sweep_of(OWNER, "mine-ended", Phase.SUCCEEDED),
        a_sweep_of(STRANGER, "mate-waits"),
        a_sweep_of("U9", "other-builds", Phase.BUILDING),
        a_sweep_of("U9", "awaits-approval", Phase.OPENING),
    ]
    node = NodeUse(node="a", model="A100", physical=8, allocatable=8, allocated=5)
    seen = facts(
        sweeps,
        gpus=answer("free", Snapshot(at=NOW, nodes=(node,), pods=()), OWNER),
        digest=digest("80% used, 20% idle", "https://lab.slack.com/archives/C1/p1"),
    )
    text, buttons = words(home(OWNER, seen, TEAMS))
    places = [text.index(title) for title in ("My sweeps", "Team vision", "Queued", "GPUs", "Latest digest")]
    assert places == sorted(places)
    assert text.index("mine-ended") < text.index("Team vision") < text.index("*mate-waits*")
    for fact in (
        "• *mate-waits* · ustranger · trials waiting",
        "• *other-builds* · u9 · building image",
        "• *awaits-approval* · u9 · not started",
        "3 of 8 GPUs free",
        "<https://lab.slack.com/archives/C1/p1|80% used, 20% idle>",
    ):
        assert fact in text
    assert "• *mine-runs*" not in text
    assert "*<https://s/mine-runs|mine-runs>*" in text
    assert [value for word, value in buttons if word == "Cancel sweep"] == ["mine-runs"]


def test_home_of_a_new_user_shows_the_first_steps():
    text, buttons = words(home("U1", HomeFacts(), CONFIG))
    assert "No sweeps yet. Click *New sweep* to start one." in text
    assert buttons == [("New sweep", None), ("Refresh", None)]


def test_home_of_maximum_size_passes_slacks_limits():
    sweeps = [
        a_sweep_of(user, f"{'x' * 23}-{n}", phase, reason=WORST * 20)
        for n in range(50)
        for user in (OWNER, STRANGER)
        for phase in (Phase.RUNNING, Phase.BUILDING, Phase.FAILED)
    ]
    nodes = tuple(
        NodeUse(node=f"{n}" * 60, model=WORST, physical=8, allocatable=8, allocated=0) for n in range(99)
    )
    gpus = answer("free", Snapshot(at=NOW, nodes=nodes, pods=()), OWNER)
    seen = facts(sweeps, gpus=gpus, digest=digest(WORST, "https://x/"))
    view = home(OWNER, seen, TEAMS)
    words(view)
    assert len(view["blocks"]) <= 100


def test_home_of_a_thousand_sweeps_reads_only_the_shown_ones():
    entries = [
        summary_of(a_sweep_of(user, f"{user.lower()}-{phase}-{number}", phase))
        for number in range(300)
        for user in (OWNER, STRANGER)
        for phase in (Phase.RUNNING, Phase.FAILED)
    ]
    assert len(shown(OWNER, entries, TEAMS)) == MAX_MINE + MAX_OTHERS
    ended = [entry for entry in entries if not entry.live]
    assert len(shown(OWNER, ended, TEAMS)) == MAX_FINISHED
