"""The HTTP API, version 1: what `/sweep` does, for scripts, with a personal token (docs/api.md)."""
