"""Delete one part at a time in a scratch clone: what is left must import, check, and pass its fast tests.

`python -m tests.deletable [NAME ...]`, by default those that the last commit touched; `--all` takes each.
`--first` tries the first of them with the tests nearest to it: .ci/run has time for that. Each night all are
tried with all.

A part is a feature of sweeps or a workspace. With its files go its lines in the table and in documents, its
tests, and every test that imports one of these. Stories that need a part and import nothing of it are marked:
`@pytest.mark.features("pause")`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEATURES = "bot/sweep/features"
WORKSPACES = {
    "elastic": ("bot/workspaces/elastic", "bot/operate/check_elastic.py", "handlers/elastic_buttons.py"),
    "environments": (  # and services: bot/workspace_table.py says why
        "bot/workspaces/environments",
        "bot/workspaces/services",
        "bot/operate/check_environments.py",
        "handlers/slash_env.py",
        "handlers/slash_env_service.py",
        "k8s/environments.py",
        "k8s/services.py",
        "bench/environment_start.py",
    ),
    "reservations": (
        "bot/workspaces/reservations",
        "bot/operate/check_reservations.py",
        "k8s/reservations.py",
    ),
}
# By name: the files of each part.
FOLDERS = [path.parent.name for path in (ROOT / FEATURES).glob("*/__init__.py")]
PARTS = {name: (f"{FEATURES}/{name}",) for name in sorted(FOLDERS)} | WORKSPACES
TABLES = ("bot/sweep/feature_table.py", "bot/workspace_table.py")
PAGE, CONTRACTS, MUTANTS = "docs/architecture.md", ".importlinter", "bench/mutation_targets.py"
# By part: pages with links to headings of the reference that go with it.
LINKS = {"environments": ("docs/environments.md", r"configuration\.md#service\b")}
# Tests of what uses the tables: decisions, answers, messages, the doctor; and a life of every kind of sweep.
NEAREST = (
    "bot/sweep",
    "bot/workspaces",
    "bot/operate",
    "handlers/test_handlers.py",
    "scenarios/test_any_crash.py",
)


def touched() -> list[str]:
    """Return the parts whose files the last commit changed."""
    changed = _git("log", "-1", "--first-parent", "-m", "--name-only", "--format=").splitlines()
    return [name for name, files in PARTS.items() if any(path.startswith(files) for path in changed)]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def delete(name: str, clone: Path) -> list[str]:
    """Delete the part. Return the deleted tests."""
    files = PARTS[name]
    gone = sorted(_with_importers(_own_tests(files, clone), clone))
    for path in (*gone, *(clone / each for each in files)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    modules = "|".join(re.escape(each) for each in _modules(files))
    for table in TABLES:  # its imports and its value
        _drop_lines(clone / table, rf'(from )?({modules})\b|\s+({name}(\.[A-Z_]+)?,|"{name}": )')
    _drop_lines(clone / PAGE, rf".*({'|'.join(map(re.escape, files))})\b")
    if name in LINKS:
        page, link = LINKS[name]
        _drop_lines(clone / page, f".*{link}")
    _drop_lines(clone / CONTRACTS, rf"\s+({modules})\b")
    tests = [path.relative_to(clone).as_posix() for path in gone]
    (clone / MUTANTS).write_text(_without_mutants(files, tests, (clone / MUTANTS).read_text()))
    return tests


def _modules(files: Iterable[str]) -> list[str]:
    return [each.removesuffix(".py").replace("/", ".") for each in files]


def _drop_lines(file: Path, pattern: str) -> None:
    kept = [line for line in file.read_text().splitlines() if not re.match(pattern, line)]
    file.write_text("\n".join(kept) + "\n")


def _without_mutants(files: Iterable[str], tests: list[str], text: str) -> str:
    """Return the lists of mutants without those of the part's files, and without deleted tests."""
    file = rf'"({"|".join(map(re.escape, files))})(/[^"]+)?"'
    text = re.sub(rf"^    {file}: (\([^()]*\)|[^\n]*),\n", "", text, flags=re.MULTILINE)
    text = re.sub(rf"^    \(\s+{file},\n(        .*\n)+    \): .*,\n", "", text, flags=re.MULTILINE)
    for test in tests:
        text = text.replace(f'"{test}"', "*()")
    return text


def _own_tests(files: Iterable[str], clone: Path) -> Iterator[Path]:
    """Yield the tests of the part's folders, and those that name one of its modules."""
    patterns = []
    for module in _modules(files):
        parent, _, leaf = module.rpartition(".")
        patterns.append(rf"{re.escape(module)}\b|{re.escape(parent)} import .*\b{leaf}\b")
    module = re.compile(rf"\b({'|'.join(patterns)})")
    folders = tuple(f"tests/{each}/" for each in files)
    for path in (clone / "tests").rglob("*.py"):
        name = path.relative_to(clone).as_posix()
        if name != "tests/deletable.py" and (name.startswith(folders) or module.search(path.read_text())):
            yield path


def _with_importers(deleted: Iterable[Path], clone: Path) -> set[Path]:
    """Add the tests that import a deleted one, directly or not."""
    gone, texts = set(deleted), {path: path.read_text() for path in (clone / "tests").rglob("*.py")}
    while True:
        modules = [".".join(path.relative_to(clone).with_suffix("").parts) for path in gone]
        patterns = [
            rf"from {re.escape(module)} import|from {re.escape(module.rpartition('.')[0])} import .*\b"
            rf"{re.escape(module.rpartition('.')[2])}\b"
            for module in modules
        ]
        pattern = re.compile("|".join(patterns) or "(?!)")
        more = {path for path, text in texts.items() if path not in gone and pattern.search(text)}
        if not more:
            return gone
        gone |= more


def check(name: str, tests: Iterable[str]) -> bool:
    """Return whether the rest of a clone without this part passes these; print what it was tried with."""
    with tempfile.TemporaryDirectory(prefix="sweepbot-deletable-") as folder:
        clone = Path(folder) / "clone"
        _git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
        gone = delete(name, clone)
        print(f"{name}: deleted with {len(gone)} files of tests", flush=True)
        tools = Path(sys.executable).parent
        chosen = [f"tests/{each}" for each in tests if (clone / "tests" / each).exists()]
        fast = ["-q", "-n", "2", "--dist", "worksteal", "-m", "not slow", "-p", "no:cacheprovider"]
        if (cache := ROOT / ".mypy_cache").is_dir():
            shutil.copytree(cache, f"{folder}/mypy")
        commands = (
            [sys.executable, "-m", "docs.reference"],
            [tools / "ruff", "check", "--quiet", "bot", "handlers"],
            [tools / "lint-imports", "--no-cache"],
            [tools / "mypy", "--cache-dir", f"{folder}/mypy"],
            [tools / "pytest", *fast, "--without", name, *chosen],
        )
        for command in commands:
            done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: {Path(command[0]).name} fails\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
                return False
        print(f"{name}: {done.stdout.splitlines()[-1]}", flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--all", action="store_true", help="all parts, which takes more than an hour")
    parser.add_argument("--first", action="store_true", help="only the first, with the tests nearest to it")
    options = parser.parse_args()
    if unknown := set(options.names) - {*PARTS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Available: {', '.join(PARTS)}")
    chosen = [*PARTS] if options.all else options.names or touched()
    chosen, tests = (chosen[:1], NEAREST) if options.first else (chosen, [""])
    print(f"Trying to delete: {', '.join(chosen) or 'nothing, because the last commit touched no part'}")
    failed = [name for name in chosen if not check(name, tests)]
    sys.exit(f"Can't be deleted: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
