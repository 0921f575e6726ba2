"""Settings made in Slack: of channels (`/sweep setup`), of people (`/sweep me`, quiet hours), and who is in
which team.
"""
