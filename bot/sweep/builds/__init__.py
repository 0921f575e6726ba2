"""From the files of a repository to an image: recipes, Kaniko jobs, failures, clean-up.

Knows nothing of sweeps except the image that one needs.
"""
