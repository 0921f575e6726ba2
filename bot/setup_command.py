"""The command `setup`, which asks its questions, shows the files that install Sweepbot on a cluster, asks
before it writes or replaces them, and runs its commands (`--apply`).
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from bot import __version__
from bot.core.errors import UserError
from bot.operate.findings import findings_lines
from bot.operate.setup.answers import Answers, Question, error_of, questions
from bot.operate.setup.cluster import look
from bot.operate.setup.files import IN_SLACK, Base, Secrets, commands, files, notes
from bot.platform.config.package import project_url
from bot.platform.config.section import parsed
from bot.platform.config.value_types import OBJECT_NAME
from bot.platform.config.yaml_reader import MAX_CHARACTERS, Node, read
from bot.text.masking import Mask, secrets_in_environment
from bot.text.terminal import without_markup
from bot.text.wording import listed, printable, shortened

UNREACHED = (
    "Without a cluster, setup asks and writes nothing. *Fix:* Set KUBECONFIG to a file with which "
    "`kubectl version` succeeds, and run this command again. With `--answers FILE` and without `--apply`, it "
    "writes the directory without a cluster."
)
# An interrupted or ended command leaves no port-forward behind.
SCRIPT = "trap 'exit 130' INT; trap 'kill $! 2> /dev/null && wait || :' EXIT\n{}"


def run_setup(arguments: argparse.Namespace) -> int:
    """Write the folder, and run the commands that the person agrees to. Raises UserError."""
    folder, asks = Path(arguments.folder), not arguments.answers
    base, secrets = _base(arguments.base, folder), _secrets(arguments)
    seen = asyncio.run(look())
    print(without_markup(Mask(secrets_in_environment(os.environ))(findings_lines(seen.findings))))
    if not seen.reached and (asks or arguments.apply is not None):
        raise UserError(UNREACHED)
    suggested = {key: text for key, text in (("registry", seen.registry), ("mlflow", seen.mlflow)) if text}
    answers = _asked(suggested) if asks else _from_file(Path(arguments.answers), suggested)
    texts = files(answers, base, secrets, seen.config, sidecars=seen.sidecars)
    _write(folder, texts, asks=asks)
    print("\n".join(["", *notes(answers), "Next:"]))
    next_ = commands(answers, base, secrets, arguments.folder)
    for number, command in enumerate([*next_, IN_SLACK], 1):
        print(f"{number}. {command}")
    if arguments.apply is not None:
        return _run(next_, arguments.apply)
    first = _first(len(next_)) if asks else 0
    return _run(next_, first) if first else 0


def _secrets(arguments: argparse.Namespace) -> Secrets:
    store = arguments.external_secrets or ""
    if store and not OBJECT_NAME.fullmatch(store):
        raise UserError(
            "--external-secrets= must be the name of a ClusterSecretStore; got "
            f'"{shortened(printable(store))}".'
        )
    return Secrets(sealed=arguments.sealed_secrets, store=store)


def _first(commands: int) -> int:
    """Ask which command to run first; 0: none."""
    question = f"\nRun 1 to {commands} in this cluster now? [y/N, or the number of the first one] "
    try:
        text = _typed(question).lower()
    except UserError:  # the folder is written
        return 0
    number = 1 if text in {"y", "yes"} else int(text) if text.isdecimal() and len(text) == 1 else 0
    return number if number <= commands else 0


def _run(commands: Sequence[str], first: int) -> int:
    """Run the commands from one on, until one fails, and return its exit code. Raises UserError."""
    if not 1 <= first <= len(commands):
        raise UserError(f"--apply= must be a number from 1 to {len(commands)}; got {first}.")
    for number, command in enumerate(commands[first - 1 :], first):
        print(f"\n{number}. {command}", flush=True)
        try:
            code = subprocess.run(["sh", "-c", SCRIPT.format(command)], check=False).returncode
        except KeyboardInterrupt:
            code = 130
        if code:
            again = f"Run it and those after it, or `sweepbot setup --apply {number}` with the same options."
            print(f"Command {number} failed (exit code {code}). {again}", file=sys.stderr)
            return code
    print(f"\n{len(commands) + 1}. {IN_SLACK}")
    return 0


def _base(given: str | None, folder: Path) -> Base:
    """Return the base of the manifests: an option's, or the repository that the installed package names."""
    address, documents = given or _repository(), project_url("Documentation")
    if "://" in address:
        address = address.rstrip("/")
        if not address.isprintable() or {*address} & {*" ?#"} or "//" in address.partition("://")[2]:
            raise UserError("--base must be the URL of Sweepbot's git repository, without a path in it.")
        return Base(address, f"{address.removesuffix('.git')}.git#v{__version__}", __version__, documents)
    if not Path(address, "deploy/base/kustomization.yaml").is_file():
        raise UserError(f"--base={address} is neither a URL nor a checkout of Sweepbot's repository.")
    return Base(os.path.relpath(Path(address).resolve(), folder.resolve()), address, __version__, documents)


