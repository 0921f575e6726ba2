"""Slack: the client, rate limits, blocks, and mrkdwn.

Knows nothing of sweeps.
"""
