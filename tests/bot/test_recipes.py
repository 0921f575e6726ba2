"""Which files make which images: said as people would say it."""

import subprocess
from dataclasses import replace

import pytest

from bot.config import Repository
from bot.models import Role, UserError
from bot.pins import heavy_of_lock, heavy_of_requirements, local_requirement, pointers, toml
from bot.recipes import recipe

REPOSITORY = Repository(name="digits", url="https://git.example/digits.git")
BASE = "python:3.11-slim@sha256:ab"
PROJECT = '[project]\nname = "digits"\ndependencies = ["numpy"]\n'
PYPI = '{ registry = "https://pypi.org/simple" }'
LOCK = f"""
[[package]]
name = "digits"
source = {{ virtual = "." }}

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
UV = {"pyproject.toml": PROJECT, "uv.lock": LOCK}


def made(files, base=BASE, **config):
    return recipe(files, replace(REPOSITORY, **config), base, "reg:5000/sweepbot/dependencies:heavy-")


def roles(found):
    return [step.role for step in found.steps]


def test_a_dockerfile_is_used_before_anything_else():
    found = made({"Dockerfile": "FROM x", **UV})
    assert (roles(found), found.words) == ([Role.IMAGE], "from `Dockerfile`")
    assert found.steps[0].own
    elsewhere = made({"docker/train": "FROM x"}, dockerfile="docker/train")
    assert elsewhere.steps[0].dockerfile == "docker/train"


DOCKERFILE = "FROM x\nWORKDIR /app\nCOPY needs.txt .\nRUN install-it needs.txt\nCOPY . .\n"


def test_a_dockerfile_with_the_code_last_makes_two_images():
    files = {"Dockerfile": DOCKERFILE, "needs.txt": "numpy"}
    below, code = made(files).steps
    assert (below.role, code.role, below.cache, code.cache) == (Role.DEPENDENCIES, Role.CODE, True, False)
    assert made({**files, "train.py": "new"}).key == made(files).key
    changed, same = made({**files, "needs.txt": "numpy==2"}).steps
    assert changed.key != below.key
    assert same.key == code.key


def test_the_rules_for_what_stays_out_are_those_of_the_dockerfile():
    files = {"Dockerfile": DOCKERFILE, "needs.txt": "", ".dockerignore": "data\n"}
    assert {step.ignore for step in made(files).steps} == {"data\n"}
    files["Dockerfile.dockerignore"] = "runs\n"
    assert {step.ignore for step in made(files).steps} == {"runs\n"}


def test_a_dockerfile_that_copies_what_nobody_could_read_is_built_as_it_is():
    assert roles(made({"Dockerfile": DOCKERFILE})) == [Role.IMAGE]


def test_a_lock_makes_dependencies_and_code_apart():
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
def test_only_what_has_changed_is_made_anew(files, base, new):
    before = {step.role: step.key for step in made(UV).steps}
    after = made(files, base)
    assert [step.role for step in after.steps if before[step.role] != step.key] == new
    assert (after.key != made(UV).key) == bool(new)


def test_heavy_packages_lie_under_the_others():
    found = made({**UV, "uv.lock": LOCK + TORCH + CUDA})
    heavy, dependencies, _ = found.steps
    assert heavy.role is Role.HEAVY
    assert "'torch==2.7.1 --hash=sha256:a1'" in heavy.dockerfile
    assert "'nvidia-nccl-cu12==2.26 --hash=sha256:b1'" in heavy.dockerfile
    assert "--no-deps" in heavy.dockerfile
    assert dependencies.dockerfile.startswith(f"FROM reg:5000/sweepbot/dependencies:heavy-{heavy.key}\n")


def test_a_small_change_leaves_the_heavy_ones_alone():
    one = made({**UV, "uv.lock": LOCK + TORCH})
    other = made({**UV, "uv.lock": LOCK.replace("2.4.6", "2.4.7") + TORCH})
    assert one.steps[0] == other.steps[0]
    assert one.steps[1].key != other.steps[1].key


def test_a_lock_that_leaves_a_choice_is_not_split():
    """One version for the CPU, one for CUDA: which it is only uv knows."""
    assert heavy_of_lock(toml(TORCH + TORCH.replace("2.7.1", "2.7.1+cu128"), "uv.lock")).lines == ()
    assert heavy_of_lock(toml(LOCK, "uv.lock")).lines == ()


def test_an_index_of_its_own_comes_along():
    lock = TORCH.replace("https://pypi.org/simple", "https://download.pytorch.org/whl/cu128")
    assert "--index=https://download.pytorch.org/whl/cu128" in heavy_of_lock(toml(lock, "uv.lock")).options


def test_requirements_and_what_they_name_make_the_dependencies():
    files = {"requirements.txt": "-c pins/c.txt\nnumpy\n", "pins/c.txt": "numpy==2.4.6\n"}
    dependencies, code = made(files).steps
    assert "COPY pins/c.txt /opt/project/pins/c.txt" in dependencies.dockerfile
    assert "-r requirements.txt" in dependencies.dockerfile
    assert made({**files, "pins/c.txt": "numpy==2.4.7\n"}).steps[0].key != dependencies.key
    assert made({**files, "pins/c.txt": "numpy==2.4.7\n"}).steps[1] == code


def test_a_pinned_torch_among_requirements_is_a_layer_of_its_own():
    index = "--extra-index-url https://download.pytorch.org/whl/cu121"
    pins = heavy_of_requirements(
        {"requirements.txt": f"{index}\ntorch==2.1.0+cu121  # the one\nnumpy\njaxtyping==1\n"}
    )
    assert pins.lines == ("torch==2.1.0+cu121", index)
    assert heavy_of_requirements({"requirements.txt": "torch>=2\n"}).lines == ()
    assert roles(made({"requirements.txt": "torch==2.7.1\n"})) == [Role.HEAVY, Role.DEPENDENCIES, Role.CODE]


def test_a_pyproject_without_a_lock_says_so():
    found = made({"pyproject.toml": PROJECT})
    assert roles(found) == [Role.DEPENDENCIES, Role.CODE]
    assert found.words == "from `pyproject.toml`; without a lock, in the versions of today"


BUILD = "[build-system]\nbuild-backend = "


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (
            {**UV, "pyproject.toml": PROJECT + '[project.scripts]\nt = "a:b"\n'},
            "has commands ([project.scripts])",
        ),
        (
            {**UV, "pyproject.toml": PROJECT + f'{BUILD}"maturin"\n'},
            "it is built by maturin, which may compile",
        ),
        ({**UV, "setup.py": "setup(ext_modules=[x])"}, "`setup.py` has ext_modules"),
        (
            {**UV, "uv.lock": LOCK + '[[package]]\nname = "lib"\nsource = { editable = "libs/lib" }\n'},
            "lib lies in it",
        ),
        ({"requirements.txt": "numpy\n-e .\n"}, "`-e .` in requirements.txt needs it"),
        ({"requirements.txt": "./wheels/x.whl\n"}, "`./wheels/x.whl` in requirements.txt needs it"),
        (
            {"pyproject.toml": '[project]\nname = "a"\ndynamic = ["dependencies"]\n'},
            "has its dependencies worked out by its build",
        ),
    ],
)
def test_what_has_to_be_installed_takes_one_job_and_the_thread_says_why(files, why):
    found = made(files)
    assert roles(found) == [Role.IMAGE]
    assert "installed in one Job" in found.words
    assert why in found.words
    assert "COPY . /app\nRUN " in found.steps[0].dockerfile


def test_the_configuration_may_say_that_it_has_to_be_installed():
    assert roles(made(UV, install=True)) == [Role.IMAGE]


@pytest.mark.parametrize(
    "backend", ["hatchling.build", "flit_core.buildapi", "uv_build", "setuptools.build_meta"]
)
def test_a_package_of_python_files_need_not_be_installed(backend):
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
def test_what_needs_the_repository_itself(line, local):
    assert bool(local_requirement({"requirements.txt": f"{line}\n"})) == local


def test_files_that_files_name():
    text = (
        "-r base.txt\n--requirement ../common/b.txt\n-cpins.txt\n--constraint=c.txt\nnumpy -r\n# -r no.txt\n"
    )
    assert pointers("req/train.txt", text) == ["req/base.txt", "common/b.txt", "req/pins.txt", "req/c.txt"]
    with pytest.raises(UserError, match="outside of the repository"):
        pointers("requirements.txt", "-r ../../etc/passwd")


def test_ignore_files_are_merged_and_git_never_comes_back():
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


@pytest.mark.parametrize(
    "files", [{}, {"setup.py": ""}, {"pyproject.toml": "[tool.ruff]\n"}, {"uv.lock": LOCK}]
)
def test_nothing_to_build_from_is_a_sentence(files):
    with pytest.raises(
        UserError, match=r"^digits has nothing that says how to build it: neither a Dockerfile"
    ):
        made(files)


def test_a_broken_file_is_named():
    with pytest.raises(UserError, match=r"^pyproject\.toml can't be read: "):
        made({"pyproject.toml": "[project"})


@pytest.mark.parametrize(
    "files", [UV, {"requirements.txt": "torch==2.7.1 --hash=sha256:a\n"}, {"pyproject.toml": PROJECT}]
)
def test_each_run_is_good_shell(files):
    for step in made(files).steps:
        for line in step.dockerfile.splitlines():
            if line.startswith("RUN "):
                assert subprocess.run(["sh", "-n", "-c", line[4:]], check=False).returncode == 0, line