def _repository() -> str:
    if found := project_url("Repository"):
        return found
    raise UserError(
        "This package doesn't name the repository of its manifests. *Fix:* Add --base with its URL, or "
        "with the path of a checkout."
    )


def _from_file(path: Path, suggested: Mapping[str, str]) -> Answers:
    """Return the answers of a file; what it leaves out is as in the cluster."""
    try:
        with path.open(encoding="utf-8") as file:
            root = read(file.read(MAX_CHARACTERS + 1), path.name)
    except OSError as error:
        raise UserError(f"--answers={path} can't be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise UserError(f"--answers={path} isn't UTF-8 text.") from None
    if isinstance(root.value, dict):
        for key, text in suggested.items():
            root.value.setdefault(key, Node(path.name, root.line, key, text, text, root.errors))
    return parsed(Answers, root)


def _asked(suggested: Mapping[str, str]) -> Answers:
    each, given = questions(suggested), dict[str, str | list[str]]()
    for number, one in enumerate(each, 1):
        print(f"\n{number}/{len(each)} {one.text}")
        if answer := _answer(one):
            given[one.key] = answer
    return parsed(Answers, read(yaml.safe_dump(given), "answers"))


def _answer(one: Question) -> str | list[str]:
    """Ask until the answer is allowed."""
    example = f"such as {one.example.strip('[]')}{'' if one.required else ', or nothing'}"
    hint = f"[{one.default}]" if one.default else f"({example})"
    while True:
        text = _typed(f"{one.key} {hint}: ") or one.default
        answer = text.replace(",", " ").split() if one.several else text
        if not answer and not one.required:
            return answer
        if not (error := error_of(one.key, answer)):
            return answer
        print(without_markup(error))


def _typed(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        raise UserError("No answer, so nothing was written.") from None


def _write(folder: Path, texts: Mapping[str, str], *, asks: bool) -> None:
    """Show what changes, ask, and write it. Raises UserError if nothing was written."""
    try:
        there = {name: (folder / name).read_text() for name in texts if (folder / name).exists()}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} can't be read ({error}).") from None
    replaced = [name for name in there if there[name] != texts[name]]
    for name, text in texts.items():
        state = "replaced" if name in replaced else "unchanged" if name in there else "new"
        print(f"\n{folder / name}: {state}")
        if state != "unchanged" and name.endswith(".yaml"):
            print(text, end="")
    _agree(folder, replaced, asks=asks)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UserError(f"{folder} can't be written ({error}).") from None


def _agree(folder: Path, replaced: Sequence[str], *, asks: bool) -> None:
    """Raise UserError unless the files can be written. To replace some, a word is needed."""
    if replaced and not asks:
        raise UserError(
            f"{listed(replaced)} in {folder} would be replaced, so nothing was written. *Fix:* Move them "
            "away, or run it without --answers."
        )
    if asks:
        what = f"Replace {listed(replaced)}? [y/N] " if replaced else "Write these files? [Y/n] "
        if _typed(f"\n{what}").lower() not in ({"y", "yes"} if replaced else {"y", "yes", ""}):
            raise UserError("Nothing was written.")
