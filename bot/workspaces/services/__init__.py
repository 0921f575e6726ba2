"""What a service (`/env service`) is: its YAML and form, its limits, and how it is described.

It must not know research environments or the cluster: `bot/workspaces/environments` runs services. Pure.
"""
