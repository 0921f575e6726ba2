"""All knowledge of Katib's objects is in `k8s/katib` and the adapter of `bot`; another engine replaces both.

`.importlinter` allows only these, and the plan, to import it. No other file names a field, a condition, or a
reason of these objects either, or reads the object behind a value of `k8s.engine`.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SEAM = {"bot/sweep/model/engine.py"}
EXCEPTIONS = {
    "bot/operate/facts.py",  # lists all objects of a sweep for admins, whatever they are
    "bot/sweep/spaces/katib_file.py",  # reads an experiment that a user wrote for Katib
    "k8s/api/paths.py",  # the paths of all kinds in the API
}
# Words in the seam that other kinds of objects have, too.
COMMON = {
    *("Failed", "Job", "NaN", "Push", "Running", "Succeeded", "True", "False", "completionTime", "startTime"),
    *("creationTimestamp", "lastTransitionTime", "lastUpdateTime", "resourceVersion"),
    "terminationGracePeriodSeconds",
}


def words(tree):
    """Return the string literals of Python code without docstrings, each with its line."""
    docs = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    found = (each for each in ast.walk(tree) if isinstance(each, ast.Constant) and id(each) not in docs)
    return [(each.value, each.lineno) for each in found if isinstance(each.value, str)]


def names_of_katib():
    files = [*(ROOT / "k8s/katib" / f"{name}.py" for name in ("manifest", "patches", "spec", "status"))]
    trees = [ast.parse(file.read_text()) for file in (*files, *(ROOT / each for each in SEAM))]
    found = {word for tree in trees for word, _ in words(tree)}
    return {word for word in found if word.isalpha() and word != word.lower()} - COMMON


NAMES = names_of_katib()
SUSPECT = re.compile("|".join(("\\.raw\\b", *NAMES)))


def leaks(source):
    """Return what code outside the seam knows of Katib's objects."""
    if not (SUSPECT.search(source)):  # most files need no tree
        return []
    tree = ast.parse(source)
    named = [f"{line}: {word}" for word, line in words(tree) if word in NAMES]
    reads = [each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr == "raw"]
    objects = [ast.unparse(each) for each in reads]
    return named + [each for each in objects if each.split(".")[-2] in {"experiment", "trial"}]


def test_katibs_objects_are_known_only_to_the_seam():
    files = [file for wing in ("bot", "handlers", "k8s") for file in (ROOT / wing).rglob("*.py")]
    paths = {str(file.relative_to(ROOT)): file for file in files if "k8s/katib/" not in str(file)}
    assert paths.keys() >= SEAM | EXCEPTIONS
    found = {path: leaks(file.read_text()) for path, file in paths.items() if path not in SEAM | EXCEPTIONS}
    assert {path: leaked for path, leaked in found.items() if leaked} == {}


@pytest.mark.parametrize(
    "source",
    [
        'ended = "EarlyStopped" in true_conditions(trial)',
        'limit = experiment["spec"]["maxTrialCount"]',
        'reason == "ExperimentGoalReached"',
        'Ref("Trial", namespace, name)',
        "status = seen.experiment.raw",
    ],
)
def test_katibs_objects_that_other_code_reads_are_found(source):
    assert leaks(source)


def test_katibs_names_in_docstrings_and_sentences_are_no_leaks():
    assert not leaks('def f():\n    """Killed."""\n    return "Katib sets maxTrialCount: 1."')
