"""What `serve` asks a worker for the HTTP API: only workers can read git and the cluster."""
