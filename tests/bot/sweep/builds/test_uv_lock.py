"""Lockfiles: layers of frameworks and dependencies, markers, and values that are checked or escaped."""

import pytest

from bot.core.errors import UserError
from bot.core.plan import Role
from bot.sweep.builds import requirements, uv_lock
from bot.sweep.builds.pyproject import toml
from bot.sweep.builds.uv_lock import not_locked
from tests.bot.sweep.builds.projects import BASE, CUDA, LOCK, PROJECT, TORCH, UV, WITH_TORCH, made, roles
from tests.cases import cases


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


def test_recipe_puts_frameworks_below_and_keeps_them_after_a_small_change():
    found = made({**UV, "uv.lock": WITH_TORCH + CUDA})
    heavy, dependencies, _ = found.steps
    assert heavy.role is Role.FRAMEWORKS
    assert "'torch==2.7.1 --hash=sha256:a1'" in heavy.dockerfile
    assert "'nvidia-nccl-cu12==2.26 --hash=sha256:b1'" in heavy.dockerfile
    assert "--no-deps" in heavy.dockerfile
    assert dependencies.dockerfile.startswith(f"FROM reg:5000/sweepbot/dependencies:heavy-{heavy.key}\n")
    one = made({**UV, "uv.lock": WITH_TORCH})
    other = made({**UV, "uv.lock": WITH_TORCH.replace("2.4.6", "2.4.7")})
    assert one.steps[0] == other.steps[0]
    assert one.steps[1].key != other.steps[1].key
    # One version for the CPU, one for CUDA: only uv can choose.
    assert (
        uv_lock.framework_pins(toml(WITH_TORCH + TORCH.replace("2.7.1", "2.7.1+cu128"), "uv.lock")).lines
        == ()
    )
    assert uv_lock.framework_pins(toml(LOCK, "uv.lock")).lines == ()
    # The lock has extras, groups and other systems as well, which `uv sync --no-dev` leaves out.
    root, more = 'source = { virtual = "." }\n', 'optional-dependencies = { gpu = [{ name = "torch" }] }\n'
    for lock in (
        LOCK + TORCH,
        LOCK.replace(root, root + more) + TORCH,
        LOCK.replace(root, root + more.replace("optional", "dev")) + TORCH,
        WITH_TORCH.replace('"torch" }', '"torch", marker = "sys_platform == \'win32\'" }'),
    ):
        assert uv_lock.framework_pins(toml(lock, "uv.lock")).lines == ()
    # As uv 0.13.9 locks `jax[cuda12]`.
    lock = LOCK.replace('{ name = "numpy" }', '{ name = "jax", extra = ["cuda12"] }', 1) + TORCH.replace(
        'name = "torch"\n',
        'name = "jax"\noptional-dependencies = { cuda12 = [{ name = "jax-cuda12-plugin" }] }\n',
    )
    plugin = TORCH.replace('name = "torch"', 'name = "jax-cuda12-plugin"')
    found = uv_lock.framework_pins(toml(lock + CUDA + plugin, "uv.lock")).lines
    assert [line.partition("=")[0] for line in found] == ["jax-cuda12-plugin", "jax", "nvidia-nccl-cu12"]


@cases(
    ("marker", "installed"),
    [
        ("sys_platform == 'linux'", True),
        ("python_full_version >= '3.13'", True),
        ("python_full_version >= '3.13' and platform_machine == 'x86_64'", True),
        ("(python_full_version < '3.12' and sys_platform == 'win32') or sys_platform == 'linux'", True),
        ("platform_python_implementation == 'CPython'", True),
        ("extra == 'extra-6-digits-gpu'", True),  # of packages that conflict: only uv can choose
        ("no marker", True),
        ("(" * 1900, True),
        ("sys_platform == 'linux' or " * 2000, True),
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


def test_recipe_rejects_only_a_lockfile_older_than_its_project():
    files = {**UV, "pyproject.toml": PROJECT.replace('"numpy"', '"numpy", "scipy>=1.14"')}
    why = r"^`uv\.lock` of digits is out of date: .* `scipy>=1\.14` of .* \*Fix:\* Run `uv lock`"
    with pytest.raises(UserError, match=why):
        made(files)
    lock = '[[package]]\nname = "a"\nsource = { virtual = "." }\ndependencies = [{ name = "numpy" }]\n'
    project = {"project": {"name": "a", "dependencies": ["numpy>=2"]}}
    assert not_locked(toml(lock, "uv.lock"), project) == []
    lock = WITH_TORCH.replace("https://pypi.org/simple", "https://download.pytorch.org/whl/cu128")
    assert (
        "--index=https://download.pytorch.org/whl/cu128"
        in uv_lock.framework_pins(toml(lock, "uv.lock")).options
    )


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


@cases(
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
