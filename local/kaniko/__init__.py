"""Run Kaniko's executor locally: `python -m local.kaniko`, with the real flags, messages, and exit codes.

The context comes from git, FROM and the result go over the registry's API, RUN really runs, so that a broken
Dockerfile breaks here as it does in a cluster. Facts: osscontainertools/kaniko v1.28.3.
Without a chroot a RUN can write to this machine, with the rights of whoever started it: build code you trust.
"""
