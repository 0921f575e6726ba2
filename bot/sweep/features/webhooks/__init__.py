"""`webhooks:` report a sweep's start, its first trial, and its end to other systems, by signed requests."""

from bot.core.record import ACTIVE, Phase
from bot.platform.config.webhooks import EventType
from bot.sweep.features.webhooks import decide, deliver
from bot.sweep.model.feature import Feature, Step

FEATURE = Feature(
    name="webhooks",
    states=(decide.WebhooksState,),
    planned=decide.planned,
    ended=decide.ended,
    posters={str(each): deliver.store for each in EventType},
    jobs={deliver.ITEM: deliver.run},
)
STEP = Step(phases=frozenset({Phase.OPENING, *ACTIVE, Phase.HELD}), decide=decide.follow)
