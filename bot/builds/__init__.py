"""From the files of a repository to an image: recipes, Kaniko jobs, failures, clean-up.

Knows no sweep beyond the image that it needs.
"""
