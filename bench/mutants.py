"""Mutation tests: break one place at a time and see whether a test fails. `make mutants`

`python -m bench.mutants [--per-file N] [--seed S] [--only PART]` copies the tree, draws N mutants of each
file in TARGETS, and runs the tests named beside it. Prints each survivor as a diff, writes
bench/results/mutants.json, and exits with 1 if fewer than 95% are killed. Equivalent mutants are left out.

By hand, because mutmut and cosmic-ray mutate Python only: half of the queue is Lua in strings.
"""

import argparse
import ast
import compileall
import contextlib
import difflib
import io
import json
import multiprocessing
import os
import platform
import py_compile
import random
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "mutants.json"
COPIED = ("bot", "handlers", "k8s", "local", "tests", "bench", "deploy", "docs", "examples")
TEST_TIMEOUT = 300  # seconds for one mutant's tests; an endless loop counts as killed
GOAL = 0.95
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow")
QUEUE = (
    "tests/bot/storage/test_work_queue.py",
    "tests/bot/storage/test_work_queue_leases.py",
    "tests/bot/storage/test_work_queue_quarantine.py",
)
TARGETS = {  # file -> the tests that must fail
    "bot/lifecycle/phases.py": (
        "tests/bot/lifecycle/test_lifecycle_phases.py",
        "tests/bot/lifecycle/test_lifecycle_building.py",
        "tests/bot/lifecycle/test_lifecycle_ends.py",
        "tests/bot/lifecycle/test_pause.py",
    ),
    "bot/lifecycle/events.py": ("tests/bot/lifecycle/test_events.py",),
    "bot/lifecycle/required_changes.py": ("tests/bot/lifecycle/test_required_changes.py",),
    "bot/lifecycle/commands.py": (
        "tests/bot/lifecycle/test_commands.py",
        "tests/bot/lifecycle/test_pause.py",
    ),
    "bot/lifecycle/gate.py": ("tests/bot/lifecycle/test_gate.py",),
    "bot/lifecycle/pause.py": ("tests/bot/lifecycle/test_pause.py",),
    "bot/lifecycle/deadline.py": ("tests/bot/lifecycle/test_deadline.py",),
    "bot/lifecycle/extension.py": (
        "tests/bot/lifecycle/test_extension.py",
        "tests/bot/lifecycle/test_commands.py",
    ),
    "bot/config/permissions.py": ("tests/bot/config/test_permissions.py",),
    "bot/health/rules_admission.py": (
        "tests/bot/health/test_rules_experiment.py",
        "tests/bot/health/test_rules_admission.py",
    ),
    "bot/health/rules_scheduling.py": ("tests/bot/health/test_rules_scheduling.py",),
    "bot/health/rules_startup.py": ("tests/bot/health/test_rules_startup.py",),
    "bot/health/rules_training.py": (
        "tests/bot/health/test_rules_training.py",
        "tests/bot/health/test_rules_eviction.py",
        "tests/bot/health/test_rules_katib.py",
    ),
    "bot/digests/figures.py": ("tests/bot/digests/test_figures.py",),
    "bot/storage/work_queue.py": QUEUE,
    "bot/storage/queue_scripts.py": QUEUE,
}
# (file, the mutated line) -> why no test can distinguish it from the original
EQUIVALENT = {
    (
        "bot/digests/figures.py",
        "return next(((*kind, number) for kind, number in partly.most_common(2)), None)",
    ): "next() takes the first of them",
    (
        "bot/lifecycle/phases.py",
        "sign = -1 if space.goal is Goal.MAXIMIZE else 2",
    ): "any positive factor keeps the order",
    (
        "bot/lifecycle/phases.py",
        "sign = -2 if space.goal is Goal.MAXIMIZE else 1",
    ): "any negative factor reverses the order",
    (
        "bot/storage/work_queue.py",
        "await self._sleep(min(left, float(found) - 0.001, MAX_BLOCK_SECONDS, self._lease / 4))",
    ): "wakes 2 ms earlier and looks once more",
}

OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.And: "or",
    ast.Or: "and",
}
PHASES = {"SUCCEEDED": "FAILED", "FAILED": "CANCELLED", "RUNNING": "BUILDING"}
LUA = {
    " == ": " ~= ",
    " < ": " >= ",
    " <= ": " > ",
    " > ": " <= ",
    " + ": " - ",
    "'ZREM'": "'ZCARD'",
    "'DEL'": "'EXISTS'",
    "if not ": "if ",
    "return 1": "return 0",
    "ring()": "holds('')",
}


@dataclass(frozen=True)
class Mutant:
    file: str
    original: str
    mutated: str

    @property
    def changed_lines(self) -> list[str]:
        lines = difflib.ndiff(self.original.splitlines(), self.mutated.splitlines())
        return [line[2:].strip() for line in lines if line.startswith("+ ")]

    @property
    def reason(self) -> str:
        """Return why this mutant is equivalent to the original; empty if it isn't."""
        return next(
            (EQUIVALENT[self.file, line] for line in self.changed_lines if (self.file, line) in EQUIVALENT),
            "",
        )

    def diff(self) -> str:
        before, after = self.original.splitlines(), self.mutated.splitlines()
        return "\n".join(difflib.unified_diff(before, after, self.file, self.file, n=0, lineterm=""))


class Source:
    """One Python file, with the byte offsets that `ast` counts in."""

    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        begin = self.starts[node.lineno - 1] + node.col_offset
        return begin, self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.raw[slice(*self.span(node))].decode()

    def between(self, left: ast.expr, right: ast.expr) -> tuple[int, int]:
        return self.span(left)[1], self.span(right)[0]

    def edited(self, edit: tuple[tuple[int, int], str]) -> str:
        (begin, end), new = edit
        return (self.raw[:begin] + new.encode() + self.raw[end:]).decode()


