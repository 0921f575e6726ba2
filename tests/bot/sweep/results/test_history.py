"""The best results of a space by week."""

from dataclasses import replace
from datetime import UTC, datetime

from bot.core.space import Goal
from bot.sweep.results.history import SHOWN_WEEKS, SWEEP_COLUMN, history, message, past_sweep
from local.slack.validation import complaints, too_long
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import a_result, some_results


def past(name, value, day, **facts):
    ended = datetime(2026, 11, day, 12, tzinfo=UTC)
    return past_sweep(some_results(a_result(value=value), sweep=name, ended=ended, owner_name="ada", **facts))


def answer(sweeps, **links):
    return message("lr", history(sweeps), links)


def rows(answered):
    table = next(block for block in answered.blocks if block["type"] == "table")
    return [[cell["text"] for cell in each] for each in table["rows"]]


def test_history_shows_the_best_of_each_week_of_the_latest_objective():
    """2026-11-02 and 2026-11-09 are Mondays."""
    sweeps = [past("lr-a", 0.5, 8), past("lr-b", 0.3, 9, subject="Use <b>"), past("lr-c", 0.4, 15)]
    answered = answer(reversed(sweeps))
    assert rows(answered)[1:] == [
        ["2026-11-09", "0.3", "best", "lr-b", "ada", "01234567 Use <b>"],
        ["2026-11-02", "0.5", "–", "lr-a", "ada", "01234567 "],
    ]
    assert "Best `val_loss` of space `lr` in 3 sweeps: *0.3* (minimize), by *ada* in `lr-b`" in answered.text
    assert "“Use &lt;b&gt;”" in answered.text
    assert complaints(list(answered.blocks)) == []
    other = past("lr-acc", 0.9, 1, space=replace(SPACE, metric="accuracy", goal=Goal.MAXIMIZE))
    answered = answer([other, past("lr-a", 0.5, 8)])
    assert [each[3] for each in rows(answered)[1:]] == ["lr-a"]
    assert "Not counted: 1 sweep with another objective or repository." in answered.text
    assert answer([]).text == "No ended sweep of space `lr` has a result."
    assert past("seeds-a", 0.5, 8, space=replace(SPACE, seed="seed")) is None
    assert past_sweep(some_results(a_result(value=None))) is None


def test_history_of_years_is_limited():
    sweeps = [
        replace(
            past("lr-a", 0.5, 1, subject="Use cosine " * 9),
            name=f"lr-{n}",
            ended=datetime(2020 + n // 12, n % 12 + 1, 3, tzinfo=UTC),
        )
        for n in range(60)
    ]
    answered = answer(sweeps)
    assert len(rows(answered)) == 1 + SHOWN_WEEKS
    assert complaints(list(answered.blocks)) == []
    url = f"https://{'lab' * 30}.slack.com/archives/C0123456789/p1764000000123456"
    answered = answer(sweeps, **{each.name: url for each in sweeps})
    assert not too_long(list(answered.blocks))
    assert answered.text.count("\n") == SHOWN_WEEKS  # the text has those without room in the table


def test_history_links_the_sweeps_whose_threads_have_a_url():
    url = "https://lab.slack.com/archives/C1/p1"
    answered = answer([past("lr-a", 0.5, 8), past("lr-b", 0.3, 9)], **{"lr-b": url})
    assert f"in *<{url}|lr-b>* on 2026-11-09" in answered.text
    assert "2026-11-08: 0.5 (`lr-a`)" in answered.text
    [_, linked, plain] = answered.blocks[1]["rows"]
    [part] = linked[SWEEP_COLUMN]["elements"][0]["elements"]
    assert part == {"type": "link", "url": url, "text": "lr-b"}
    assert plain[SWEEP_COLUMN] == {"type": "raw_text", "text": "lr-a"}
    assert complaints(list(answered.blocks)) == []
