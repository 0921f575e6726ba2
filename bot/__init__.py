"""Sweepbot, in rooms by feature; `bot.app` runs its processes."""
