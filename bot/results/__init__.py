"""MLflow experiments and runs."""
