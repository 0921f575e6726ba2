"""The GPUs of active sweeps that count for a person's and a team's limits."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.core.events import Progress
from bot.platform.config.limits import Launch
from bot.platform.config.teams import Team
from bot.sweep.launch.user_limits import limit_group, limited_sweeps, other_peaks
from tests.bot.factories import CONFIG, OWNER, PLAN, a_sweep

AUTO = replace(PLAN, gpus=2, space=replace(PLAN.space, parallel=8, auto=True))


@pytest.mark.parametrize(
    ("target", "progress", "counted"),
    [
        (1, Progress(), 2),
        (4, Progress(running=2), 8),  # two more can start
        (2, Progress(running=5, finishing=1), 12),  # it yields, and still holds them
        (2, Progress(running=2, waiting=1), 6),
    ],
)
def test_other_peaks_of_an_auto_sweep_count_what_it_holds_or_can_start_next(target, progress, counted):
    sweep = replace(a_sweep(plan=AUTO), parallel_now=target, progress=progress)
    peaks = other_peaks(OWNER, [sweep])
    assert (peaks.person, peaks.team) == (counted, counted)


def test_other_peaks_of_a_fixed_sweep_count_its_parallel_trials():
    sweep = replace(a_sweep(plan=replace(PLAN, gpus=2)), progress=Progress(running=1))
    assert other_peaks("UOTHER", [sweep]).team == 2 * PLAN.space.parallel
    assert other_peaks("UOTHER", [sweep]).person == 0


@pytest.mark.parametrize(
    ("per_person", "team", "self_assigned", "group"),
    [
        (None, {}, False, ""),
        (3, {}, False, f"person:{OWNER}"),
        (None, {"gpus_per_person": 3}, False, f"person:{OWNER}"),
        (3, {"gpus_total": 0}, False, "team:vision"),
        (3, {"gpus_total": 6}, True, f"person:{OWNER}"),
        (None, {"gpus_total": 6}, True, ""),
    ],
)
def test_limit_group_is_the_team_only_if_the_team_has_a_total(per_person, team, self_assigned, group):
    config = replace(
        CONFIG,
        launch=Launch(gpus_per_person=per_person),
        teams=(Team(name="vision", members=(OWNER,), **team),),
        self_assigned=frozenset({OWNER} if self_assigned else ()),
    )
    assert limit_group(OWNER, config)[0] == group


async def test_no_sweeps_are_read_for_a_person_without_a_limit():
    assert await limited_sweeps(OWNER, SimpleNamespace(config=CONFIG)) == []
