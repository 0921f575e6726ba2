"""The clusters of trials beside the main cluster: connections, and what is watched in them.

A sweep's record, builds, and results stay in the main cluster; its experiment is in the chosen one.
"""
