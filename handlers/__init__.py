"""Handle requests from Slack, and the probes over HTTP."""
