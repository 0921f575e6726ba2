"""Which sweep is meant: by its name, a part of it, or because there is only one that fits."""

from dataclasses import replace

import pytest

from bot.models import Act, Asker, Phase, UserError
from bot.wishes import Wish, choose, read_wish, selected, slip
from tests.bot.sweeps import CONFIG, a_sweep


def sweep(sweep_id, user="UADA", phase=Phase.RUNNING):
    asker = Asker(user=user, user_name=user.lower(), channel="C1")
    return replace(a_sweep(phase), id=sweep_id, asker=asker)


SWEEPS = [
    sweep("lr-brave-otter"),
    sweep("lr-calm-finch", "UGRACE"),
    sweep("lr-calm-otter", "UGRACE", Phase.SUCCEEDED),
    sweep("big-calm-yak", "ULINUS", Phase.SUCCEEDED),
]


@pytest.mark.parametrize(
    ("text", "here", "wish"),
    [
        ("cancel", "", Wish(act=Act.CANCEL)),
        ("cancel lr-brave-otter", "", Wish(act=Act.CANCEL, sweep="lr-brave-otter")),
        ("cancel `otter` x1", "", Wish(act=Act.KILL, sweep="otter", trial="x1")),
        ("cancel x1", "lr-a-b", Wish(act=Act.KILL, sweep="lr-a-b", trial="x1")),
        ("cancel lr-a-b", "lr-a-b", Wish(act=Act.CANCEL, sweep="lr-a-b")),
        ("extend trials=9", "", Wish(act=Act.EXTEND, trials=9)),
        ("extend otter trials=9", "", Wish(act=Act.EXTEND, sweep="otter", trials=9)),
        ("logs otter x1", "", Wish(act=Act.LOGS, sweep="otter", trial="x1")),
        ("rerun", "", Wish(act=Act.RERUN)),
        ("rerun trials=9 cmd='a b'", "", Wish(act=Act.RERUN, changes="trials=9 cmd='a b'")),
        ("rerun otter trials=9", "", Wish(act=Act.RERUN, sweep="otter", changes="trials=9")),
        ("rerun gpus=2", "lr-a-b", Wish(act=Act.RERUN, sweep="lr-a-b", changes="gpus=2")),
    ],
)
def test_words_are_read(text, here, wish):
    assert read_wish(text, here) == wish


@pytest.mark.parametrize(
    ("act", "said", "user", "chosen"),
    [
        (Act.CANCEL, "", "UADA", "lr-brave-otter"),
        (Act.CANCEL, "finch", "UADA", "lr-calm-finch"),
        (Act.CANCEL, "big", "UADA", "big-calm-yak"),
        (Act.CANCEL, "", "UGRACE", "lr-calm-finch"),
        (Act.EXTEND, "", "UGRACE", "lr-calm-otter"),
        (Act.LOGS, "", "ULINUS", "big-calm-yak"),
        (Act.RESULTS, "gone-since-long", "UADA", "gone-since-long"),
    ],
)
def test_the_sweep_that_is_meant(act, said, user, chosen):
    assert choose(Wish(act=act, sweep=said), user, SWEEPS) == chosen


@pytest.mark.parametrize(
    ("act", "said", "user", "answer"),
    [
        (Act.CANCEL, "otter", "UADA", "may be `lr-brave-otter`, `lr-calm-otter`"),
        (Act.CANCEL, "", "ULINUS", "You have no sweep that runs"),
        (Act.EXTEND, "", "UADA", "You have no sweep that has ended"),
        (Act.CANCEL, "brave-oter", "UADA", "Did you mean lr-brave-otter"),
    ],
)
def test_when_it_is_not_clear_the_choices_are_told(act, said, user, answer):
    with pytest.raises(UserError, match=answer):
        choose(Wish(act=act, sweep=said), user, SWEEPS)


def test_one_that_was_refused_is_offered_to_nobody_and_found_by_its_whole_name():
    sweeps = [*SWEEPS, sweep("lr-vain-otter", phase=Phase.REFUSED)]
    with pytest.raises(UserError) as error:
        choose(Wish(act=Act.LOGS, sweep="zzz"), "UADA", sweeps)
    assert str(error.value) == (
        "I know no sweep `zzz`. There are lr-brave-otter, lr-calm-finch, lr-calm-otter and big-calm-yak."
    )
    with pytest.raises(UserError, match="I know no sweep `vain`"):
        choose(Wish(act=Act.LOGS, sweep="vain"), "UADA", sweeps)
    assert choose(Wish(act=Act.RERUN, sweep="lr-vain-otter"), "UADA", sweeps) == "lr-vain-otter"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("cancle otter", "I do not understand `cancle`. Did you mean cancel?"),
        ("Stauts", "I do not understand `stauts`. Did you mean status?"),
        ("lsit\nmine", "I do not understand `lsit`. Did you mean list?"),
        ("hepl", "I do not understand `hepl`. Did you mean help?"),
        ("cancle&lt;", "I do not understand `cancle&lt;`. Did you mean cancel?"),
        ("", ""),
        ("help me", ""),
        ("cancel otter", ""),
        ("main", ""),
        ("branch main", ""),
        ("branch=main space=lr", ""),
        ("lists = x", ""),
    ],
)
def test_a_slip_in_the_first_word(text, meant):
    assert slip(text, "help") == meant


def test_several_of_ones_own_are_listed():
    mine = [sweep(f"lr-{animal}-yak") for animal in "abcdefghij"]
    with pytest.raises(UserError, match=r"Which one.*`lr-a-yak`.* and 2 more"):
        choose(Wish(act=Act.CANCEL), "UADA", mine)


def test_a_list_of_mine_shows_ended_ones_too():
    assert [s.id for s in selected("mine", "UGRACE", SWEEPS, CONFIG)] == ["lr-calm-finch", "lr-calm-otter"]
    assert [s.id for s in selected("", "ULINUS", SWEEPS, CONFIG)] == [
        "lr-brave-otter",
        "lr-calm-finch",
        "big-calm-yak",
    ]
