"""GPU use: its values, hourly figures, snapshots, the answers of `/gpus`, the bill. `sources/` measures it.

Other rooms decide whom to notify.
"""
