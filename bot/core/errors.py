"""Errors with a sentence for the person who can fix them."""


class UserError(Exception):
    """Something the person can mend; the text is a sentence for them: what is wrong, where, what to do."""
