"""The environment's settings, the configuration file, and who may do what.

Reads and checks; acts on nothing.
"""
