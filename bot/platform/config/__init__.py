"""The environment's settings, the configuration file, and who can do what.

Reads and checks; changes nothing.
"""
