"""The message about the values with which trials fail, and its button."""

from dataclasses import replace

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.sweep.features.failing_parameters import FEATURE, KIND, FailingParameters, follow, observe
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import CONTINUE
from k8s.engine import TrialState
from local.slack.validation import complaints
from tests.bot.factories import NOW
from tests.bot.sweep.model.observations import RUNNING, a_trial


def trials(fails, number=16):
    for n in range(number):
        values = {"lr": f"0.0{n % 7 + 1}", "layers": str(n % 4 + 1), "optimizer": ("adam", "sgd")[n % 3 == 0]}
        state = TrialState.FAILED if fails(values) else TrialState.SUCCEEDED
        yield a_trial(f"t{n}", state, None if state is TrialState.FAILED else 1.0, **values)


def diagnosed(found, key="gpu-memory", most=20):
    failed = [trial for trial in found if trial.state is TrialState.FAILED][:most]
    text = "Out of GPU memory (80 GiB)."
    return tuple(
        Diagnosis(key=key, text=text, cause="x", trial=t.name, failed=True, lasting=True) for t in failed
    )


async def told(found, trouble, sweep=RUNNING):
    seen = await observe(sweep, Observation(trials=tuple(found), trouble=tuple(trouble)), None)
    return follow(sweep, seen, NOW)


def shown(sweep):
    return FEATURE.live_message[KIND].build(sweep)


def buttons(message):
    return [each for block in message.blocks if block["type"] == "actions" for each in block["elements"]]


async def test_threshold_is_told_once_edited_and_has_a_button():
    found = list(trials(lambda values: int(values["layers"]) >= 3))
    sweep = await told(found, diagnosed(found))
    [event] = sweep.outbox
    assert event.text.startswith(
        ":warning: Out of GPU memory (80 GiB): *8 of 8* trials with `layers` ≥ `3` failed, *0 of 8* below."
    )
    message = shown(sweep)
    [button] = message.blocks[-1]["elements"]
    assert button["text"]["text"] == "Continue below 3"
    assert (button["action_id"], button["value"]) == (CONTINUE, f"{sweep.id} layers<3")
    more = list(trials(lambda values: int(values["layers"]) >= 3, 20))
    again = await told(more, (), sweep)
    assert len(again.outbox) == 1, "the message is edited"
    assert "*10 of 10*" in shown(again).text, "also by trials that weren't diagnosed"
    older = sweep.change(FailingParameters, words={})  # as an older version stored it
    assert shown(await told(more, (), older)).text == shown(again).text
    nan = Diagnosis(key="nan", text="It is NaN.", cause="x", trial="t0", failed=False, lasting=True)
    other = await told(found, (*diagnosed(found), nan))
    assert "*0 of 7* below" in shown(other).text, "one with another cause is neither"
    found = list(trials(lambda values: values["optimizer"] == "sgd"))
    [button] = shown(await told(found, diagnosed(found))).blocks[-1]["elements"]
    assert (button["text"]["text"], button["value"].split()[1]) == ("Continue without sgd", "optimizer!=sgd")


async def test_cause_is_that_of_most_failures_not_of_the_first_one():
    found = list(trials(lambda values: int(values["layers"]) >= 3))
    first, *others = diagnosed(found)
    sweep = await told(found[:3], [replace(first, key="quota", text="The disk is full.")])
    sweep = await told(found, others, sweep)
    assert "Out of GPU memory (80 GiB): *7 of 7*" in shown(sweep).text
    assert (
        "Out of GPU memory" in shown(await told(found, [replace(first, trial="t9", key="other")], sweep)).text
    )


async def test_pair_has_a_button_to_leave_out_each_of_its_sides():
    def fails(values):
        return int(values["layers"]) >= 3 and values["optimizer"] == "adam"

    found = list(trials(fails, 48))
    sweep = replace(RUNNING, request=replace(RUNNING.request, where="lr<1"))
    message = shown(await told(found, diagnosed(found, most=48), sweep))
    assert "`layers` ≥ `3` and `optimizer` = `adam` failed, *0 of 32* others" in message.text
    assert [(each["text"]["text"], each["value"]) for each in buttons(message)] == [
        ("Continue with layers below 3", f"{sweep.id} lr<1,layers<3"),
        ("Continue without adam", f"{sweep.id} lr<1,optimizer!=adam"),
    ]
    assert complaints(list(message.blocks)) == []
    many = ",".join(f"optimizer!=other-{number}" for number in range(19))
    long = replace(sweep, request=replace(sweep.request, where=many))
    shown_long = shown(await told(found, diagnosed(found, most=48), long))
    longest = replace(sweep, request=replace(sweep.request, where=f"{many},lr<1"))
    assert buttons(shown(await told(found, diagnosed(found, most=48), longest))) == [], "a bound too many"
    assert f"{many},layers<3" in buttons(shown_long)[0]["value"]
    assert complaints(list(shown_long.blocks)) == []


async def test_failures_of_different_causes_or_by_chance_are_not_explained():
    found = list(trials(lambda values: values["lr"] in {"0.02", "0.05"}))
    chance = await told(found, diagnosed(found))
    assert (chance.outbox, shown(chance)) == ((), None)
    found = list(trials(lambda values: int(values["layers"]) >= 3))
    mixed = [replace(each, key=f"crash/{n}") for n, each in enumerate(diagnosed(found))]
    assert (await told(found, mixed)).outbox == ()
    assert (await told(found, ())).of(FailingParameters) == FailingParameters()
