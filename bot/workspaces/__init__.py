"""What runs beside sweeps: environments, services, elastic replicas, reservations.

Knows the platform and what is measured.
"""
