"""What nodes offer and what runs on them: machines, GPUs, the pods that request them, and what fits where.

It reads objects that others fetched, and asks no API server.
"""
