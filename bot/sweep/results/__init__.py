"""Trial results: MLflow's experiments and runs, live values, what is stored when a sweep ends, and its texts,
tables, and files.
"""
