"""Sweepbot, in wings (docs/architecture.md); `bot.app` runs its processes."""

__version__ = "0.1.0"
