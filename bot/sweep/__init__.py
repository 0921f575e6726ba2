"""A sweep from the command to the results.

Knows the platform and what is measured; no other wing.
"""
