"""From a typed command or the form to a complete plan.

Plans everything and creates nothing in the cluster.
"""
