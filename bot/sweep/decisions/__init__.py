"""Decisions about a sweep with all of its features (`bot.sweep.feature_table`). Pure."""
