"""Commands on existing sweeps: parsing them, and the answers that change nothing in the cluster.

Knows no Slack requests: handlers pass the text, and the loop of the sweep passes what it observed.
"""
