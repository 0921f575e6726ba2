"""The addresses that an installed package names: the release workflow writes them into it."""

from importlib.metadata import PackageNotFoundError, metadata


def project_url(label: str) -> str:
    """Return the package's URL with this label, such as `Repository`; empty in a checkout."""
    try:
        urls = metadata("sweepbot").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    return next((url for name, _, url in (str(each).partition(", ") for each in urls) if name == label), "")
