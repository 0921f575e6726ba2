"""The descriptions of listed spaces."""

import pytest

from bot.platform.repos.catalog import description


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
