"""Which files make which images: said as people would say it."""

import subprocess
from dataclasses import replace

import pytest

from bot.builds import requirements, uv_lock
from bot.builds.recipes import recipe
from bot.builds.requirements import local_requirement, references
from bot.builds.toml_reader import toml
from bot.builds.uv_lock import not_locked
from bot.config.policy import Repository
from bot.core.errors import UserError
from bot.core.plan import Role

REPOSITORY = Repository(name="digits", url="https://git.example/digits.git")
BASE = "python:3.11-slim@sha256:ab"
PROJECT = '[project]\nname = "digits"\ndependencies = ["numpy"]\n'
PYPI = '{ registry = "https://pypi.org/simple" }'
LOCK = f"""
[[package]]
name = "digits"
source = {{ virtual = "." }}
dependencies = [
    {{ name = "numpy" }},
]

[package.metadata]
requires-dist = [
    {{ name = "numpy" }},
]

[[package]]
name = "numpy"
version = "2.4.6"
source = {PYPI}
"""
TORCH = f"""
[[package]]
name = "torch"
version = "2.7.1"
source = {PYPI}
dependencies = [
    {{ name = "nvidia-nccl-cu12", marker = "platform_machine == 'x86_64' and sys_platform == 'linux'" }},
]
wheels = [
  {{ url = "https://x/torch-2.7.1-cp311-cp311-manylinux_2_28_x86_64.whl", hash = "sha256:a1" }},
  {{ url = "https://x/torch-2.7.1-cp311-none-macosx_11_0_arm64.whl", hash = "sha256:a2" }},
]
"""
CUDA = f"""
[[package]]
name = "nvidia-nccl-cu12"
version = "2.26"
source = {PYPI}
wheels = [{{ url = "https://x/nvidia_nccl_cu12-2.26-py3-none-manylinux2014_x86_64.whl", hash = "sha256:b1" }}]
"""
WITH_TORCH = LOCK.replace('{ name = "numpy" },', '{ name = "numpy" },\n    { name = "torch" },') + TORCH
UV = {"pyproject.toml": PROJECT, "uv.lock": LOCK}


def made(files, base=BASE, **config):
    return recipe(files, replace(REPOSITORY, **config), base, "reg:5000/sweepbot/dependencies:heavy-")


def roles(found):
    return [step.role for step in found.steps]


def test_recipe_prefers_a_dockerfile():
    found = made({"Dockerfile": "FROM x", **UV})
    assert (roles(found), found.words) == ([Role.IMAGE], "from `Dockerfile`")
    assert found.steps[0].own
    elsewhere = made({"docker/train": "FROM x"}, dockerfile="docker/train")
    assert elsewhere.steps[0].dockerfile == "docker/train"


DOCKERFILE = "FROM x\nWORKDIR /app\nCOPY needs.txt .\nRUN install-it needs.txt\nCOPY . .\n"


def test_recipe_splits_a_dockerfile_that_copies_code_last():
    files = {"Dockerfile": DOCKERFILE, "needs.txt": "numpy"}
    below, code = made(files).steps
    assert (below.role, code.role, below.cache, code.cache) == (Role.DEPENDENCIES, Role.CODE, True, False)
    assert made({**files, "train.py": "new"}).key == made(files).key
    changed, same = made({**files, "needs.txt": "numpy==2"}).steps
    assert changed.key != below.key
    assert same.key == code.key


def test_recipe_keeps_the_ignore_rules_of_the_dockerfile():
    files = {"Dockerfile": DOCKERFILE, "needs.txt": "", ".dockerignore": "data\n"}
    assert [step.ignore for step in made(files).steps] == ["data\n", "data\n.git\n"]
    files["Dockerfile.dockerignore"] = "runs\n"
    assert [step.ignore for step in made(files).steps] == ["runs\n", "runs\n.git\n"]


def test_recipe_never_copies_the_git_history():
    """Of a clone, .git is another one each time: each commit would push all of it again."""
    assert made({"Dockerfile": DOCKERFILE, "needs.txt": ""}).steps[1].ignore == ".git\n"


def test_recipe_keeps_a_dockerfile_with_unreadable_copies_unchanged():
    assert roles(made({"Dockerfile": DOCKERFILE})) == [Role.IMAGE]


