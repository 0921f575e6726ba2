"""The images that the files of a repository are built into."""

import re
import subprocess

import pytest

from bot.core.errors import UserError
from bot.core.plan import Role
from bot.sweep.builds import pyproject
from bot.sweep.builds.pyproject import toml
from bot.sweep.builds.recipes import WITHOUT_LOGINS
from tests.bot.sweep.builds.projects import (
    BASE,
    BUILD,
    LOCK,
    PROJECT,
    UV,
    made,
    roles,
)
from tests.cases import cases


def test_recipe_prefers_and_splits_a_dockerfile():
    found = made({"Dockerfile": "FROM x", **UV})
    why = "from `Dockerfile`, in one Job: it has no `COPY . DIRECTORY`"
    assert (roles(found), found.words) == ([Role.IMAGE], why)
    assert found.steps[0].own
    elsewhere = made({"docker/train": "FROM x"}, dockerfile="docker/train")
    assert elsewhere.steps[0].dockerfile == "docker/train"
    files = {"Dockerfile": DOCKERFILE, "needs.txt": "numpy"}
    below, code = made(files).steps
    assert (below.role, code.role, below.cache, code.cache) == (Role.DEPENDENCIES, Role.CODE, True, False)
    assert made({**files, "train.py": "new"}).key == made(files).key
    changed, same = made({**files, "needs.txt": "numpy==2"}).steps
    assert changed.key != below.key
    assert same.key == code.key
    assert made(files).words == "from `Dockerfile`"
    found = made({"Dockerfile": DOCKERFILE})  # `needs.txt` is a directory
    assert (roles(found), found.words.partition(": ")[2]) == (
        [Role.IMAGE],
        "`needs.txt`, which it copies above `COPY .`, isn't a small text file",
    )
    with pytest.raises(UserError, match=r"`--from=evil` can't be copied into a build\. \*Fix:\* Rename it"):
        made({"requirements.txt": "-r --from=evil\n", "--from=evil": ""})


DOCKERFILE = "FROM x\nWORKDIR /app\nCOPY needs.txt .\nRUN install-it needs.txt\nCOPY . .\n"


def test_recipe_keeps_ignore_rules_and_never_copies_the_git_history():
    files = {"Dockerfile": DOCKERFILE, "needs.txt": "", ".dockerignore": "data\n"}
    assert [step.ignore for step in made(files).steps] == ["data\n", "data\n.git\n"]
    files["Dockerfile.dockerignore"] = "runs\n"
    assert [step.ignore for step in made(files).steps] == ["runs\n", "runs\n.git\n"]
    # Of a clone, .git is another one each time: each commit would push all of it again.
    assert made({"Dockerfile": DOCKERFILE, "needs.txt": ""}).steps[1].ignore == ".git\n"
    *_, code = made({**UV, ".dockerignore": "data\n!.git\n"}).steps
    assert code.ignore.splitlines() == [
        "**/__pycache__",
        "**/*.pyc",
        ".venv",
        ".python-version",
        "uv.lock",
        "data",
        "!.git",
        ".git",
    ]


def test_recipe_in_one_job_uses_the_python_of_the_base_image():
    [step] = made(UV, install=True).steps
    assert ".python-version" in step.ignore.splitlines(), "uv sync would fail without exactly that Python"


def test_recipe_of_a_pyproject_says_how_it_is_installed():
    found = made({"pyproject.toml": PROJECT})
    assert roles(found) == [Role.DEPENDENCIES, Role.CODE]
    assert found.words == "from `pyproject.toml` (no lock file: latest versions)"
    assert roles(made(UV, install=True)) == [Role.IMAGE]
    # The hook would need a .git folder, which the image doesn't have.
    hooks = "[tool.hatch.build.hooks.vcs]\n[tool.hatch.build.targets.wheel.hooks.version]\n"
    assert len(made({**UV, "pyproject.toml": PROJECT + hooks}).steps) == 2
    with pytest.raises(UserError, match=r"^pyproject\.toml is not valid TOML: "):
        made({"pyproject.toml": "[project"})


