"""Reserve GPUs for a team until a time: placeholder Jobs in the team's Kueue queue hold the GPUs that
the team doesn't use, and its trials replace them. Admins create and release reservations with `/gpus`.
"""

from functools import partial

from bot.workspaces.reservations.answer import GPU_COMMANDS, reserved_line
from bot.workspaces.reservations.hold import hold
from bot.workspaces.reservations.models import ITEM
from bot.workspaces.room import Room

ROOM = Room(
    jobs=lambda clients, *_: {ITEM.kind: partial(hold, clients=clients)},
    starts=(ITEM,),
    resync=lambda config: (ITEM,) if config.reservations else (),
    gpu_commands=GPU_COMMANDS,
    line=reserved_line,
)
