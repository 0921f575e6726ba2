"""The life of a sweep: observe, decide, act, notify.

Other features (idle GPUs, digests, the doctor) are unknown here.
"""
