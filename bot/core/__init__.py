"""The product's vocabulary as frozen values: ids, requests, plans, records, events, and commands.

No IO, and nothing about Slack or Redis.
"""
