"""`sweepbot launch` without branch=: the checkout's branch, or a new one with what isn't pushed."""

import subprocess

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
    assert with_branch("space=lr gpus=2") == ("branch=deep/nets space=lr gpus=2", "")


@pytest.mark.parametrize(
    ("branch", "read"), [("_main_", "main"), ("origin/main", "main"), ("a&amp;b", "a&b")]
)
def test_branch_that_a_command_would_read_as_another_is_refused(checkout, branch, read):
    git(checkout, "checkout", "-b", branch)
    git(checkout, "push", "-u", "origin", "HEAD")
    with pytest.raises(UserError, match="can't be named: it is read as") as refused:
        with_branch("space=lr")
    assert f"read as {read}. *Fix:* Rename it." in str(refused.value)


def test_branch_with_an_apostrophe_is_named(checkout):
    git(checkout, "checkout", "-b", "ada's")
    git(checkout, "push", "-u", "origin", "HEAD")
    assert with_branch("space=lr") == ("branch='ada'\"'\"'s' space=lr", "")


@pytest.mark.parametrize("command", ["branch=main space=lr", "space=lr branch: main", "--branch main"])
def test_typed_branch_needs_no_pushed_checkout(checkout, command):
    (checkout / "new.py").write_text("")
    assert with_branch(command) == (command, "")


def test_outside_a_checkout_the_command_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert with_branch("space=lr") == ("space=lr", "")


def _edited(folder):
    (folder / "train.py").write_text("print(2)\n")


def _staged(folder):
    _edited(folder)
    git(folder, "add", "train.py")
    (folder / "train.py").write_text("print(3)\n")


def _untracked(folder):
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "run.log").write_text("x\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "née tête.py").write_text("1\n")


def _deleted(folder):
    (folder / "train.py").unlink()


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


def _of_a_local_branch(folder):
    git(folder, "checkout", "-b", "fresh", "--track", "deep/nets")
    _edited(folder)


def _oddly_renamed(folder):
    (folder / "# branch.head").write_text("long enough to be found again\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "Odd")
    git(folder, "mv", "# branch.head", "odd.py")


def _signed(folder):
    """As with `log.showSignature`, by which git also prints what it finds about a signature."""
    known = git(folder, "cat-file", "commit", "HEAD")
    parts = ("-----BEGIN SSH SIGNATURE-----", "VQ==", "-----END SSH SIGNATURE-----")
    signed = known.replace("\n\n", "\ngpgsig " + "\n ".join(parts) + "\n\n", 1)
    made = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    done = subprocess.run(made, cwd=folder, input=signed, capture_output=True, text=True, check=True)
    git(folder, "reset", "--hard", done.stdout.strip())
    git(folder, "config", "log.showSignature", "true")
    _edited(folder)


def _state(folder):
    """What is the person's own: files, index, branches, and what is checked out."""
    files = {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if ".git" not in path.parts and path.is_file()
    }
    return (
        files,
        git(folder, "status", "--porcelain"),
        git(folder, "branch", "-v"),
        git(folder, "stash", "list"),
    )


@pytest.mark.parametrize(
    "change",
    [
        *(_edited, _staged, _untracked, _deleted, _committed, _overtaken, _renamed, _detached, _never_pushed),
        *(_of_a_local_branch, _oddly_renamed, _signed),
    ],
)
def test_checkout_that_is_not_pushed_is_launched_from_a_branch_of_its_own(checkout, change):
    change(checkout)
    before = _state(checkout)
    command, note = with_branch("space=lr")
    branch = command.removeprefix("branch=").removesuffix(" space=lr")
    assert branch.startswith("sweepbot/")
    assert branch in note
    assert _state(checkout) == before
    git(checkout, "fetch", "origin", branch)
    wanted = {
        name for name in git(checkout, "ls-files", "-co", "--exclude-standard", "-z").split("\0") if name
    }
    wanted = {name: (checkout / name).read_text() for name in wanted if (checkout / name).exists()}
    names = git(checkout, "ls-tree", "-r", "--name-only", "-z", "FETCH_HEAD").split("\0")
    assert {name: git(checkout, "show", f"FETCH_HEAD:{name}") for name in names if name} == wanted
    assert with_branch("space=lr") == (command, note)  # a repeated launch is the same commit


def test_subject_says_what_is_launched(checkout):
    _edited(checkout)
    (checkout / "new.py").write_text("")
    _, note = with_branch("space=lr")
    assert note.startswith("Pushed 2 uncommitted changes and the commits of this checkout to sweepbot/")
    git(checkout, "fetch", "origin", note.split(" to ")[1].split(" ")[0])
    assert (
        git(checkout, "log", "-1", "--format=%s", "FETCH_HEAD").strip()
        == "2 uncommitted changes on deep/nets"
    )


def _secret(folder):
    (folder / "conf").mkdir()
    (folder / "conf" / ".env").write_text("TOKEN=1\n")


def _of_a_login(folder):
    (folder / ".kube").mkdir()
    (folder / ".kube" / "config").write_text("x\n")


def _secret_in_the_index(folder):
    (folder / "id_ed25519").write_text("x\n")
    git(folder, "add", "-N", "id_ed25519")


def _unpushed(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "-m", "More")


def _secret_in_a_commit(folder):
    _secret(folder)
    _unpushed(folder)


def _secret_deleted_by_a_later_commit(folder):
    (folder / "train.py").rename(folder / "id_rsa")
    _unpushed(folder)
    git(folder, "mv", "id_rsa", "train.py")
    git(folder, "commit", "-m", "Oops")
    _edited(folder)


def _secret_in_a_merge(folder):
    git(folder, "checkout", "-b", "left")
    _committed(folder)
    git(folder, "checkout", "deep/nets")
    git(folder, "merge", "--no-ff", "--no-commit", "left")
    _secret(folder)
    _unpushed(folder)


def _large(folder):
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(21 * 2**20)


def _nested(folder):
    git(folder, "init", "inner")


def _conflict(folder):
    git(folder, "checkout", "-b", "left")
    _committed(folder)
    git(folder, "checkout", "deep/nets")
    (folder / "train.py").write_text("print(3)\n")
    git(folder, "commit", "-am", "Other")
    subprocess.run(["git", "merge", "left"], cwd=folder, capture_output=True, check=False)


def _without_a_commit(folder):
    git(folder, "checkout", "--orphan", "empty")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            _secret,
            "conf/.env: new, and named like a secret, so that it isn't pushed. *Fix:* Add it to .gitignore",
        ),
        (_of_a_login, ".kube/config: new, and named like a secret"),
        (_secret_in_the_index, "id_ed25519: new, and named like a secret"),
        (_secret_in_a_commit, "conf/.env: named like a secret, and in a commit that isn't pushed"),
        (_secret_deleted_by_a_later_commit, "id_rsa: named like a secret, and in a commit that isn't pushed"),
        (_secret_in_a_merge, "conf/.env: named like a secret, and in a commit that isn't pushed"),
        (_large, "The changes have 21 MiB; 20 MiB can be pushed. The largest file is weights.bin."),
        (_nested, "inner/: a repository inside this one."),
        (_conflict, "train.py: merge conflicts."),
        (_without_a_commit, "no commit yet"),
    ],
)
def test_what_must_not_be_pushed_is_named_and_nothing_is(checkout, change, error):
    change(checkout)
    before = _state(checkout), git(checkout, "ls-remote", "origin")
    with pytest.raises(UserError) as refused:
        with_branch("space=lr")
    assert error in str(refused.value)
    assert "name the branch" in str(refused.value)
    assert (_state(checkout), git(checkout, "ls-remote", "origin")) == before


