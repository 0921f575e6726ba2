"""What every wing uses: configuration, storage, clients of other systems, and why a pod waits.

Knows no wing.
"""
