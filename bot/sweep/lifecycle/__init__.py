"""The life of a plain sweep: what each phase decides, requires, and says. Knows no feature. Pure."""
