"""What a sweep does next: the next record from an observation, and the changes it requires. Pure.

Knows no clients: everything it decides about is a value.
"""
