"""Requirements files: references, constraints, and lines that need the repository."""

import pytest

from bot.core.errors import UserError
from bot.core.plan import Role
from bot.sweep.builds import requirements
from bot.sweep.builds.requirements import local_requirement, references
from tests.bot.sweep.builds.projects import made, roles
from tests.cases import cases


def test_recipe_of_requirements_includes_files_that_files_reference():
    files = {"requirements.txt": "-c pins/c.txt\nnumpy\n", "pins/c.txt": "numpy==2.4.6\n"}
    dependencies, code = made(files).steps
    assert "COPY pins/c.txt /opt/project/pins/c.txt" in dependencies.dockerfile
    assert "-r requirements.txt" in dependencies.dockerfile
    assert made({**files, "pins/c.txt": "numpy==2.4.7\n"}).steps[0].key != dependencies.key
    assert made({**files, "pins/c.txt": "numpy==2.4.7\n"}).steps[1] == code
    text = (
        "-r base.txt\n--requirement ../common/b.txt\n-cpins.txt\n--constraint=c.txt\nnumpy -r\n# -r no.txt\n"
    )
    assert references("req/train.txt", text) == ["req/base.txt", "common/b.txt", "req/pins.txt", "req/c.txt"]
    with pytest.raises(UserError, match="outside the repository"):
        references("requirements.txt", "-r ../../etc/passwd")


@pytest.mark.parametrize("name", ["constraints.lock", "base.pip", "env/train.pip"])
def test_recipe_accepts_requirements_files_of_any_name(name):
    """Which they are was decided when they were found."""
    files = {"requirements.txt": f"-r {name}\n", name: "numpy==2.4.6\n", "setup.cfg": "", ".gitmodules": ""}
    dependencies, _ = made(files).steps
    assert f"COPY {name} /opt/project/{name}" in dependencies.dockerfile
    assert "setup.cfg" not in dependencies.dockerfile
    assert made({**files, name: "numpy==2.4.7\n"}).steps[0].key != dependencies.key
    assert roles(made({name: "numpy\n"}, requirements=name)) == [Role.DEPENDENCIES, Role.CODE]


def test_recipe_puts_a_pinned_framework_in_its_own_layer_and_installs_no_constraint():
    index = "--extra-index-url https://download.pytorch.org/whl/cu121"
    pins = requirements.framework_pins(
        {"requirements.txt": f"{index}\ntorch==2.1.0+cu121  # the one\nnumpy\njaxtyping==1\n"}
    )
    assert pins.lines == ("torch==2.1.0+cu121", index)
    assert requirements.framework_pins({"requirements.txt": "torch>=2\n"}).lines == ()
    of_windows = "torch==2.7.1 \\\r\n    --hash=sha256:1\r\nnumpy\r\n"
    pins = requirements.framework_pins({"requirements.txt": of_windows})
    assert pins.lines == ("torch==2.7.1 --hash=sha256:1",)
    assert roles(made({"requirements.txt": "torch==2.7.1\n"})) == [
        Role.FRAMEWORKS,
        Role.DEPENDENCIES,
        Role.CODE,
    ]
    files = {
        "requirements.txt": "-c c.txt\n-r more/a.txt\nnumpy\n",
        "c.txt": f"{index}\ntorch==2.5.1\ntensorflow==2.17.0\n",
        "more/a.txt": "jax==0.6.0\n",
    }
    pins = requirements.framework_pins(files)
    assert pins.lines == ("jax==0.6.0", index), "index options apply to all requirements"


@cases(
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
        ("lib[a, b] @ file:///lib", True),
        ("lib[a,b] @ https://host/x-1.whl", False),
        ("wheels/x-1-py3-none-any.whl", True),
        ("--find-links ./wheels", True),
        ("-f wheels", True),
        ("libs/grasp", True),
        ("envs/arm[mujoco]  # ours", True),
        ("numpy==2 --config-settings=a=/b", False),
    ],
)
def test_local_requirement_finds_lines_that_need_the_repository(line, local):
    assert bool(local_requirement({"requirements.txt": f"{line}\n"})) == local
