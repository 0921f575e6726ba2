"""Text of any kind: numbers, words, and lists for people, and what must be masked or removed first. Pure.

Knows nothing about sweeps.
"""
