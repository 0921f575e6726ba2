"""The mutation tests' lists name files, tests, and lines that exist."""

from itertools import chain
from pathlib import Path

from bench.mutants import mutants
from bench.mutation_targets import EQUIVALENT, TARGETS
from tests.cases import cases

ROOT = Path(__file__).parents[2]


def test_targets_name_files_and_tests_that_exist():
    named = {*TARGETS, *chain(*TARGETS.values())}
    assert not {path for path in named if not (ROOT / path).is_file()}


@cases("file", sorted({file for file, _ in EQUIVALENT}))
def test_equivalent_lines_are_those_of_mutants(file):
    listed = {line for each, line in EQUIVALENT if each == file}
    # Parsing and comparing the file for each of its mutants would take most of the time.
    named = [each for each in mutants(file) if listed & {*map(str.strip, each.mutated.splitlines())}]
    assert listed <= {line for mutant in named if mutant.parses for line in mutant.changed_lines}
