"""Kaniko's executor on one machine: `python -m local.kaniko` with the real flags, messages and exit codes.

The context comes from git, FROM and the result go over the registry's API, RUN really runs, so that a broken
Dockerfile breaks here as it does in a cluster. Facts: osscontainertools/kaniko v1.28.3.
"""
