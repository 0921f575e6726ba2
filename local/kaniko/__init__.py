"""Run Kaniko's executor locally: `python -m local.kaniko`, with the real flags, messages, and exit codes.

The context comes from git, images pass the registry's API, and RUN really runs its commands, so a broken
Dockerfile fails here as in a cluster. Facts: osscontainertools/kaniko v1.28.3.
Without a chroot, a RUN can write to this machine with its user's permissions: build only code you trust.
"""
