"""The launch form, its menus, and the plan as a person reviews it, in Slack or a terminal.

Plans with `bot.sweep.launch`, and creates nothing.
"""
