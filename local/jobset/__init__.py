"""A subset of JobSet v0.12.0: JobSets of one replicated Job, as Kubeflow Trainer makes them.

A port of its code, which the modules name; nothing of it is recorded. Failure, success, and startup policies,
restarts, and exclusive placement don't exist here.
"""

from local.jobset.controller import Controller
from local.jobset.webhook import reviewed

__all__ = ["Controller", "reviewed"]
