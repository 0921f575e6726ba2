"""Requests to the API server: the client, lists and watches, their caches, and what an error means.

It knows no kind of object beyond its name.
"""
