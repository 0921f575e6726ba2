"""A client of OCI image registries.

Knows neither Kubernetes nor sweeps.
"""
