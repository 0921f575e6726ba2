"""Katib's objects: the Experiment that is created, the status that is read, the patches that end it."""
