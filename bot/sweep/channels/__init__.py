"""Channel settings made with `/sweep setup`."""
