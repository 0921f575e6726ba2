"""Space files: reading them, also those of Katib and W&B, and checking what they search.

Knows the file as text; not where it comes from, nor the sweep that runs it.
"""
