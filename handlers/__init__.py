"""The doors: everything that can call us."""
