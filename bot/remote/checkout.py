"""The branch of the git checkout to launch; what isn't pushed goes to a branch `sweepbot/…` first, unless it
has conflicts, changed submodules, files named like secrets, or more than 20 MiB.

To push that, the person's branch, index, and files stay as they are: the commit is made from a temporary
index. The same state is the same commit, so that a repeated launch is the same sweep.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from getpass import getuser
from itertools import takewhile
from pathlib import Path

from bot.core.errors import UserError
from bot.sweep.launch.command_line import TABLE
from bot.sweep.launch.options import LAUNCH
from bot.text.wording import counted, listed, shortened

STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")


def with_branch(command: str) -> tuple[str, str]:
    """Return the command with the checkout's branch if it names none, and what was pushed, if anything.

    Outside a checkout, the command is returned as it is, and the server says what is missing.
    Raises UserError.
    """
    if "branch" in TABLE.read(LAUNCH, command).options:
        return command, ""
    branch, note = _branch()
    return f"branch={branch} {command}" if branch else command, note


def _branch() -> tuple[str, str]:
    """Return the current branch if its remote branch is the same, else a new one; "" outside a checkout."""
    top, status = _output("rev-parse", "--show-toplevel"), _output(*STATUS)
    if not (top and status):
        return "", ""
    head = takewhile(
        lambda line: line.startswith("# "), status.split("\0")
    )  # a file's old name can be so, too
    about = dict(line[2:].split(" ", 1) for line in head)
    if about["branch.oid"] == "(initial)":
        raise UserError(f"The checkout has no commit yet. *Fix:* git commit and git push, {ELSE}")
    branch, changed = about["branch.head"], list(changes(status))
    upstream = about.get("branch.upstream", "")
    remote = _output("config", f"branch.{branch}.remote")
    remote = "origin" if remote in {"", "."} else remote  # .: it follows a local branch
    is_same = upstream == f"{remote}/{branch}" and about.get("branch.ab") == "+0 -0"
    if is_same and not changed:
        return branch, ""
    check(changed, Path(top), remote)
    return pushed(changed, "no branch" if branch == "(detached)" else branch, Path(top), remote)


def _output(*words: str) -> str:
    """Return what git prints; "" if it fails."""
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, errors="surrogateescape", check=True
        )
    except subprocess.CalledProcessError as error:
        fix = re.search(r"git config .*safe\.directory .*", error.stderr)
        if fix:  # the checkout belongs to another user, such as that of a container's host
            raise UserError(f"{_reason(error.stderr)}. *Fix:* {fix[0]}, {ELSE}") from None
        return ""
    except OSError:
        return ""
    return done.stdout.strip("\n")


MAX_CHANGED = 20 * 2**20  # bytes of all changed files
# Of new files, which may not be meant for publication.
SECRET_FILE = re.compile(
    r"\.env|\.envrc|\.env\.(?!example$|sample$|template$|dist$).+|(?!(example|sample|template)\.).+\.env|.+\.(pem|key|p12|pfx|jks|kdbx)|id_(rsa|dsa|ecdsa|ed25519)"
    r"|[._]netrc|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd|kubeconfig(\.ya?ml)?|.+\.kubeconfig|credentials(\.json|\.ya?ml)?"
    r"|service[-_]account.*\.json|secrets?\.(json|ya?ml|toml|txt)|\.docker(cfg|configjson)",
    re.IGNORECASE,
)
SECRET_FOLDERS = {".ssh", ".aws", ".azure", ".docker", ".gnupg", ".kube"}
SHOWN = 3  # files in a sentence
LOGIN = re.compile(r"//[^/\s]*@")  # of a URL
ELSE = "or name the branch, such as branch=main, to launch what is pushed."


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that differs from the latest commit."""

    path: str
    kind: str  # as `git status` has it: 1 changed, 2 renamed, u unmerged, ? untracked
    is_new: bool
    submodule: str = "N..."  # S and what is changed inside; N if it is none


def changes(status: str) -> Iterator[Change]:
    """Yield the changes in the output of `git status --porcelain=v2 -z`."""
    lines = iter(status.split("\0"))
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "?":
            yield Change(path=rest, kind=kind, is_new=True)
        elif kind in {"1", "2", "u"}:
            parts = rest.split(" ", {"1": 7, "2": 8, "u": 9}[kind])
            is_new = kind == "2" or "A" in parts[0]
            yield Change(path=parts[-1], kind=kind, is_new=is_new, submodule=parts[1])
            if kind == "2":
                next(lines, "")  # where it was


