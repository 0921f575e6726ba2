"""`pip install sweepbot` has few packages: the commands that researchers run need no others."""

import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from local.world import publish

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What isn't installed is None there, as if it were missing; the rest of the program runs as it is. One
# process runs all commands, one a line: to start it takes longer than most of them.
RUN = """
import contextlib, io, json, os, sys
sys.modules.update(dict.fromkeys({!r}))
from bot.__main__ import main
for line in sys.stdin:
    words, environment = json.loads(line)
    sys.argv[1:], own = words, dict(os.environ)
    os.environ.update(environment)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    os.environ.clear()
    os.environ.update(own)
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def installed(lines):
    """Return the names of packages that these requirements bring."""
    found, waiting = set(), [Requirement(line) for line in lines]
    while waiting:
        one = waiting.pop()
        extras = one.extras or {""}
        if one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = canonicalize_name(one.name)
        if name not in found:
            found.add(name)
            needs = [Requirement(line) for line in requires(name) or ()]
            waiting += [n for n in needs if not n.marker or n.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def slim(tmp_path_factory):
    """`slim(*words, **environment)`: how the command ends in a repository, with few packages."""
    folder = tmp_path_factory.mktemp("slim")
    publish(ROOT / "examples" / "digits", folder / "digits", folder / "digits.git")
    known = installed(PROJECT["dependencies"])
    missing = [
        module
        for module, packages in packages_distributions().items()
        if not {canonicalize_name(package) for package in packages} & known and module != "bot"
    ]
    assert {"slack_bolt", "redis", "kubernetes", "matplotlib"} <= set(missing)
    assert len(known) < 30
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", RUN.format(missing)]
    with subprocess.Popen(command, cwd=folder / "digits", env=environment, **pipes) as process:

        def run(*words, **more):
            print(json.dumps([[str(word) for word in words], more]), file=process.stdin, flush=True)
            return subprocess.CompletedProcess(words, *json.loads(process.stdout.readline()))

        yield run


def test_plan_reads_the_repository_of_the_working_directory(slim):
    done = slim("plan", "/sweep", "branch=main", "space=lr", "trials=4", "name=two words")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# two words on main @ ")
    assert "\n# Trials:      4," in done.stdout
    quoted = slim("plan", "branch=main space=lr trials=4 name='two words'", "--repo", ".")
    assert quoted.stdout.splitlines()[1:9] == done.stdout.splitlines()[1:9]


def test_plan_of_no_repository_is_an_error(slim):
    done = slim("plan", "branch=main", "space=lr", "--repo", "elsewhere")
    assert done.stderr == "--repo=elsewhere is neither a URL (https, http) nor a directory.\n"
    assert slim("plan", "branch=main", "space=lr", "--repo", "sweeps").returncode == 2


def test_space_is_checked_and_explained(slim):
    assert slim("space", "check", "sweeps/lr.yaml").stdout == "No errors.\n"
    assert slim("space", "explain", "sweeps/lr.yaml", "trials=4", "gpus=2").stdout.startswith(
        "4 trials, 2 in"
    )


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("results", "lr-brave-otter"), "cluster"),
        (("setup", "mine", "--base", ROOT), "cluster"),
        (("mcp",), "mcp"),
        (("doctor",), "server"),
        (("serve",), "server"),
    ],
)
def test_another_command_names_what_to_install(slim, words, extra):
    done = slim(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f'This command needs pip install "sweepbot[{extra}]"')


def test_calls_of_the_api_need_no_other_package(slim):
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)  # without what is asked for
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    url = f"http://127.0.0.1:{server.server_port}"
    login = {"SWEEPBOT_URL": url, "SWEEPBOT_TOKEN": f"swb_{'a' * 43}"}
    try:
        for words in (["status", "lr-brave-otter"], ["results", "lr-brave-otter"], ["list", "--active"]):
            done = slim(*words, **login)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"{url} answers with status 404. Fix: Check the URL.\n"
    finally:
        server.shutdown()
        server.server_close()
    assert "quote" in slim("launch", "space='lr", **login).stderr
    assert slim("launch", "space=lr").stderr.startswith(
        "You aren't logged in. Fix: Type /sweep token in Slack"
    )


def test_several_space_files_are_checked_with_all_errors(slim):
    assert slim("space", "check", "sweeps/lr.yaml", "sweeps/idle.yaml", "trials=2").stdout == (
        "sweeps/lr.yaml: No errors.\nsweeps/idle.yaml: No errors.\n"
    )
    done = slim("space", "check", "train.py", "sweeps/lr.yaml", "sweeps/none.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("train.py:")
    assert done.stderr.endswith("sweeps/none.yaml can't be read (No such file or directory).\n")


def test_configuration_file_is_checked_with_all_errors(slim, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("repositories: {digits: {url: https://git.example/digits.git}}\n")
    assert slim("config", "check", file).stdout == "No errors.\n"
    file.write_text(f"{file.read_text()}limits: {{trials: many}}\nprofile: {{}}\n")
    done = slim("config", "check", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(line.split(": ")[:2] for line in done.stderr.splitlines()) == [
        ["config.yaml:2", "limits.trials"],
        ["config.yaml:3", "profile"],
    ]
    gone = slim("config", "check", tmp_path / "none.yaml")
    assert gone.stderr.endswith("none.yaml can't be read (No such file or directory).\n")


@pytest.mark.parametrize("kind", ["space", "config"])
def test_schema_is_printed_for_editors(slim, kind):
    assert slim("schema", kind).stdout == (ROOT / "docs" / "schemas" / f"{kind}.schema.json").read_text()


def test_github_action_marks_the_line_of_an_error(slim, tmp_path):
    """Its script, with the program of the tests in place of an installed one."""
    program = f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m bot "$@"'
    for name, line in {"pip": "exit 0", "sweepbot": program}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sweeps").mkdir()
    shutil.copy(ROOT / "examples" / "digits" / "sweeps" / "lr.yaml", tmp_path / "sweeps")
    (tmp_path / "temp").mkdir()
    script = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]["run"]

    def check():
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env={
                "PATH": f"{tmp_path}:/usr/bin:/bin",
                "FILES": "sweeps/*.yaml",
                "SWEEPBOT": str(ROOT),
                "RUNNER_TEMP": str(tmp_path / "temp"),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    done = check()
    assert (done.returncode, done.stdout) == (0, "No errors.\n")
    (tmp_path / "sweeps" / "bad.yaml").write_text("# nothing\nobjectiv: {metric: loss}\n")
    done = check()
    assert done.returncode == 1
    assert "::error file=sweeps/bad.yaml,line=2::" in done.stdout
    assert {each.name for each in tmp_path.iterdir()} == {"pip", "sweepbot", "sweeps", "temp"}


def test_pre_commit_hook_runs_a_command_that_exists():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"]) == ("sweepbot space check", "python")
    assert re.match(hook["files"], "sweeps/lr.yaml")
