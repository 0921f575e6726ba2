"""The build context: a commit of a git repository."""

import base64
import os
import re
import subprocess
from pathlib import Path

from local.kaniko.options import Options, Stop

# What git says, and what Kaniko's go-git says in its place.
SAID = (
    (r"Remote branch .* not found|couldn't find remote ref", "reference not found"),
    (r"could not read Username|Authentication failed", "authentication required"),
    (r"repository .* not found", "repository not found"),
    (r"not our ref|reference is not a tree|unable to read tree", "object not found"),
)


def fetch(options: Options, folder: Path) -> Path:
    """Clone into `folder`; the folder to build from. Raises Stop with go-git's words."""
    context = options.one("context")
    match = re.fullmatch(r"git://([^#]+)(?:#(refs/[^#]+))?(?:#([0-9a-f]{40}))?", context)
    if not match:
        raise Stop(f"a local build takes git://HOST/REPOSITORY#refs/heads/BRANCH#SHA, not {context}")
    place, reference, commit = match.groups()
    url = f"{os.environ.get('GIT_PULL_METHOD', 'https')}://{place}"
    _git("clone", "--quiet", *_clone_options(options, reference), url, str(folder))
    if commit and not reference:
        _git("-C", str(folder), "fetch", "--quiet", "origin", commit)
    if commit:
        _git("-C", str(folder), "checkout", "--quiet", commit)
    return folder / options.one("context-sub-path")


def _clone_options(options: Options, reference: str | None) -> list[str]:
    """`--git` is given once for each key=value."""
    git = dict(pair.split("=", 1) for pair in options.all("git") if "=" in pair)
    branch = git.get("branch") or (reference or "").removeprefix("refs/heads/")
    if "," in branch:
        raise Stop(f"invalid branch {branch}")
    flags = {"single-branch": "--single-branch", "recurse-submodules": "--recurse-submodules"}
    chosen = [flag for key, flag in flags.items() if git.get(key) == "true"]
    if "depth" in git:
        chosen.append(f"--depth={git['depth']}")
    return chosen + ([f"--branch={branch}"] if branch else [])


def _git(*words: str) -> None:
    """The token goes as the user's name and never into .git/config, which COPY would put into the image."""
    user = os.environ.get("GIT_USERNAME") or os.environ.get("GIT_TOKEN")
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if user:
        secret = base64.b64encode(f"{user}:{os.environ.get('GIT_PASSWORD', '')}".encode()).decode()
        env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader"}
        env |= {"GIT_CONFIG_VALUE_0": f"Authorization: Basic {secret}"}
    done = subprocess.run(["git", *words], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = next((ours for theirs, ours in SAID if re.search(theirs, done.stderr)), done.stderr.strip())
        raise Stop(said)
