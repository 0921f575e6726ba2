"""A local cluster and Slack for demos and tests; not part of the image."""
