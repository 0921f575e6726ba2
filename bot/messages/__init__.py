"""The texts of a sweep's thread: its parent message and the messages below it. Pure.

Knows the record and its events, but not how they came about or how messages are posted.
"""
