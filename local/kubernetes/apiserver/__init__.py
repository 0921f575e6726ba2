"""The API server: stored objects, their defaults and validation, admission, watches, and the HTTP API."""
