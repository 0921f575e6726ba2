"""What is kept: sweep records in Redis and in ConfigMaps, the work queue, leases.

Knows what a record is, and not what is done with it.
"""
