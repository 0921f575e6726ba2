"""The folder that installs Sweepbot: what the cluster has, what only a person can say, and the files."""