POETRY = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\nnumpy = "^2"\n'
NO_PACKAGE = POETRY.replace('name = "a"', "package-mode = false")
POETRY += f'{BUILD}"poetry.core.masonry.api"\n'


@cases(
    ("files", "why"),
    [
        (
            {**UV, "pyproject.toml": PROJECT + '[project.scripts]\nt = "a:b"\n'},
            "has commands ([project.scripts])",
        ),
        (
            {**UV, "pyproject.toml": PROJECT + f'{BUILD}"maturin"\n'},
            "the build backend maturin can compile code",
        ),
        ({**UV, "setup.py": "setup(ext_modules=[x])"}, "`setup.py` has ext_modules"),
        (
            {**UV, "uv.lock": LOCK + '[[package]]\nname = "lib"\nsource = { editable = "libs/lib" }\n'},
            "the package lib is in the repository",
        ),
        ({"requirements.txt": "numpy\n-e .\n"}, "`-e .` in requirements.txt needs the repository"),
        (
            {"requirements.txt": "./wheels/x.whl\n"},
            "`./wheels/x.whl` in requirements.txt needs the repository",
        ),
        (
            {**UV, "pyproject.toml": PROJECT + '[[tool.setuptools.ext-modules]]\nname = "digits._c"\n'},
            "`pyproject.toml` has extension modules ([tool.setuptools.ext-modules])",
        ),
        (
            {**UV, "pyproject.toml": f"{PROJECT}[tool.hatch.build.targets.wheel.hooks.cython]\n"},
            "`pyproject.toml` has the build hook cython ([tool.hatch])",
        ),
        (
            {**UV, "pyproject.toml": f'{PROJECT}[tool.hatch.build.hooks.custom]\npath = "b.py"\n'},
            "`pyproject.toml` has the build hook custom ([tool.hatch])",
        ),
        (
            {"requirements.txt": "numpy\n", "setup.cfg": "[options.entry_points]\nconsole_scripts =\n"},
            "`setup.cfg` has [options.entry_points]",
        ),
        (
            {"requirements.txt": "numpy\n", "pyproject.toml": f'{POETRY}[tool.poetry.scripts]\nt = "a:b"\n'},
            "`pyproject.toml` has commands ([tool.poetry.scripts])",
        ),
        ({"pyproject.toml": POETRY}, "only Poetry can read its dependencies (latest versions)"),
        (
            {"pyproject.toml": '[project]\nname = "a"\ndynamic = ["dependencies"]\n'},
            "has dynamic dependencies",
        ),
        (
            {"pyproject.toml": PROJECT + "[tool.uv.sources]\nlib = { workspace = true }\n"},
            "the package lib is in the repository",
        ),
        (
            {"pyproject.toml": PROJECT + '[tool.uv.sources]\nlib = [{ path = "libs/lib" }]\n'},
            "the package lib is in the repository",
        ),
    ],
)
def test_recipe_of_an_installable_project_is_one_job_with_the_reason(files, why):
    found = made(files)
    assert roles(found) == [Role.IMAGE]
    assert "installed in one Job" in found.words
    assert why in found.words
    assert "COPY . /app\nRUN " in found.steps[0].dockerfile


@pytest.mark.parametrize(
    "backend", ["hatchling.build", "flit_core.buildapi", "uv_build", "setuptools.build_meta"]
)
def test_recipe_does_not_install_a_package_of_python_files(backend):
    assert len(made({**UV, "pyproject.toml": f'{PROJECT}{BUILD}"{backend}"\n'}).steps) == 2


@pytest.mark.parametrize("file", ["requirements.txt", "environment.yml"])
def test_recipe_installs_nothing_for_dynamic_dependencies_that_it_takes_from_another_file(file):
    files = {
        "pyproject.toml": '[project]\nname = "a"\ndynamic = ["dependencies"]\n',
        file: "dependencies: [a]",
    }
    assert roles(made(files)) == [Role.DEPENDENCIES, Role.CODE]


