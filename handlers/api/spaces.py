"""Check a space file in the API, in the parser's thread: one person's large file must not delay others."""

import asyncio

from starlette.exceptions import HTTPException

from bot.core.errors import UserError
from bot.platform.config.policy import Config
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.sweep.launch.command_line import parse_options
from bot.sweep.launch.space_check import read_space
from bot.sweep.spaces.describe import explain
from bot.text.masking import Mask
from handlers.api.models import SpaceCheck

TIMEOUT = 10.0  # seconds; the largest allowed file takes a few
FILE = "space.yaml"  # its name in errors


async def check_space(text: str, options: str, config: Config, mask: Mask) -> SpaceCheck:
    """Raises HTTPException."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await run_in_parser_thread(_checked, text, options, config, mask)
    except TimeoutError:
        detail = f"Checking the space took more than {TIMEOUT:g} s. Try again in a minute."
        raise HTTPException(503, detail, {"Retry-After": "60"}) from None


def _checked(text: str, options: str, config: Config, mask: Mask) -> SpaceCheck:
    try:
        space, request = read_space(text, FILE, parse_options(options), config, on_cluster=True)
    except UserError as error:
        return SpaceCheck(valid=False, errors=mask(str(error)).splitlines(), notes=[], summary=None)
    summary = mask(explain(space, request.gpus, request.nodes or 1))
    return SpaceCheck(valid=True, errors=[], notes=[*map(mask, space.notes)], summary=summary)
