"""`webhooks:` report a sweep's start, its first trial, and its end to other systems, by signed requests."""

from bot.core.record import ACTIVE, Phase
from bot.platform.config.webhooks import EventType
from bot.sweep.features.webhooks import decide, deliver
from bot.sweep.model.feature import Feature, Moment, Step

PHASES = frozenset({Phase.OPENING, *ACTIVE, Phase.HELD})
FEATURE = Feature(
    name="webhooks",
    states=(decide.WebhooksState,),
    planned=decide.planned,
    steps=(
        Step(
            at=Moment.FIRST_TRIAL, phases=PHASES, decide=decide.follow
        ),  # a failed one, before it holds the sweep
        Step(at=Moment.NEXT, phases=PHASES, decide=decide.follow),  # again, with the counts
    ),
    ended=decide.ended,
    posters={str(each): deliver.store for each in EventType},
    jobs={deliver.ITEM: deliver.run},
)
