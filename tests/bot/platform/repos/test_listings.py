"""Listings of commits that are kept in memory, and the descriptions of listed spaces."""

import pytest

from bot.platform.repos import listings
from bot.platform.repos.catalog import description
from bot.platform.repos.listings import Listings

FILE, FOLDER = ("100644", "a1"), ("040000", "b2")


def test_listings_return_what_a_commit_has_at_listed_paths_only():
    known = Listings()
    known.put("url", "c1", ["a.txt", "none.txt", "b"], {"a.txt": FILE, "b": FOLDER})
    assert known.get("url", "c1", ["a.txt", "none.txt"]) == {"a.txt": FILE}
    assert known.get("url", "c1", ["b"]) == {"b": FOLDER}
    for url, commit, paths in (("url", "c1", ["a.txt", "c"]), ("url", "c2", ["b"]), ("other", "c1", ["b"])):
        assert known.get(url, commit, paths) is None
    assert known.get("url", "c1", []) is None


@pytest.mark.parametrize("folder", ["b/", "/", ""])
def test_listings_of_directories_are_not_kept(folder):
    known = Listings()
    known.put("url", "c1", [folder], {"b/c.txt": FILE})
    assert known.get("url", "c1", [folder]) is None


def test_listings_drop_the_oldest_commit(monkeypatch):
    monkeypatch.setattr(listings, "MAX_COMMITS", 2)
    known = Listings()
    for commit in ("c1", "c2", "c3"):
        known.put("url", commit, ["a.txt"], {"a.txt": FILE})
    assert [known.get("url", commit, ["a.txt"]) is not None for commit in ("c1", "c2", "c3")] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("# of the paper\ndescription: lr  # and more\ntrials: 3", "lr"),
        ('description: "lr and wd"  # for the paper\n', "lr and wd"),
        ("description: >\n  lr and\n  depth\ntrials: 3", "lr and depth"),
        ("description: 'it''s'\n", "it's"),
        ("description: [\ntrials: 3", ""),
        ("description: {a: b}", ""),
        ("#  of the paper\ntrials: 3", "of the paper"),
        ("---\n# yaml-language-server: $schema=.schema.json\n# of the paper\ntrials: 3", "of the paper"),
        ("# yaml-language-server: $schema=.schema.json\ntrials: 3", ""),
        ("trials: 3", ""),
    ],
)
def test_description_is_read_as_yaml(file, shown):
    assert description(file) == shown