def check(changed: list[Change], top: Path, remote: str) -> None:
    """Raise UserError for what can't, or shouldn't, be pushed."""
    if unmerged := [each.path for each in changed if each.kind == "u"]:
        raise UserError(f"{_named(unmerged)}: merge conflicts. *Fix:* Resolve them, {ELSE}")
    if inside := [each.path for each in changed if set(each.submodule[2:]) - {"."}]:
        raise UserError(f"{_named(inside)}: a submodule with changes inside. *Fix:* Push them there, {ELSE}")
    if nested := [each.path for each in changed if each.kind == "?" and each.path.endswith("/")]:
        raise UserError(
            f"{_named(nested)}: a repository inside this one. *Fix:* Add it to .gitignore, {ELSE}"
        )
    if secret := [each.path for each in changed if each.is_new and _is_secret(Path(each.path))]:
        raise UserError(
            f"{_named(secret)}: new, and named like a secret, so that it isn't pushed. *Fix:* Add it to "
            f".gitignore, {ELSE}"
        )
    if secret := [path for path in _committed_paths(top, remote) if _is_secret(Path(path))]:
        raise UserError(
            f"{_named(secret)}: named like a secret, and in a commit that isn't pushed, also if a later one "
            f"deletes it. *Fix:* Remove it from that commit, git push if it isn't a secret, {ELSE}"
        )
    sizes = {each.path: _size(top / each.path) for each in changed}
    if sum(sizes.values()) > MAX_CHANGED:
        largest, size = max(sizes, key=lambda path: sizes[path]), sum(sizes.values()) / 2**20
        raise UserError(
            f"The changes have {size:,.0f} MiB; {MAX_CHANGED // 2**20} MiB can be pushed. "
            f"The largest file is {shortened(largest)}. *Fix:* Add it to .gitignore, {ELSE}"
        )


def _committed_paths(top: Path, remote: str) -> list[str]:
    """Return the files that commits add which no known branch of the remote has; of a merge, its own.

    The ends of a shallow history were fetched, too, even if a CI job stores them as no branch of the remote.
    """
    added = ("--diff-filter=A", "--no-renames", "-c", "--format=", "--name-only", "-z")
    fetched: list[str] = []
    with suppress(FileNotFoundError):
        fetched = (top / _git(top, "rev-parse", "--git-path", "shallow")).read_text().split()
    found = _git(top, "log", *added, "HEAD", "--not", f"--remotes={remote}", *fetched)
    return [*dict.fromkeys(filter(None, found.split("\0")))]


def _is_secret(path: Path) -> bool:
    return bool(SECRET_FILE.fullmatch(path.name) or SECRET_FOLDERS & {*path.parts})


def _named(paths: list[str]) -> str:
    more = [f"{len(paths) - SHOWN} more"] if len(paths) > SHOWN else []
    return listed([*map(shortened, paths[:SHOWN]), *more])


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_size
    return 0  # deleted


def pushed(changed: list[Change], branch: str, top: Path, remote: str) -> tuple[str, str]:
    """Push the checkout to a branch of its own. Return that branch, and a sentence. Raises UserError."""
    head = _git(top, "rev-parse", "--verify", "HEAD")
    commit = _committed(changed, branch, top, head) if changed else head
    name = f"sweepbot/{_user(top)}/{commit[:12]}"
    try:
        _git(top, "push", "--quiet", "--no-follow-tags", remote, f"{commit}:refs/heads/{name}")
    except UserError as error:
        raise UserError(
            f"The checkout has what isn't pushed, and can't be pushed to {name}: {error} *Fix:* Allow "
            f"branches named sweepbot/ on the remote, or git commit and git push, {ELSE}"
        ) from None
    what = f"{counted(len(changed), 'uncommitted change')} and the commits" if changed else "the commits"
    return name, f"Pushed {what} of this checkout to {name} ({commit[:8]})."


def _committed(changed: list[Change], branch: str, top: Path, head: str) -> str:
    """Return a commit of all files that aren't ignored, on top of the latest commit, with its date."""
    date = _git(top, "show", "--no-patch", "--format=%ct +0000", head)
    with tempfile.TemporaryDirectory(prefix="sweepbot-") as folder:
        index = Path(folder) / "index"
        with suppress(FileNotFoundError):  # with what git knows of unchanged files
            shutil.copyfile(_git(top, "rev-parse", "--path-format=absolute", "--git-path", "index"), index)
        own = {"GIT_INDEX_FILE": str(index)}
        _git(top, "add", "--all", env=own)
        tree = _git(top, "write-tree", env=own)
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    subject = f"{counted(len(changed), 'uncommitted change')} on {branch}"
    who = [  # git refuses to commit for people whom it doesn't know
        word
        for key in ("user.name", "user.email")
        for word in ("-c", f"{key}={_output('config', key) or 'sweepbot'}")
    ]
    return _git(top, *who, "commit-tree", tree, "-p", head, "-m", subject, env=dates)


def _user(top: Path) -> str:
    """Return a name for the branch."""
    mail = ""
    with suppress(UserError):
        mail = _git(top, "config", "user.email")
    with suppress(KeyError, OSError):  # a container's user without a name
        mail = mail or getuser()
    return re.sub(r"[^a-z0-9]+", "-", mail.partition("@")[0].lower()).strip("-")[:40] or "someone"


def _git(top: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """Return the output. Raises UserError with git's own words."""
    try:
        done = subprocess.run(
            ["git", "-c", "log.showSignature=false", *words],
            cwd=top,
            env=os.environ | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise UserError(f"git can't be run: {error}.") from None
    if done.returncode:
        raise UserError(_reason(done.stderr) or f"git {words[0]} failed.")
    return done.stdout.strip()


def _reason(text: str) -> str:
    """Return the lines that say why, without the login of a URL."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    why = [line for line in lines if line.startswith(("remote:", "!", "error:", "fatal:"))] or lines
    return LOGIN.sub("//…@", " ".join(why))[:500]
