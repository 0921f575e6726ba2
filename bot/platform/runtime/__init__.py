"""Infrastructure of every process: log format and masking, probes, the audit log, and the parser thread.

Knows no feature.
"""
