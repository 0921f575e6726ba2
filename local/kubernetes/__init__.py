"""Kubernetes on one machine: it answers as kube-apiserver 1.36 and its controllers do, refusals too."""
