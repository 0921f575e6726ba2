"""Run beside a training, read its TensorBoard files, and report its metrics.

A native sidecar of each trial's pod runs `python -m reader`. It has no credentials, needs only the standard
library, and imports nothing of the bot.
"""
