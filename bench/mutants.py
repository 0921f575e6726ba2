"""Mutation tests: break one place at a time and see whether a test fails. `make mutants`

`python -m bench.mutants [--per-file N] [--seed S] [--only PART ...]` copies the tree, draws N mutants of each
file in bench.mutation_targets, and runs the tests named beside it. Prints each survivor as a diff, writes
bench/results/mutants.json (a run of all files), and exits with 1 if fewer than 95% are killed. Equivalent
mutants are left out, and those whose tests don't end in time: that can be the machine's load.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.mutation_targets import EQUIVALENT, TARGETS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "mutants.json"
COPIED = ("bot", "handlers", "k8s", "reader", "local", "tests", "bench", "deploy", "docs", "examples")
TIMEOUT, GRACE = 120.0, 10.0  # seconds for one mutant's tests, and to stop
GOAL = 0.95
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow")
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
        """Return the mutated lines, without indentation."""
        return [line[1:].strip() for line in self.diff().splitlines()[2:] if line.startswith("+")]

    @property
    def reason(self) -> str:
        """Return why this mutant is equivalent to the original; empty if it isn't."""
        return next(
            (EQUIVALENT[self.file, line] for line in self.changed_lines if (self.file, line) in EQUIVALENT),
            "",
        )

    @property
    def parses(self) -> bool:
        try:
            ast.parse(self.mutated)
        except SyntaxError:
            return False
        return True

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
    """Yield every mutant of one file, also those that don't parse."""
    original = (ROOT / file).read_text()
    source = Source(original)
    skipped = _not_run(source.tree)
    for node in ast.walk(source.tree):
        if id(node) not in skipped and isinstance(node, ast.expr | ast.stmt):
            for edit in (*_operators(node, source), *_values(node, source), *_branches(node, source)):
                yield Mutant(file, original, source.edited(edit))


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
    """Return the nodes of annotations, decorators, and `strict=` of zip: they change nothing that runs."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        roots += [part for name in ("annotation", "returns") if (part := getattr(node, name, None))]
        roots += getattr(node, "decorator_list", [])
        roots += [node.value] if isinstance(node, ast.keyword) and node.arg == "strict" else []
    return {id(node) for root in roots for node in ast.walk(root)}


class Tests:
    """Tests in a copy of the tree, each run in a fork that finds all but the tree's own modules imported."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        os.chdir(tree)
        sys.path.insert(0, str(tree))

    def preload(self, tests: Iterable[str]) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main([*PYTEST, "--collect-only", *tests])
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.tree)):
                del sys.modules[name]

    def kill(self, tests: tuple[str, ...], mutant: Mutant) -> bool | None:
        """Whether a test fails with this mutant in the tree; None if they don't end in time."""
        (self.tree / mutant.file).write_text(mutant.mutated)
        failed = self.fail(tests, TIMEOUT)
        (self.tree / mutant.file).write_text(mutant.original)
        return failed

    def fail(self, tests: Iterable[str], timeout: float | None = None) -> bool | None:
        """Whether a test fails; None if they don't end within `timeout` seconds."""
        run = multiprocessing.get_context("fork").Process(target=_run, args=(tests,))
        run.start()
        run.join(timeout)
        is_late = run.is_alive()
        run.terminate()  # it stops the servers that it started
        run.join(GRACE)
        run.kill()
        run.join()
        return None if is_late else run.exitcode != 0


def _run(tests: Iterable[str]) -> None:
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os._exit(pytest.main([*PYTEST, *tests]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-file", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="files whose path contains one of these")
    options = parser.parse_args()
    chosen = list(_chosen(options.per_file, options.seed, options.only))
    results: dict[Mutant, bool] = {}
    with tempfile.TemporaryDirectory(prefix="sweepbot-mutants-") as folder:
        tests = Tests(_copy(Path(folder)))
        every = sorted({each for mutant in chosen for each in TARGETS[mutant.file]})
        tests.preload(every)
        if tests.fail(every):
            sys.exit("the tests fail without a mutant")
        for mutant in chosen:
            killed = tests.kill(TARGETS[mutant.file], mutant)
            if killed is not None:
                results[mutant] = killed
            what = "survived" if killed is False else "not counted, out of time"
            print("." if killed else f"\n{what}:\n{mutant.diff()}\n", end="", flush=True)
    share = _report(results, options.seed, save=not options.only)
    return 0 if share >= GOAL else 1


def _chosen(per_file: int, seed: int, only: list[str]) -> Iterator[Mutant]:
    for file in TARGETS:
        if not only or any(part in file for part in only):
            every = [mutant for mutant in mutants(file) if mutant.parses and not mutant.reason]
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


def _report(results: dict[Mutant, bool], seed: int, *, save: bool) -> float:
    """Print the figures, and save them if asked. Return the share of killed mutants."""
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
    if save:
        RESULTS.write_text(json.dumps(measured, indent=2) + "\n")
    return share


if __name__ == "__main__":
    sys.exit(main())
