"""Katib's objects: the Experiment to create, its status, and the patches that stop or extend it."""
