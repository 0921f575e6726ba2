"""Reports on trial results: pictures and files at a sweep's end, curves, comparisons, and history.

Reads stored results and MLflow; decides nothing about a sweep.
"""
