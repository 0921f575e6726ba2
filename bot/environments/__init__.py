"""Research environments (`/env`): start, open, keep, stop, and delete them, and report what they wait for.

An environment is a StatefulSet with its record in an annotation, so losing Redis or a worker loses nothing.
"""
