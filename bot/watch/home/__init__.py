"""The home tab, and answers about GPUs that need a fresh measurement."""
