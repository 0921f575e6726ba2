"""What every process has: log format and masking, probes, the audit log.

Knows no feature.
"""
