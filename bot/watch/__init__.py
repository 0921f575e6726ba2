"""What looks at GPUs for people: warnings, digests, the Home tab.

Knows sweeps, what is measured, and the platform.
"""
