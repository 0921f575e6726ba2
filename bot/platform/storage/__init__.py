"""Storage: sweep records in Redis and in ConfigMaps, the work queue, and leases.

Knows the format of a record, but not what is done with it.
"""
