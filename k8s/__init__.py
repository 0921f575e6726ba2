"""Kubernetes, Katib, Kaniko, and dcgm-exporter: the API client, and one module per kind of object.

Knows nothing of Slack.
"""
