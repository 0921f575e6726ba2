"""GPU use: where it is measured, hourly figures, snapshots, the bill.

Knows what pods used, and not what anybody is told about it.
"""
