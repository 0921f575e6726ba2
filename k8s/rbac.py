"""The permissions that Sweepbot needs: verbs by resource, for trials, builds, records, GPU use, and other
clusters.

The Roles in deploy/base, deploy/namespace, and deploy/builds grant exactly these, and `sweepbot doctor`
checks each verb.
"""

# (API group, resource or resource/subresource) -> verbs. In each namespace of trials:
FOR_TRIALS = {
    ("", "events"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("", "services"): ("create",),  # by which the nodes of a trial find each other
    ("batch", "jobs"): ("delete", "list", "patch", "watch"),  # patch: labels of queued trials
    ("kubeflow.org", "experiments"): ("create", "delete", "get", "list", "patch", "watch"),
    ("kubeflow.org", "experiments/status"): ("patch",),
    ("kubeflow.org", "pytorchjobs"): ("delete", "list", "patch", "watch"),  # as jobs
    ("kubeflow.org", "suggestions"): ("delete", "get", "list"),
    ("kubeflow.org", "trials"): ("delete", "list", "watch"),  # delete: to start one again after a disruption
    ("kubeflow.org", "trials/status"): ("patch",),
    ("kueue.x-k8s.io", "localqueues"): ("list",),  # a Role can name resources that aren't installed
    ("kueue.x-k8s.io", "workloads"): ("list", "patch"),
    ("resource.k8s.io", "resourceclaimtemplates"): ("create",),  # of profiles with a DeviceClass
    ("trainer.kubeflow.org", "trainingruntimes"): ("create",),
    ("trainer.kubeflow.org", "trainjobs"): ("delete", "list", "patch", "watch"),  # as jobs
    ("visibility.kueue.x-k8s.io", "localqueues/pendingworkloads"): ("get",),
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
FOR_RECORDS = {
    key: tuple(sorted({*FOR_TRIALS.get(key, ()), *FOR_BUILDS.get(key, ())}))
    for key in (FOR_TRIALS | FOR_BUILDS)
} | {("", "configmaps"): ("create", "get", "list", "patch")}

# Part of the two below: which GPUs there are by Dynamic Resource Allocation, and who holds them.
FOR_DEVICES = {
    ("resource.k8s.io", kind): ("list",) for kind in ("deviceclasses", "resourceclaims", "resourceslices")
}

# In all namespaces, from deploy/usage: to measure GPU use.
FOR_GPU_USE = {
    ("", "nodes"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("metrics.k8s.io", "pods"): ("list",),
    ("", "pods/proxy"): ("get",),  # of dcgm-exporter
} | FOR_DEVICES

# In all namespaces of another cluster with trials, from deploy/clusters: to see what is free there. The same
# ClusterRole allows to get the namespace kube-system, which identifies the cluster.
FOR_CLUSTERS = {("", "nodes"): ("list",), ("", "pods"): ("list",)} | FOR_DEVICES
