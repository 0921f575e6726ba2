"""The permissions that Sweepbot needs, and no others.

The Roles in deploy/base, deploy/namespace, and deploy/builds grant exactly these, and `sweepbot doctor`
checks each verb.
"""

# (API group, resource or resource/subresource) -> verbs. Where trials run:
TRIALS = {
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("batch", "jobs"): ("delete", "list", "watch"),
    ("kubeflow.org", "experiments"): ("create", "delete", "get", "list", "patch", "watch"),
    ("kubeflow.org", "experiments/status"): ("patch",),
    ("kubeflow.org", "suggestions"): ("delete", "get", "list"),
    ("kubeflow.org", "trials"): ("list", "watch"),
    ("kubeflow.org", "trials/status"): ("patch",),
    ("kueue.x-k8s.io", "workloads"): ("list",),  # a Role can name resources that aren't installed
}

# Where builds run: the namespace of the records, or a separate one.
BUILDS = {
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("batch", "jobs"): ("create", "delete", "get", "list", "watch"),
    ("kueue.x-k8s.io", "workloads"): ("list",),
}

# The namespace of the records, where trials and builds also run by default.
RIGHTS = TRIALS | BUILDS | {("", "configmaps"): ("create", "get", "list", "patch")}

# What deploy/usage also grants, in all namespaces: GPU use.
WATCHING = {
    ("", "nodes"): ("list",),
    ("", "pods"): ("list",),
    ("metrics.k8s.io", "pods"): ("list",),
    ("", "pods/proxy"): ("get",),  # of dcgm-exporter
}
