"""Measure how many more trials of each `parallel=auto` sweep could start now, and who waits for the GPUs of
its trials. The leader measures for all sweeps at once, from what it watches anyway, and stores the result.
"""
