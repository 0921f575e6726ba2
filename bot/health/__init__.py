"""Why a pod, a first trial or a build does not run as it should: evidence and rules.

Decides what is wrong; whom to notify is decided in `bot.sweeps`.
"""
