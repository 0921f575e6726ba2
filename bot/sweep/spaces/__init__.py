"""Space files: reading them, also those of Katib and W&B, checking what they search, and writing them.

Knows the file as text; not where it comes from, nor the sweep that runs it.
"""
