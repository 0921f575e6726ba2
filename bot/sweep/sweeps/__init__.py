"""The loop of a sweep: observe, decide, save, act, notify; and what starts it.

Knows nothing of other features: idle GPUs, digests, or the doctor.
"""
