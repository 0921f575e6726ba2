"""`branch=a,b,c`: say which branches are compared, and at the end what their pairs show."""

from dataclasses import dataclass
from typing import ClassVar

from bot.core.feature_state import FeatureState
from bot.core.record import SweepRecord
from bot.platform.config.policy import Config
from bot.platform.slack.mrkdwn import code
from bot.sweep.model.feature import Feature
from bot.sweep.model.observation import Observation
from bot.sweep.results.pairs import compared, verdict
from bot.text.wording import listed


@dataclass(frozen=True, kw_only=True)
class BranchesState(FeatureState):
    """What the pairs show, once the sweep has ended."""

    name: ClassVar[str] = "branches"

    verdict: str = ""


def ended(sweep: SweepRecord, seen: Observation, _: Config) -> SweepRecord:
    space = sweep.plan.space if sweep.plan else None
    if space is None or space.pairs is None or not sweep.submitted:
        return sweep
    return sweep.change(BranchesState, verdict=verdict(space, compared(space, seen.trials)))


def footer(sweep: SweepRecord) -> str:
    found = sweep.plan.branches if sweep.plan else ()
    names = listed(f"{code(each.branch)} @ {code(each.commit[:8])}" for each in found)
    return f"Compares {names}, in the space of {code(found[0].branch)}" if found else ""


FEATURE = Feature(
    name="branches",
    states=(BranchesState,),
    ended=ended,
    footer=footer,
    saved=lambda sweep: sweep.of(BranchesState).verdict,
)
