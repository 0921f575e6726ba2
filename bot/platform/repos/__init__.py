"""Git repositories: commits, files, and the names that menus offer.

Knows neither builds nor sweeps.
"""
