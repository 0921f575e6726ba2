"""GPU use: measurement, hourly figures, snapshots, the bill.

Other rooms decide who is notified of it.
"""
