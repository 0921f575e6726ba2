"""The permissions that Sweepbot needs, and no others.

The one list: the Roles in deploy/base, deploy/namespace, and deploy/builds grant it, `sweepbot doctor` asks
for each verb.
"""

# (API group, resource or resource/subresource) -> verbs. Where trials run:
TRIALS = {
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("batch", "jobs"): ("delete", "list", "watch"),
    ("kubeflow.org", "experiments"): ("create", "delete", "get", "list", "patch", "watch"),
    ("kubeflow.org", "experiments/status"): ("patch",),
    ("kubeflow.org", "suggestions"): ("get",),
    ("kubeflow.org", "trials"): ("list", "watch"),
    ("kubeflow.org", "trials/status"): ("patch",),
    ("kueue.x-k8s.io", "workloads"): ("list",),  # a Role may name what a cluster without Kueue doesn't have
}

# Where builds run: in the namespace of the records, or in one of their own.
BUILDS = {
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("batch", "jobs"): ("create", "delete", "get", "list", "watch"),
    ("kueue.x-k8s.io", "workloads"): ("list",),
}

# Where records are kept, and all that has no other namespace runs.
RIGHTS = TRIALS | BUILDS | {("", "configmaps"): ("create", "get", "list", "patch")}

# What deploy/usage grants besides, where it is applied: to see GPUs in every namespace.
WATCHING = {
    ("", "nodes"): ("list",),
    ("", "pods"): ("list",),
    ("metrics.k8s.io", "pods"): ("list",),
    ("", "pods/proxy"): ("get",),  # where dcgm-exporter lives
}