def test_recipe_of_a_lockfile_separates_dependencies_and_code():
    found = made(UV)
    assert (roles(found), found.words) == ([Role.DEPENDENCIES, Role.CODE], "from `uv.lock`")
    dependencies, code = found.steps
    assert dependencies.dockerfile.splitlines() == [
        f"FROM {BASE}",
        "ENV UV_PROJECT_ENVIRONMENT=/opt/venv UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never",
        "RUN command -v uv || pip install --no-cache-dir uv==0.13.9",
        "COPY pyproject.toml /opt/project/pyproject.toml",
        "COPY uv.lock /opt/project/uv.lock",
        "RUN cd /opt/project && uv sync --frozen --no-dev --no-install-project",
        "ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app/src:/app PYTHONUNBUFFERED=1",
        "WORKDIR /app",
    ]
    assert code.dockerfile == "FROM scratch\nCOPY . /app\n"


@pytest.mark.parametrize(
    ("files", "base", "new"),
    [
        ({**UV, "README.md": "other"}, BASE, []),
        ({**UV, ".dockerignore": "data\n"}, BASE, [Role.CODE]),
        ({**UV, "uv.lock": LOCK + "\n"}, BASE, [Role.DEPENDENCIES]),
        ({**UV, "pyproject.toml": PROJECT + "\n"}, BASE, [Role.DEPENDENCIES]),
        (UV, "python:3.12-slim@sha256:cd", [Role.DEPENDENCIES]),
    ],
)
def test_recipe_rebuilds_only_what_changed(files, base, new):
    before = {step.role: step.key for step in made(UV).steps}
    after = made(files, base)
    assert [step.role for step in after.steps if before[step.role] != step.key] == new
    assert (after.key != made(UV).key) == bool(new)


def test_recipe_puts_frameworks_below_other_packages():
    found = made({**UV, "uv.lock": WITH_TORCH + CUDA})
    heavy, dependencies, _ = found.steps
    assert heavy.role is Role.FRAMEWORKS
    assert "'torch==2.7.1 --hash=sha256:a1'" in heavy.dockerfile
    assert "'nvidia-nccl-cu12==2.26 --hash=sha256:b1'" in heavy.dockerfile
    assert "--no-deps" in heavy.dockerfile
    assert dependencies.dockerfile.startswith(f"FROM reg:5000/sweepbot/dependencies:heavy-{heavy.key}\n")


def test_recipe_keeps_the_frameworks_layer_after_a_small_change():
    one = made({**UV, "uv.lock": WITH_TORCH})
    other = made({**UV, "uv.lock": WITH_TORCH.replace("2.4.6", "2.4.7")})
    assert one.steps[0] == other.steps[0]
    assert one.steps[1].key != other.steps[1].key


def test_recipe_of_an_ambiguous_lockfile_is_not_split():
    """One version for the CPU, one for CUDA: which it is only uv knows."""
    assert (
        uv_lock.framework_pins(toml(WITH_TORCH + TORCH.replace("2.7.1", "2.7.1+cu128"), "uv.lock")).lines
        == ()
    )
    assert uv_lock.framework_pins(toml(LOCK, "uv.lock")).lines == ()


def test_recipe_installs_only_required_frameworks():
    """The lock has extras, groups and other systems as well, which `uv sync --no-dev` leaves out."""
    root, more = 'source = { virtual = "." }\n', 'optional-dependencies = { gpu = [{ name = "torch" }] }\n'
    for lock in (
        LOCK + TORCH,
        LOCK.replace(root, root + more) + TORCH,
        LOCK.replace(root, root + more.replace("optional", "dev")) + TORCH,
        WITH_TORCH.replace('"torch" }', '"torch", marker = "sys_platform == \'win32\'" }'),
    ):
        assert uv_lock.framework_pins(toml(lock, "uv.lock")).lines == ()


@pytest.mark.parametrize(
    ("marker", "installed"),
    [
        ("sys_platform == 'linux'", True),
        ("python_full_version >= '3.13'", True),
        ("python_full_version >= '3.13' and platform_machine == 'x86_64'", True),
        ("(python_full_version < '3.12' and sys_platform == 'win32') or sys_platform == 'linux'", True),
        ("platform_python_implementation == 'CPython'", True),
        ("extra == 'extra-6-digits-gpu'", True),  # of packages that conflict: only uv knows
        ("no marker", True),
        ("(" * 1900, True),
        ("sys_platform == 'linux' or " * 5000, True),
        ("platform_machine == 'aarch64' and sys_platform == 'linux'", False),
        ("sys_platform == 'win32' or sys_platform == 'darwin'", False),
        ("python_full_version < '3.12' and sys_platform == 'win32'", False),
        ("platform_python_implementation == 'PyPy'", False),
    ],
)
def test_recipe_evaluates_markers_for_the_node(marker, installed):
    lock = toml(WITH_TORCH.replace('"torch" }', f'"torch", marker = "{marker}" }}'), "uv.lock")
    assert bool(uv_lock.framework_pins(lock).lines) == installed