Edits = Iterator[tuple[tuple[int, int], str]]


def mutants(file: str) -> Iterator[Mutant]:
    """Yield every mutant of one file that still parses."""
    original = (ROOT / file).read_text()
    source = Source(original)
    skipped = _not_run(source.tree)
    for node in ast.walk(source.tree):
        if id(node) not in skipped and isinstance(node, ast.expr | ast.stmt):
            for edit in (*_operators(node, source), *_values(node, source), *_branches(node, source)):
                mutated = source.edited(edit)
                if _parses(mutated):
                    yield Mutant(file, original, mutated)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _operators(node: ast.AST, source: Source) -> Edits:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
            yield source.between(left, right), f" {OPERATORS[type(op)]} "
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield source.between(left, right), f" {OPERATORS[type(op)]} "
        case ast.BoolOp(op=op, values=[first, second, *_]):
            yield source.between(first, second), f" {OPERATORS[type(op)]} "
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield source.span(node), source.text(operand)


def _values(node: ast.AST, source: Source) -> Edits:
    match node:
        case ast.Constant(value=bool(value)):
            yield source.span(node), str(not value)
        case ast.Constant(value=int(value)):
            yield source.span(node), str(value + 1)
        case ast.Constant(value=str(value)) if "call('" in value:
            yield from _lua(node, source)
        case ast.Attribute(value=ast.Name(id="Phase"), attr=attr):
            yield source.span(node), f"Phase.{PHASES.get(attr, 'RUNNING')}"


def _lua(node: ast.Constant, source: Source) -> Edits:
    text, (start, _) = source.text(node), source.span(node)
    for old, new in LUA.items():
        for found in re.finditer(re.escape(old), text):
            begin, end = (start + len(text[:place].encode()) for place in found.span())
            yield (begin, end), new


def _branches(node: ast.AST, source: Source) -> Edits:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield source.span(test), f"not ({source.text(test)})"
        case ast.Call(func=ast.Name(id="min" | "max" as name) as func):
            yield source.span(func), "max" if name == "min" else "min"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield source.span(node), "return None"


def _not_run(tree: ast.Module) -> set[int]:
    """Return the nodes of annotations and decorators: breaking them changes nothing that runs."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        roots += [part for name in ("annotation", "returns") if (part := getattr(node, name, None))]
        roots += getattr(node, "decorator_list", [])
    return {id(node) for root in roots for node in ast.walk(root)}


class Tests:
    """Tests in a copy of the tree, each run in a fork that finds all but the tree's own modules imported."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        os.chdir(tree)
        sys.path.insert(0, str(tree))

    def preload(self, tests: set[str]) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main([*PYTEST, "--collect-only", *tests])
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.tree)):
                del sys.modules[name]

    def fail(self, tests: tuple[str, ...], mutant: Mutant | None = None) -> bool:
        """Whether a test fails, or never ends, with this mutant in the tree."""
        if mutant:
            (self.tree / mutant.file).write_text(mutant.mutated)
        run = multiprocessing.get_context("fork").Process(target=_run, args=(tests,))
        run.start()
        run.join(TEST_TIMEOUT)
        run.kill()
        run.join()
        if mutant:
            (self.tree / mutant.file).write_text(mutant.original)
        return run.exitcode != 0


def _run(tests: tuple[str, ...]) -> None:
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os._exit(pytest.main([*PYTEST, *tests]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-file", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="files whose path contains this")
    options = parser.parse_args()
    chosen = list(_chosen(options.per_file, options.seed, options.only))
    results: dict[Mutant, bool] = {}
    with tempfile.TemporaryDirectory(prefix="sweepbot-mutants-") as folder:
        tests = Tests(_copy(Path(folder)))
        lists = {TARGETS[mutant.file] for mutant in chosen}
        tests.preload({each for one in lists for each in one})
        if any(tests.fail(one) for one in lists):
            sys.exit("the tests fail without a mutant")
        for mutant in chosen:
            results[mutant] = tests.fail(TARGETS[mutant.file], mutant)
            print("." if results[mutant] else f"\nsurvived:\n{mutant.diff()}\n", end="", flush=True)
    return _report(results, options.seed)


def _chosen(per_file: int, seed: int, only: str) -> Iterator[Mutant]:
    for file in TARGETS:
        if only in file:
            every = [mutant for mutant in mutants(file) if not mutant.reason]
            chance = random.Random(f"{seed} {file}")  # noqa: S311 - draws a sample, guards nothing
            yield from chance.sample(every, min(per_file, len(every)))


def _copy(tree: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.*"), ROOT / ".env.example"):
        if path.is_file():
            shutil.copy(path, tree / path.name)
    compileall.compile_dir(tree, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    return tree


def _report(results: dict[Mutant, bool], seed: int) -> int:
    files = {
        file: [killed for mutant, killed in results.items() if mutant.file == file]
        for file in dict.fromkeys(mutant.file for mutant in results)
    }
    print()
    for file, killed in files.items():
        print(f"{file:32} {sum(killed):3} of {len(killed):3} killed")
    share = sum(results.values()) / len(results)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (used.ru_utime + used.ru_stime) / 60
    killed_all = f"{sum(results.values())} of {len(results)} mutants killed ({share:.0%})"
    print(f"\n{killed_all}, seed {seed}, {cpu:.1f} minutes of CPU time")
    measured = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "seed": seed,
        "cpu_minutes": round(cpu, 1),
        "files": {file: {"mutants": len(killed), "killed": sum(killed)} for file, killed in files.items()},
        "survivors": [mutant.diff() for mutant, killed in results.items() if not killed],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(measured, indent=2) + "\n")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
