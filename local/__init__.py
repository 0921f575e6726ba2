"""A whole world on one machine: Kubernetes, Katib, a registry, a git host, Slack. Never in the image."""
