"""The build context: a commit of a git repository."""

import os
import re
import subprocess
from pathlib import Path

from local.kaniko.options import Options, Stop

# git's messages, and Kaniko's go-git's for the same errors.
SAID = (
    (r"Remote branch (\S+) not found", 'couldn\'t find remote ref "refs/heads/\\1"'),
    (r"could not read Username|Authentication failed", "authentication required: "),
    (r"repository .* not found", "repository not found: "),
    (r"not our ref|reference is not a tree|unable to read tree", "object not found"),
)

LOGIN = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "credential.helper",
    "GIT_CONFIG_VALUE_0": '!f() { echo "username=$GIT_USERNAME"; echo "password=$GIT_PASSWORD"; }; f',
}


def fetch(options: Options, folder: Path) -> Path:
    """Clone into `folder` and return the directory to build from. Raises Stop with go-git's message."""
    context = options.one("context")
    if "://" not in context:
        return Path(context)
    match = re.fullmatch(r"git://([^#]+)#refs/heads/([^#]+)#([0-9a-f]{40})", context)
    if not match:
        raise Stop(f"a local build takes git://HOST/REPOSITORY#refs/heads/BRANCH#SHA, not {context}")
    place, branch, commit = match.groups()
    url = f"{os.environ.get('GIT_PULL_METHOD', 'https')}://{place}"
    _git("clone", "--quiet", *_clone_options(options), f"--branch={branch}", url, str(folder))
    _git("-C", str(folder), "checkout", "--quiet", commit)
    return folder / options.one("context-sub-path")


def _clone_options(options: Options) -> list[str]:
    """Return the git options; `--git` is repeated for each key=value."""
    known = {"single-branch=true": "--single-branch", "recurse-submodules=true": "--recurse-submodules"}
    for option in options.all("git"):
        if option not in known:
            raise Stop(f"a local build has no --git={option}")
    return [known[option] for option in options.all("git")]


def _git(*words: str) -> None:
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"} | LOGIN
    done = subprocess.run(["git", *words], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        found = ((re.search(theirs, done.stderr), ours) for theirs, ours in SAID)
        raise Stop(next((match.expand(ours) for match, ours in found if match), done.stderr.strip()))
