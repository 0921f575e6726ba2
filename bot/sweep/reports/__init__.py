"""Reports on trial results: pictures and files at a sweep's end, curves, comparisons, history, and bisects.

Reads stored results and MLflow; decides nothing about a sweep.
"""