def test_recipe_without_build_files_says_how_to_use_a_setup_py():
    with pytest.raises(UserError, match=r"\*Fix:\* Add a `requirements\.txt` with the line `-e \.`, which"):
        made({"setup.py": "setup(install_requires=['a'])"})


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"setup.py": ""},
        {"pyproject.toml": "[tool.ruff]\n"},
        {"uv.lock": LOCK},
        {"pyproject.toml": NO_PACKAGE},
    ],
)
def test_recipe_without_build_files_is_an_error(files):
    with pytest.raises(UserError, match=r"^digits can't be built: no Dockerfile"):
        made(files)


@pytest.mark.parametrize(
    "files",
    [
        UV,
        {"requirements.txt": "torch==2.7.1 --hash=sha256:a\n"},
        {"pyproject.toml": PROJECT},
        {"environment.yml": "dependencies: [a]"},
    ],
)
def test_recipe_writes_valid_shell(files):
    for step in made(files).steps:
        for line in step.dockerfile.splitlines():
            if line.startswith("RUN "):
                assert subprocess.run(["sh", "-n", "-c", line[4:]], check=False).returncode == 0, line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * 5_000, "uv.lock: lists or tables are nested too deeply"),
        ("a = " + "9" * 5_000, "uv.lock is not valid TOML: Exceeds the limit"),
        ("a = [" + "[],\n" * 80_000 + "]", "uv.lock can have at most 150,000 values"),
        ("\n" + "a." * 5_000 + "a = 1", "uv.lock:2: a key can have at most 20 names"),
        (
            "a = 1\n" * 9 + "a." * 40_000 + "a = 1",
            "uv.lock:10: a line can have at most 65,536 characters",
        ),
        ('["a"' + ' . "b"' * 5_000 + "]", "uv.lock:1: a key can have at most 20 names"),
    ],
)
def test_recipe_rejects_files_that_are_slow_to_parse(text, why):
    with pytest.raises(UserError, match=rf"^{why}"):
        toml(text, "uv.lock")


def test_recipe_searches_a_file_line_by_line(monkeypatch):
    """One search of all 4 MiB would hold the interpreter's lock, and so all of the process, for 0.3 s."""
    searched = []

    class Pattern:
        def search(self, text, start, end):
            searched.append(text[start:end])

    monkeypatch.setattr(pyproject, "LONG_KEY", Pattern())
    toml("a = 1\n\nb = 2\r\n", "uv.lock")
    assert searched == ["a = 1", "b = 2\r"]


@pytest.mark.parametrize(
    "files",
    [
        UV | {"uv.lock": "package = 1"},
        UV | {"uv.lock": "[[package]]\nversion = '1'"},
        UV | {"pyproject.toml": "project = 1"},
        UV | {"pyproject.toml": "[project]\nname = 1\ndependencies = 2"},
        {"pyproject.toml": "[build-system]\nbuild-backend = 1"},
        {"pyproject.toml": "project = 'x'"},
        {"pyproject.toml": "[project]\nname = 'x'\ndynamic = 1"},
    ],
)
def test_recipe_reports_values_of_the_wrong_type(files):
    with pytest.raises(UserError):
        made(files)


@pytest.mark.parametrize(
    "sources", ["sources = []", "sources = {torch = 'x'}", "sources = {torch = ['x', 1]}"]
)
def test_recipe_leaves_sources_of_the_wrong_type_to_uv(sources):
    text = f"[project]\nname = 'x'\nversion = '1'\ndependencies = ['torch']\n[tool.uv]\n{sources}"
    assert "pyproject.toml" in made({"pyproject.toml": text}).words


CONDA = "channels: [conda-forge]\ndependencies:\n- python=3.11\n- pytorch\n- pip\n- pip: [tensorboardX]\n"


