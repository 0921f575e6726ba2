"""A node: the kubelet, containers as processes of this machine, and the GPU exporter."""
