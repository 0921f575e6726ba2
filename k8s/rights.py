"""What the bot may have to do in the namespace of its sweeps: all of it, and nothing else.

The one list: the Role in deploy/base grants it, `sweepbot doctor` asks the cluster for each of its verbs.
"""

# (API group, resource or resource/subresource) -> verbs
RIGHTS = {
    ("", "configmaps"): ("create", "get", "list", "patch"),
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("batch", "jobs"): ("create", "delete", "get", "list", "watch"),
    ("kubeflow.org", "experiments"): ("create", "get", "list", "patch", "watch"),
    ("kubeflow.org", "experiments/status"): ("patch",),
    ("kubeflow.org", "suggestions"): ("get",),
    ("kubeflow.org", "trials"): ("list", "watch"),
    ("kubeflow.org", "trials/status"): ("patch",),
}

# What deploy/usage grants besides, where it is applied: to see GPUs in every namespace.
WATCHING = {
    ("", "nodes"): ("list",),
    ("", "pods"): ("list",),
    ("metrics.k8s.io", "pods"): ("list",),
    ("", "pods/proxy"): ("get",),  # where dcgm-exporter lives
}
