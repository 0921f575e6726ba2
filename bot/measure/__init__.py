"""What GPUs do and what is free: samples, hourly figures, the bill, capacity.

Knows the platform only.
"""
