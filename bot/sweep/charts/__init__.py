"""Charts of trial results as PNG, with alternative texts. The large ones are drawn in a process of their own.

Knows results only as values.
"""
