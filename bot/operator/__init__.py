"""What operators see and do: the state of sweeps with its cause, retries, and a rejected configuration.

Reads records, queue, and cluster; the same words for `sweepbot` and for `/sweep admin`.
"""
