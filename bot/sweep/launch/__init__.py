"""From options, typed or from the form, to a complete plan.

Plans everything and creates nothing in the cluster.
"""
