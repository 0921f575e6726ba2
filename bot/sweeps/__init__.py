"""The life of a sweep: observe, decide, act, notify.

Knows nothing of other features: idle GPUs, digests, or the doctor.
"""
