"""Kubernetes and its neighbours, one file per kind of object; nothing here has heard of Slack."""