@pytest.mark.parametrize(
    "line", ["a==" + "1" * 4500, "a[" * 900, "a; " + "(" * 1900, "a" * 100_000, "a>=1.*", "-e .", ""]
)
def test_recipe_leaves_unreadable_requirements_to_the_installer(line):
    assert requirements.read_requirement(line) is None
    assert not_locked(toml(LOCK, "uv.lock"), {"project": {"name": "digits", "dependencies": [line]}}) == []
    assert requirements.framework_pins({"requirements.txt": f"{line}\n"}).lines == ()


@pytest.mark.parametrize(
    ("line", "pinned"),
    [
        ("Torch == 2.5.1", True),
        ("torch[opt]==2.5.1 ; sys_platform == 'linux' --hash=sha256:a1", True),
        ("tensorflow_cpu==2.17.0", True),
        ("torch==2.*", False),
        ("torch @ https://host/torch-2.5.1-py3-none-any.whl", False),
    ],
)
def test_recipe_pins_a_framework_to_one_version(line, pinned):
    found = requirements.framework_pins({"requirements.txt": f"{line}\n"}).lines
    assert found == ((line,) if pinned else ())


def test_recipe_finds_frameworks_behind_extras():
    """As uv 0.13.9 locks `jax[cuda12]`."""
    lock = LOCK.replace('{ name = "numpy" }', '{ name = "jax", extra = ["cuda12"] }', 1) + TORCH.replace(
        'name = "torch"\n',
        'name = "jax"\noptional-dependencies = { cuda12 = [{ name = "jax-cuda12-plugin" }] }\n',
    )
    plugin = TORCH.replace('name = "torch"', 'name = "jax-cuda12-plugin"')
    found = uv_lock.framework_pins(toml(lock + CUDA + plugin, "uv.lock")).lines
    assert [line.partition("=")[0] for line in found] == ["jax-cuda12-plugin", "jax", "nvidia-nccl-cu12"]


def test_recipe_rejects_a_lockfile_older_than_its_project():
    files = {**UV, "pyproject.toml": PROJECT.replace('"numpy"', '"numpy", "scipy>=1.14"')}
    why = r"^`uv\.lock` of digits is out of date: .* `scipy>=1\.14` of .* \*Fix:\* Run `uv lock`"
    with pytest.raises(UserError, match=why):
        made(files)


# What uv 0.13.9 writes for each.
ENTRIES = """
[[package]]
name = "proj-x"
source = { virtual = "." }

[package.metadata]
requires-dist = [
    { name = "attrs", specifier = ">=1.0.post1,==26.1.*" },
    { name = "idna", marker = "python_full_version < '3.13'", specifier = ">=2,!=3.0" },
    { name = "idna", marker = "python_full_version >= '3.13'", specifier = ">=3" },
    { name = "iniconfig", specifier = ">=1.0.0" },
    { name = "jax", extras = ["cuda12"] },
    { name = "packaging", specifier = ">=20.1" },
    { name = "pluggy", git = "https://github.com/pytest-dev/pluggy" },
    { name = "six", specifier = "~=1.16" },
    { name = "toml", marker = "extra == 'gpu'" },
]
"""


@pytest.mark.parametrize(
    ("line", "locked"),
    [
        ("iniconfig>=1.00.0", True),
        ("Six (~=1.16)", True),
        ("attrs==26.1.*,>=1.0-post1", True),
        ("packaging >= 20.01", True),
        ("idna!=3.0,>=2; python_version<'3.13'", True),
        ("idna>=3; python_version>='3.13'", True),
        ("six", True),
        ("pluggy>=1", True),
        ("pluggy @ git+https://github.com/pytest-dev/pluggy", True),
        ("jax[cuda12]", True),
        ("proj_x[gpu]", True),
        ("jax", False),
        ("six~=1.17", False),
        ("toml", False),
        ("scipy", False),
    ],
)
def test_lockfile_is_compared_with_each_requirement_of_its_project(line, locked):
    lock, project = toml(ENTRIES, "uv.lock"), {"project": {"name": "Proj.X", "dependencies": [line]}}
    assert not_locked(lock, project) == ([] if locked else [line])


