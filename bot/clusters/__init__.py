"""The clusters of trials beside the home cluster: connections, and what is watched in them.

A sweep's record, builds, and results stay in the home cluster; its experiment is in the chosen one.
"""
