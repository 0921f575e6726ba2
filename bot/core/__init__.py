"""The words of the product as frozen values: ids, requests, plans, records, events, commands.

No IO, and no knowledge of Slack, Redis or how anything is done with these values.
"""
