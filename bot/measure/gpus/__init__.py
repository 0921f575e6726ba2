"""GPU use: measurement, hourly figures, snapshots, the bill.

Other rooms decide whom to notify.
"""
