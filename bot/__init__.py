"""What the bot knows and decides."""