def test_recipe_of_a_conda_environment_installs_it_once_for_all_commits_and_its_project():
    """By micromamba into the place of other recipes, and as on a node with GPUs, which a build hasn't."""
    found = made({"environment.yml": CONDA})
    below, code = found.steps
    assert (below.role, code.role, found.words) == (Role.DEPENDENCIES, Role.CODE, "from `environment.yml`")
    solve = "MAMBA_ROOT_PREFIX=/tmp/mamba CONDA_OVERRIDE_CUDA=12.8 micromamba create --yes"
    create = f"{solve} --prefix /opt/venv --file environment.yml && {WITHOUT_LOGINS} && rm -rf /tmp/mamba"
    assert below.dockerfile.splitlines()[:4] == [
        f"FROM {BASE}",
        "COPY --from=mambaorg/micromamba:2 /bin/micromamba /usr/local/bin/micromamba",
        "COPY environment.yml /opt/project/environment.yml",
        f"RUN cd /opt/project && {create}",
    ]
    assert made({"environment.yml": f"{CONDA}- numpy\n"}).steps[0].key != below.key
    assert made({"environment.yaml": CONDA}).words == "from `environment.yaml`"
    for files, words in (
        ({"requirements.txt": "numpy"}, "from `requirements.txt`"),
        ({"pyproject.toml": PROJECT}, "from `pyproject.toml` (no lock file: latest versions)"),
        ({"pyproject.toml": '[project]\nname = "a"\n'}, "from `environment.yml`"),
        ({"pyproject.toml": POETRY}, "from `environment.yml`"),
    ):
        assert made({"environment.yml": CONDA, **files}).words == words
    found = made({"environment.yml": CONDA, "setup.cfg": "[options.entry_points]\nconsole_scripts =\n"})
    assert found.words.endswith("in one Job: `setup.cfg` has [options.entry_points]")
    assert found.steps[0].dockerfile.endswith("&& uv pip install --python /opt/venv --no-deps .\n")
    assert "pip install --no-cache-dir uv==" in found.steps[0].dockerfile


def test_image_of_a_conda_environment_has_no_logins_of_its_channels(tmp_path):
    """They come from the network's Secret, which no image has; micromamba writes them into conda-meta."""
    there = '{"mail": "a@b.example", "url": "https://conda.example/%sacme/linux-64/a-1.conda"}'
    for name, login in (("a-1.json", "t/ab-12-cd/"), ("b-1.json", ""), ("history", "")):
        (tmp_path / name).write_text(there % login)
    (tmp_path / "c-1.json").write_text((there % "").replace("//", "//ada:hunter2@"))
    [step] = re.findall(r"&& (sed .*?) &&", made({"environment.yml": CONDA}).steps[0].dockerfile)
    subprocess.run(["sh", "-c", step.replace("/opt/venv/conda-meta", str(tmp_path))], check=True)
    found = {file.name: file.read_text() for file in tmp_path.iterdir()}
    plain = dict.fromkeys(("b-1.json", "c-1.json", "history"), there % "")
    assert found == {**plain, "a-1.json": there % "t/-/"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-r requirements.txt", "`-r requirements.txt` in environment.yml needs the repository"),
        ("-e .", "`-e .` in environment.yml needs the repository"),
    ],
)
def test_recipe_builds_a_conda_environment_with_files_of_the_repository_in_one_job(line, why):
    found = made({"environment.yml": CONDA.replace("tensorboardX", line)})
    assert roles(found) == [Role.IMAGE]
    assert found.words == f"from `environment.yml`, installed in one Job: {why}"
    assert "COPY . /app\nRUN MAMBA_ROOT_PREFIX=" in found.steps[0].dockerfile


@cases(
    ("text", "why"),
    [
        ("name: x\n", r"^environment\.yml has no list of `dependencies`\. \*Fix:\*"),
        ("dependencies: {}\n", "has no list of `dependencies`"),
        ("- a\n", "has no list of `dependencies`"),
        ("", "environment.yml"),
        ("dependencies: [", "environment.yml"),
        ("dependencies: [&a [*a]]", "environment.yml"),
        ("dependencies: " + "[" * 5_000, "environment.yml"),
        ("dependencies: [a]\n" + "# x\n" * 30_000, "environment.yml"),
    ],
)
def test_recipe_rejects_a_file_that_describes_no_environment(text, why):
    with pytest.raises(UserError, match=why):
        made({"environment.yml": text})


@pytest.mark.parametrize("pip", ["x", "[]", "{a: b}", "[{a: b}, null, 1]"])
def test_recipe_leaves_unusual_pip_sections_to_micromamba(pip):
    assert roles(made({"environment.yml": f"dependencies: [python, null, {{pip: {pip}}}]"})) == [
        Role.DEPENDENCIES,
        Role.CODE,
    ]