@pytest.mark.parametrize(
    "name", [".env.example", "sample.env", "secrets.py", "tokenizer.py", "kubeconfig_test.py"]
)
def test_file_that_only_looks_like_a_secret_is_pushed(checkout, name):
    (checkout / name).write_text("x\n")
    assert with_branch("space=lr")[1]


def test_secret_that_the_remote_already_has_is_no_reason(checkout):
    _secret(checkout)
    commit(checkout, "More")
    _edited(checkout)
    assert with_branch("space=lr")[1]


def test_shallow_checkout_of_a_pull_request_has_only_its_own_commits_to_push(checkout, tmp_path, monkeypatch):
    """As actions/checkout makes it: one commit, on no branch of the remote."""
    _secret(checkout)
    head = commit(checkout, "More")
    job, merge = tmp_path / "job", "refs/remotes/pull/1/merge"
    git(tmp_path, "init", str(job))
    git(job, "remote", "add", "origin", f"file://{tmp_path / 'remote.git'}")
    git(job, "fetch", "--depth=1", "origin", f"+{head}:{merge}")
    git(job, "checkout", merge)
    monkeypatch.chdir(job)
    assert with_branch("space=lr")[0].endswith(f"/{head[:12]} space=lr")
    git(job, "config", "user.name", "ada")
    git(job, "config", "user.email", "ada@example.com")
    (job / "id_rsa").write_text("x\n")
    _unpushed(job)
    with pytest.raises(UserError, match="id_rsa: named like a secret, and in a commit"):
        with_branch("space=lr")


def test_checkout_of_another_user_is_named_with_what_to_do(checkout, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    fix = rf"dubious ownership .*\*Fix:\* git config --global --add safe.directory {checkout}, or name"
    with pytest.raises(UserError, match=fix):
        with_branch("space=lr")


def test_person_unknown_to_git_can_launch_uncommitted_changes(checkout, monkeypatch):
    _edited(checkout)
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}", raising=False)
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "config", "--unset", name], check=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(checkout, "config", "user.useConfigOnly", "true")  # as where git can't guess
    assert "Pushed 1 uncommitted change" in with_branch("space=lr")[1]


def test_tags_stay(checkout):
    git(checkout, "config", "push.followTags", "true")
    git(checkout, "tag", "-a", "v1", "-m", "v1")
    _edited(checkout)
    assert with_branch("space=lr")[1]
    assert "v1" not in git(checkout, "ls-remote", "origin")


def test_refused_push_says_why_and_what_to_do(checkout, tmp_path):
    hook = tmp_path / "remote.git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'only admins create branches' >&2\nexit 1\n")
    hook.chmod(0o755)
    _edited(checkout)
    with pytest.raises(UserError) as refused:
        with_branch("space=lr")
    text = str(refused.value)
    assert "can't be pushed to sweepbot/" in text
    assert "remote: only admins create branches" in text
    assert "*Fix:* Allow branches named sweepbot/ on the remote" in text


def test_missing_remote_is_named_without_its_login(checkout):
    git(checkout, "remote", "set-url", "origin", "http://ada:p@hunter2@127.0.0.1:1/x.git")
    _edited(checkout)
    with pytest.raises(UserError) as refused:
        with_branch("space=lr")
    assert "hunter2" not in str(refused.value)
