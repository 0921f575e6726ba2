"""What operators see and do: checks of an installation, why a sweep doesn't continue, retries, and reports.

The same findings and words for a terminal (`sweepbot doctor`, `inspect`) and for Slack (`/sweep doctor`,
`admin`).
"""
