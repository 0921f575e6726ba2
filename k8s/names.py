"""Make valid Kubernetes names; truncated ones get a hash, so they don't collide."""

import hashlib
import re


def name(*words: str, limit: int = 63) -> str:
    """Join words into a DNS label; a changed or truncated name ends with a short hash."""
    raw = "-".join(words)
    clean = re.sub(r"[^a-z0-9]+", "-", raw.lower()).strip("-")
    if clean == raw and len(clean) <= limit:
        return clean
    mark = hashlib.sha256(raw.encode()).hexdigest()[:8]
    return f"{clean[: limit - 9].rstrip('-')}-{mark}".lstrip("-")


def label_value(text: str) -> str:
    """Return a valid label value: up to 63 of [A-Za-z0-9._-], alphanumeric at both ends."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("._-")
