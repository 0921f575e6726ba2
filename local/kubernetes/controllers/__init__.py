"""The controllers of Jobs, Deployments, and StatefulSets, and the garbage collector."""
