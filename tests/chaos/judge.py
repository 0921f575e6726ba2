"""Check what must be true after a wave: nothing is lost, doubled, or held, and its users were notified."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from bot.core.record import Phase, SweepRecord
from bot.platform.storage import sweep_configmap
from bot.sweep.channels.models import read
from bot.sweep.channels.store import CONFIGMAP_NAME, REQUESTS
from bot.workspaces.environments.requests import ITEM as ENVIRONMENTS
from k8s.objects import SWEEP_LABEL
from tests.bot.factories import NOW
from tests.bot.workspaces.environments.world import NAMESPACE
from tests.chaos.gate import CLOCKS
from tests.chaos.simulation import BAD_BRANCHES, fate

if TYPE_CHECKING:
    from tests.chaos.wave import Wave

CANCEL_TIMEOUT_SECONDS = (
    900.0  # simulated seconds until an acknowledged cancel has its effect, through outages and back-off
)
NOT_BEGUN = {Phase.RECEIVED, Phase.OPENING}
RESTORED = "Redis lost its data"
UNKNOWN = "No sweep named"  # isn't true of a sweep that was acknowledged


async def judge(wave: "Wave") -> None:
    wave.ids |= wave.records_in_cluster().keys()
    wave.records = {sweep_id: await _record(wave, sweep_id) for sweep_id in sorted(wave.ids)}
    figures = wave.figures
    figures.reruns = len(wave.ids - wave.taken.keys())
    figures.calls, figures.faults = len(wave.gate.journal), wave.gate.faults
    figures.phases = Counter(str(r.phase) if r else "lost" for r in wave.records.values())
    figures.cancelled = len(wave.cancels)
    _judge_loss(wave)
    _judge_requests(wave)
    _judge_doubles(wave)
    _check_ends(wave)
    _check_messages(wave)


async def _record(wave: "Wave", sweep_id: str) -> SweepRecord | None:
    """The cluster has the record of a sweep that had ended when Redis lost it."""
    found = await wave.simulation.store.get(sweep_id)
    kept = wave.simulation.kubernetes.get("ConfigMap", "sweeps", f"sweep-{sweep_id}")
    return found or (sweep_configmap.read(kept) if kept else None)


def _judge_loss(wave: "Wave") -> None:
    for sweep_id, record in wave.records.items():
        over = record and record.phase.final and record.durable_phase is record.phase and not record.outbox
        if over or (record is None and sweep_id not in wave.taken):
            continue
        wave.figures.lost += 1
        wave.report_broken(sweep_id, f"lost: {_shape(record)}")


def _judge_requests(wave: "Wave") -> None:
    """Each acknowledged request had its effect, or its user was told a true reason."""
    kubernetes, answers = wave.simulation.kubernetes, wave.simulation.slack.ephemeral_messages
    started = {record.request_id for record in wave.records.values() if record}
    told = {user for user, text in answers if "queued" not in text and UNKNOWN not in text}
    lost = [(sweep, request) for request, sweep in wave.starts.items() if request not in started | told]
    lost += [
        (str(ENVIRONMENTS), f"start of {name}")
        for name in sorted(wave.environments)
        if kubernetes.get("StatefulSet", NAMESPACE, f"env-{name}") is None
    ]
    setups = kubernetes.get("ConfigMap", "sweeps", CONFIGMAP_NAME)
    channels = read(setups["data"]).channels if setups else {}
    for channel, hour in wave.setups.items():
        if channel not in channels or channels[channel].hour != hour:
            lost.append((str(REQUESTS), f"setup of {channel}"))
    wave.figures.requests = len(wave.starts) + len(wave.environments) + len(wave.setups)
    wave.figures.lost_requests = len(lost)
    for item, what in lost:
        wave.report_broken(item, f"lost: {what}")


def _judge_doubles(wave: "Wave") -> None:
    made = [each for each in wave.simulation.cluster.created if each["kind"] == "Experiment"]
    for sweep_id, count in Counter(each["metadata"]["labels"][SWEEP_LABEL] for each in made).items():
        if count > 1:
            wave.figures.doubled_experiments += count - 1
            wave.report_broken(sweep_id, f"{count} experiments")
    requests = defaultdict(set)
    for each in made:
        if record := wave.records.get(each["metadata"]["labels"][SWEEP_LABEL]):
            requests[record.request_id.partition("/")[0]].add(record.id)
    for ids in requests.values():
        if len(ids) > 1:
            wave.figures.doubled_experiments += len(ids) - 1
            wave.report_broken(min(ids), f"one request became {sorted(ids)}")
    for name in wave.simulation.cluster.rebuilt:
        wave.figures.doubled_builds += 1
        wave.report_broken(name, "built again although it was built")


def _check_ends(wave: "Wave") -> None:
    for pod in wave.simulation.alive():
        wave.simulation.held.add(pod["metadata"]["labels"].get(SWEEP_LABEL, pod["metadata"]["name"]))
    for sweep_id in sorted(wave.simulation.held):
        wave.figures.held += 1
        wave.report_broken(sweep_id, "its pods outlived it")
    for sweep_id, record in wave.records.items():
        good = record and fate(sweep_id) == "calm" and record.request.branch not in BAD_BRANCHES
        if good and record.phase is Phase.FAILED:
            wave.figures.failed_by_faults += 1
            wave.report_broken(sweep_id, f"a fault failed it: {record.reason}")
    for sweep_id, when in wave.cancels.items():
        record = wave.records[sweep_id]
        late = record and (record.since - NOW).total_seconds() - when > CANCEL_TIMEOUT_SECONDS + max(CLOCKS)
        if record and record.phase is Phase.SUCCEEDED and (late or fate(sweep_id) == "endless"):
            wave.figures.uncancelled += 1
            wave.report_broken(sweep_id, "it was cancelled, and ran on")


def _check_messages(wave: "Wave") -> None:
    for texts in wave.simulation.slack.threads.values():
        wave.figures.repeated_messages += len(texts) - len(set(texts))
    opened = Counter(wave.simulation.slack.opened_for)
    wave.figures.second_threads += opened.total() - len(opened)
    for sweep_id, record in wave.records.items():
        hit = [phases[sweep_id] for _, phases in wave.flushes if phases.get(sweep_id)]
        # One without a thread starts again, from an unconfirmed request or from the cluster: it lost nothing.
        # A sweep cancelled before its thread opened reports its end in the reply to the cancel.
        early = record and record.phase is Phase.CANCELLED and not record.thread
        begun = [phase for phase in hit if not phase.final and phase not in NOT_BEGUN]
        if record and not early and begun:
            wave.figures.restored += 1
            texts = wave.simulation.slack.threads.get(record.thread or "", [])
            ephemeral_messages = [text for _, text in wave.simulation.slack.ephemeral_messages]
            if not any(RESTORED in text and sweep_id in text for text in (*texts, *ephemeral_messages)):
                wave.figures.untold += 1
                wave.report_broken(sweep_id, "Redis lost it, and its users were not notified")


def _shape(record: SweepRecord | None) -> str:
    return (
        f"{record.phase}, kept {record.durable_phase}, {len(record.outbox)} unsent" if record else "no record"
    )
