"""Slack itself: the client, its rate limits, blocks and mrkdwn.

Knows nothing of sweeps.
"""
