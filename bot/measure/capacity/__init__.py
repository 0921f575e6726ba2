"""Measure how many more trials of each `parallel=auto` sweep could start now, and which pods wait for the
GPUs of its trials. The leader measures for all sweeps at once, from pods in memory, and stores the result.
"""
