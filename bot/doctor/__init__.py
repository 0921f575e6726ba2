"""Checks of an installation: probes and what they mean."""