def test_lockfile_without_requirements_is_accepted():
    lock = '[[package]]\nname = "a"\nsource = { virtual = "." }\ndependencies = [{ name = "numpy" }]\n'
    project = {"project": {"name": "a", "dependencies": ["numpy>=2"]}}
    assert not_locked(toml(lock, "uv.lock"), project) == []


def test_recipe_keeps_a_package_index():
    lock = WITH_TORCH.replace("https://pypi.org/simple", "https://download.pytorch.org/whl/cu128")
    assert (
        "--index=https://download.pytorch.org/whl/cu128"
        in uv_lock.framework_pins(toml(lock, "uv.lock")).options
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("https://pypi.org/simple", "https://pypi.org/simple\\nUSER root\\nRUN steal"),
        ("https://pypi.org/simple", "https://x/$(steal)"),
        ("https://pypi.org/simple", "https://x/;steal"),
        ('"2.7.1"', '"2.7.1\\nRUN steal"'),
        ("sha256:a1", "sha256:a1\\nRUN steal"),
        ("sha256:a1", "<<END"),
    ],
)
def test_recipe_escapes_all_values_of_a_lockfile(old, new):
    found = made({**UV, "uv.lock": WITH_TORCH.replace(old, new)})
    for step in found.steps:
        lines = [line for line in step.dockerfile.splitlines() if "steal" in line or "END" in line]
        assert all("'--index=" in line for line in lines), lines


def test_recipe_rejects_paths_that_look_like_options():
    with pytest.raises(UserError, match=r"`--from=evil` can't be copied into a build\. \*Fix:\* Rename it"):
        made({"requirements.txt": "-r --from=evil\n", "--from=evil": ""})


def test_recipe_of_requirements_includes_referenced_files():
    files = {"requirements.txt": "-c pins/c.txt\nnumpy\n", "pins/c.txt": "numpy==2.4.6\n"}
    dependencies, code = made(files).steps
    assert "COPY pins/c.txt /opt/project/pins/c.txt" in dependencies.dockerfile
    assert "-r requirements.txt" in dependencies.dockerfile
    assert made({**files, "pins/c.txt": "numpy==2.4.7\n"}).steps[0].key != dependencies.key
    assert made({**files, "pins/c.txt": "numpy==2.4.7\n"}).steps[1] == code


@pytest.mark.parametrize("name", ["constraints.lock", "base.pip", "env/train.pip"])
def test_recipe_accepts_requirements_files_of_any_name(name):
    """Which they are was decided when they were found."""
    files = {"requirements.txt": f"-r {name}\n", name: "numpy==2.4.6\n", "setup.cfg": "", ".gitmodules": ""}
    dependencies, _ = made(files).steps
    assert f"COPY {name} /opt/project/{name}" in dependencies.dockerfile
    assert "setup.cfg" not in dependencies.dockerfile
    assert made({**files, name: "numpy==2.4.7\n"}).steps[0].key != dependencies.key
    assert roles(made({name: "numpy\n"}, requirements=name)) == [Role.DEPENDENCIES, Role.CODE]


def test_recipe_installs_nothing_for_a_constraint():
    index = "--extra-index-url https://download.pytorch.org/whl/cu121"
    files = {
        "requirements.txt": "-c c.txt\n-r more/a.txt\nnumpy\n",
        "c.txt": f"{index}\ntorch==2.5.1\ntensorflow==2.17.0\n",
        "more/a.txt": "jax==0.6.0\n",
    }
    assert requirements.framework_pins(files).lines == ("jax==0.6.0", index), "where to look is asked of all"


def test_recipe_puts_a_pinned_framework_in_its_own_layer():
    index = "--extra-index-url https://download.pytorch.org/whl/cu121"
    pins = requirements.framework_pins(
        {"requirements.txt": f"{index}\ntorch==2.1.0+cu121  # the one\nnumpy\njaxtyping==1\n"}
    )
    assert pins.lines == ("torch==2.1.0+cu121", index)
    assert requirements.framework_pins({"requirements.txt": "torch>=2\n"}).lines == ()
    assert roles(made({"requirements.txt": "torch==2.7.1\n"})) == [
        Role.FRAMEWORKS,
        Role.DEPENDENCIES,
        Role.CODE,
    ]


def test_recipe_of_a_pyproject_without_lockfile_says_so():
    found = made({"pyproject.toml": PROJECT})
    assert roles(found) == [Role.DEPENDENCIES, Role.CODE]
    assert found.words == "from `pyproject.toml` (no lock file: latest versions)"


