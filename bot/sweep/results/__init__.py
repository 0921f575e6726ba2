"""Trial results: MLflow experiments, live values, and the results that are stored when a sweep ends."""
