"""Measurements, each a script that prints a table and writes it to bench/results/."""
