"""Reserve GPUs for a team until a time: placeholder Jobs in the team's Kueue queue hold the GPUs that
the team doesn't use, and its trials replace them. Admins create and release reservations with `/gpus`.
"""
