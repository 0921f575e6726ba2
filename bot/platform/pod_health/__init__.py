"""Why a pod waits or was evicted: rules about its conditions and events, Kueue, and the scheduler."""
