"""What each released version left in Redis and in the cluster."""
