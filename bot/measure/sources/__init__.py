"""Where GPU use is measured: Prometheus, or else dcgm-exporter and metrics-server; who measures, and when."""
