"""Diagnose pods, first trials, and builds that don't run as they should: evidence and rules.

`bot.sweeps` decides whom to notify.
"""
