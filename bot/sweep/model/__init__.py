"""The words of the sweep wing: observations, required changes, what a feature adds, and shared texts.

Knows no feature. Pure.
"""
