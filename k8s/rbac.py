"""The permissions that Sweepbot needs.

The Roles in deploy/base, deploy/namespace, and deploy/builds grant exactly these, and `sweepbot doctor`
checks each verb.
"""

# (API group, resource or resource/subresource) -> verbs. In each namespace of trials:
FOR_TRIALS = {
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

# In the namespace of builds: that of the records, or a separate one.
FOR_BUILDS = {
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("batch", "jobs"): ("create", "delete", "get", "list", "watch"),
    ("kueue.x-k8s.io", "workloads"): ("list",),
}

# In the namespace of the records, where trials and builds also run by default.
FOR_RECORDS = FOR_TRIALS | FOR_BUILDS | {("", "configmaps"): ("create", "get", "list", "patch")}

# In all namespaces, from deploy/usage: to measure GPU use.
FOR_GPU_USE = {
    ("", "nodes"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("metrics.k8s.io", "pods"): ("list",),
    ("", "pods/proxy"): ("get",),  # of dcgm-exporter
}

# In the namespace of environments, from deploy/environments. Secrets can't be read: a login is computed.
FOR_ENVIRONMENTS = {
    ("", "events"): ("list",),
    ("", "persistentvolumeclaims"): ("create", "delete", "get", "list"),
    ("", "pods"): ("list", "watch"),
    ("", "secrets"): ("create", "patch"),
    ("", "services"): ("create",),
    ("apps", "statefulsets"): ("create", "delete", "get", "list", "patch", "watch"),
    ("networking.k8s.io", "ingresses"): ("create",),
}
