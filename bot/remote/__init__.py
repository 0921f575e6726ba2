"""The command line's side of the HTTP API: a login, launching, and following sweeps from any machine."""
