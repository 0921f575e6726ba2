"""Reserve GPUs for a team until a time: placeholder Jobs in the team's Kueue queue hold what the team doesn't
use, and give way to its trials. Administrators make and release reservations with `/gpus`.
"""
