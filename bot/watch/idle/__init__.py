"""Warnings about idle GPUs: detection, alerts, snoozes."""