BUILD = "[build-system]\nbuild-backend = "
POETRY = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\nnumpy = "^2"\n'
NO_PACKAGE = POETRY.replace('name = "a"', "package-mode = false")
POETRY += f'{BUILD}"poetry.core.masonry.api"\n'


@pytest.mark.parametrize(
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
    ],
)
def test_recipe_of_an_installable_project_is_one_job_with_the_reason(files, why):
    found = made(files)
    assert roles(found) == [Role.IMAGE]
    assert "installed in one Job" in found.words
    assert why in found.words
    assert "COPY . /app\nRUN " in found.steps[0].dockerfile


def test_recipe_installs_the_project_if_configured():
    assert roles(made(UV, install=True)) == [Role.IMAGE]


@pytest.mark.parametrize(
    "backend", ["hatchling.build", "flit_core.buildapi", "uv_build", "setuptools.build_meta"]
)
def test_recipe_does_not_install_a_package_of_python_files(backend):
    assert len(made({**UV, "pyproject.toml": f'{PROJECT}{BUILD}"{backend}"\n'}).steps) == 2


@pytest.mark.parametrize(
    ("line", "local"),
    [
        ("numpy", False),
        ("numpy[extra]==1 ; python_version < '3.12'", False),
        ("git+https://github.com/a/b@main", False),
        ("-e git+https://github.com/a/b#egg=b", False),
        ("b @ git+https://github.com/a/b", False),
        ("x @ https://host/x-1.whl", False),
        ("https://host/x-1.whl", False),
        ("--find-links https://host/", False),
        ("-r other.txt", False),
        ("-e .", True),
        ("--editable=./lib", True),
        (".[extra]", True),
        ("../lib", True),
        ("lib @ file:///lib", True),
        ("wheels/x-1-py3-none-any.whl", True),
        ("--find-links ./wheels", True),
        ("-f wheels", True),
    ],
)
def test_local_requirement_finds_lines_that_need_the_repository(line, local):
    assert bool(local_requirement({"requirements.txt": f"{line}\n"})) == local


def test_recipe_reads_files_that_files_reference():
    text = (
        "-r base.txt\n--requirement ../common/b.txt\n-cpins.txt\n--constraint=c.txt\nnumpy -r\n# -r no.txt\n"
    )
    assert references("req/train.txt", text) == ["req/base.txt", "common/b.txt", "req/pins.txt", "req/c.txt"]
    with pytest.raises(UserError, match="outside the repository"):
        references("requirements.txt", "-r ../../etc/passwd")


def test_recipe_merges_ignore_files_and_excludes_git():
    *_, code = made({**UV, ".dockerignore": "data\n!.git\n"}).steps
    assert code.ignore.splitlines() == [
        "**/__pycache__",
        "**/*.pyc",
        ".venv",
        "uv.lock",
        "data",
        "!.git",
        ".git",
    ]


def test_recipe_does_not_install_for_a_version_hook():
    """It would want a .git, and there is none."""
    hooks = "[tool.hatch.build.hooks.vcs]\n[tool.hatch.build.targets.wheel.hooks.version]\n"
    assert len(made({**UV, "pyproject.toml": PROJECT + hooks}).steps) == 2


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


def test_recipe_names_a_broken_file():
    with pytest.raises(UserError, match=r"^pyproject\.toml is not valid TOML: "):
        made({"pyproject.toml": "[project"})


@pytest.mark.parametrize(
    "files", [UV, {"requirements.txt": "torch==2.7.1 --hash=sha256:a\n"}, {"pyproject.toml": PROJECT}]
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
        ("a = [" + "[]," * 80_000 + "]", "uv.lock can have at most 150,000 values"),
        ("\n" + "a." * 5_000 + "a = 1", "uv.lock:2: a key can have at most 20 names"),
        ('["a"' + ' . "b"' * 5_000 + "]", "uv.lock:1: a key can have at most 20 names"),
    ],
)
def test_recipe_rejects_files_that_are_slow_to_parse(text, why):
    with pytest.raises(UserError, match=rf"^{why}"):
        toml(text, "uv.lock")


@pytest.mark.parametrize(
    "files",
    [
        UV | {"uv.lock": "package = 1"},
        UV | {"uv.lock": "[[package]]\nversion = '1'"},
        UV | {"pyproject.toml": "project = 1"},
        UV | {"pyproject.toml": "[project]\nname = 1\ndependencies = 2"},
        {"pyproject.toml": "[build-system]\nbuild-backend = 1"},
    ],
)
def test_recipe_reports_values_of_the_wrong_type(files):
    with pytest.raises(UserError):
        made(files)
