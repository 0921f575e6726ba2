"""`sweepbot launch` without branch=: the checkout's branch, if the server would build the same commit."""

import pytest

from bot.core.errors import UserError
from bot.remote.checkout import with_branch
from local.world import commit, git, publish


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A published repository of one file, on the branch deep/nets, as the working directory."""
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "train.py").write_text("print(1)\n")
    folder = tmp_path / "work"
    publish(tmp_path / "example", folder, tmp_path / "remote.git")
    git(folder, "checkout", "-b", "deep/nets")
    git(folder, "push", "-u", "origin", "HEAD")
    monkeypatch.chdir(folder)
    return folder


def test_branch_of_a_pushed_checkout_is_added(checkout):
    assert with_branch("space=lr gpus=2") == "branch=deep/nets space=lr gpus=2"


@pytest.mark.parametrize("command", ["branch=main space=lr", "space=lr branch: main", "--branch main"])
def test_typed_branch_needs_no_pushed_checkout(checkout, command):
    (checkout / "new.py").write_text("")
    assert with_branch(command) == command


def test_outside_a_checkout_the_command_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert with_branch("space=lr") == "space=lr"


def _edited(folder):
    (folder / "train.py").write_text("print(2)\n")


def _committed(folder):
    _edited(folder)
    git(folder, "commit", "-am", "More")


def _overtaken(folder):
    _edited(folder)
    commit(folder, "More")
    git(folder, "reset", "--hard", "HEAD~1")


def _renamed(folder):
    git(folder, "branch", "-m", "other")


def _detached(folder):
    git(folder, "checkout", "--detach")


def _never_pushed(folder):
    git(folder, "checkout", "-b", "fresh", "--no-track")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_edited, "1 change that you didn't commit. *Fix:* git commit and git push, or name the branch"),
        (_committed, "1 commit that you didn't push. *Fix:* git push, or"),
        (_overtaken, "has 1 newer commit. *Fix:* git pull, or"),
        (_renamed, "other isn't pushed under its name. *Fix:* git push -u origin HEAD"),
        (_never_pushed, "fresh isn't pushed under its name."),
        (_detached, "on no branch. *Fix:* git switch BRANCH"),
    ],
)
def test_checkout_that_the_server_would_not_build_is_refused(checkout, change, error):
    change(checkout)
    with pytest.raises(UserError) as refused:
        with_branch("space=lr")
    assert error in str(refused.value)
