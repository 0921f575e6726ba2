"""A search for Katib's experiments that keeps no state: a pure library, and a gRPC service around it.

`ask` proposes points from the finished and running trials alone, so a killed service loses nothing. It knows
nothing of Katib; `service` speaks Katib's Suggestion API. The service runs in a pod and an image of its own:
it imports nothing of Sweepbot, and Sweepbot nothing of it.
"""
