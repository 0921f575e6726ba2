"""Choose how to build a repository's image from the files it has, and write its Dockerfiles, with uv or
micromamba; refuse one without such files, or with an outdated uv.lock. Pure.

    Dockerfile        unchanged, in one Job, with Kaniko's cache; split in two if the image stays the same
    uv.lock           dependencies and code separately: two parallel Jobs, composed by the registry's API
    requirements.txt  the same
    pyproject.toml    the same, with the latest versions at the first build
    environment.yml   the same, by micromamba

To support another build file, add it to `BUILT_FROM` and a branch to `_RecipeBuilder.recipe`.

The key of a dependencies image is a hash of its inputs, so nothing is installed twice; the code image is only
a `COPY` and takes about a second. A repository that must be installed to work is built in one Job.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bot.core.errors import UserError
from bot.core.plan import Role
from bot.platform.config.repositories import Repository
from bot.sweep.builds import pyproject, requirements, uv_lock
from bot.sweep.builds.dockerfile_split import Split, split
from bot.sweep.builds.pyproject import toml
from bot.sweep.builds.requirements import FrameworkPins

TEMPLATE = "1"  # increase it when the Dockerfiles below change what an image contains
BUILT_FROM = (
    *("uv.lock", "pyproject.toml", "setup.py", "setup.cfg", ".dockerignore", ".gitmodules"),
    *requirements.CONDA_FILES,
)
UV = "0.13.9"  # installed if the base image has none
# And .git, whatever the repository's .dockerignore says. uv insists on the version in .python-version, even
# if requires-python allows the base image's.
IGNORED = ("**/__pycache__", "**/*.pyc", ".venv", ".python-version")
UV_SETUP = f"""\
ENV UV_PROJECT_ENVIRONMENT=/opt/venv UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never
RUN command -v uv || pip install --no-cache-dir uv=={UV}
"""
MICROMAMBA = "COPY --from={} /bin/micromamba /usr/local/bin/micromamba\n"
# Without it, conda-forge's solver finds no CUDA in a build, and takes PyTorch and others for CPUs or none:
# https://docs.conda.io/projects/conda/en/latest/user-guide/tasks/manage-virtual.html. CUDA's drivers run all
# minor versions of their major one.
CONDA_CUDA = "12.8"
# There, micromamba 2.5 writes packages' URLs with the password or token: libmamba's package_fetcher.cpp.
WITHOUT_LOGINS = "sed -i -E 's#://[^/@\" ]+@#://#g; s#/t/[^/\" ]+/#/t/-/#g' /opt/venv/conda-meta/*"
CREATE = (
    f"MAMBA_ROOT_PREFIX=/tmp/mamba CONDA_OVERRIDE_CUDA={CONDA_CUDA} micromamba create --yes "
    f"--prefix /opt/venv --file {{}} && {WITHOUT_LOGINS} && rm -rf /tmp/mamba"
)
ENVIRONMENT = """\
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app/src:/app PYTHONUNBUFFERED=1
WORKDIR /app
"""
VENV = "uv venv --quiet /opt/venv"
INSTALL = "uv pip install --python /opt/venv"
LIKE_PIP = f"{INSTALL} --index-strategy=unsafe-best-match"  # with several indexes, the best version wins
# What can be written into a generated Dockerfile: no line break, no option, no here-document.
SAFE_PATH = re.compile(r"[\w.@+][\w./@+-]*", re.ASCII)
ONE_LINE = re.compile(r"(?:(?!<<)[\x20-\x7e])+")
LOGIN = re.compile(r"https?://[^\s/@$\"'<>]{1,500}@")  # $ is a variable, not a password
CODE = "FROM scratch\nCOPY . /app\n"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One image, built by one Job. `dockerfile` is text, or a path in the repository if `own`."""

    role: Role
    dockerfile: str
    own: bool = False
    ignore: str = ""
    cache: bool = False  # cache the layer of each RUN
    key: str  # 32 hex digits: hash of all inputs except the commit


@dataclass(frozen=True, kw_only=True)
class Recipe:
    steps: tuple[Step, ...]
    words: str  # for users: what it is built from, and why in one Job
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return _hash(*(step.key for step in self.steps))[:8]


def recipe(
    files: Mapping[str, str], repository: Repository, base: str, heavy_at: str, micromamba: str
) -> Recipe:
    """Return the recipe for these files. Raises UserError if there is nothing to build from.

    Args:
        files: text by path, in the order of `bot.sweep.builds.source_files`.
        heavy_at: the frameworks image's name without its key.
        micromamba: an image that has it, for Conda's environments.
    """
    dockerfile = repository.dockerfile or "Dockerfile"
    notes = tuple(
        f"`{path}` has a password or token in a URL, which is readable in the repository and in its images. "
        "*Fix:* Revoke and remove it, and ask an admin to set BUILD_NETWORK_SECRET (docs/builds.md)."
        for path, text in files.items()
        if LOGIN.search(text)
    )
    if dockerfile in files:
        return replace(_own(files, dockerfile), notes=notes)
    try:
        return replace(_RecipeBuilder(files, repository, base, heavy_at, micromamba).recipe(), notes=notes)
    except (AttributeError, KeyError, TypeError) as error:
        wrong = f"`pyproject.toml` or `uv.lock` of {repository.name} has a value of the wrong type"
        raise UserError(
            f"{wrong} ({type(error).__name__}: {str(error)[:100]}). *Fix:* Run `uv lock`."
        ) from error


def _own(files: Mapping[str, str], dockerfile: str) -> Recipe:
    parts, words = split(files[dockerfile]), f"from `{dockerfile}`"
    if LOGIN.search(files[dockerfile]):
        parts = "it has a password or token in a URL"
    elif isinstance(parts, Split) and (missing := [path for path in parts.sources if path not in files]):
        parts = f"`{missing[0][:100]}`, which it copies above `COPY .`, isn't a small text file"
    if isinstance(parts, str):
        key = _hash(TEMPLATE, dockerfile)
        step = Step(role=Role.IMAGE, dockerfile=dockerfile, own=True, cache=True, key=key)
        return Recipe(steps=(step,), words=f"{words}, in one Job: {parts}")
    ignore = files.get(f"{dockerfile}.dockerignore", files.get(".dockerignore", ""))
    contents = [part for path in parts.sources for part in (path, files[path])]
    below = _step(Role.DEPENDENCIES, parts.below, ignore, *contents)
    # Two clones never have the same .git, and it grows with each commit.
    code = _step(Role.CODE, parts.code, f"{ignore.rstrip()}\n.git\n".lstrip())
    return Recipe(steps=(replace(below, cache=True), code), words=words)


class _RecipeBuilder:
    def __init__(
        self, files: Mapping[str, str], repository: Repository, base: str, heavy_at: str, micromamba: str
    ) -> None:
        self.files, self.repository, self.base, self.heavy_at = files, repository, base, heavy_at
        self.micromamba = MICROMAMBA.format(micromamba)
        self.project = toml(files.get("pyproject.toml", ""), "pyproject.toml")
        self.requirements = {path: text for path, text in files.items() if path not in BUILT_FROM}
        if unsafe := [path for path in self.requirements if not SAFE_PATH.fullmatch(path)]:
            raise UserError(
                f"`{unsafe[0][:100]}` can't be copied into a build. "
                "*Fix:* Rename it: letters, digits, and ./@+-_."
            )

    def recipe(self) -> Recipe:
        why = pyproject.why_install(
            self.project, self.files.get("setup.py", ""), self.files.get("setup.cfg", "")
        )
        if self.repository.install:
            why = "`install: true` in the configuration"
        if "uv.lock" in self.files and "pyproject.toml" in self.files:
            return self._uv_lock(why)
        if self.requirements:
            return self._requirements(why)
        if pyproject.has_dependencies(self.project):
            return self._pyproject(why)
        if file := next((name for name in requirements.CONDA_FILES if name in self.files), ""):
            return self._conda(file, why)
        if pyproject.has_dynamic_dependencies(self.project):
            return self._pyproject(why or "`pyproject.toml` has dynamic dependencies")
        if self.project.get("project") and why:
            return self._pyproject(why)
        if pyproject.only_poetry(self.project):
            return self._pyproject("only Poetry can read its dependencies (latest versions)")
        fix = "Add one at the repository root."
        if "setup.py" in self.files:
            fix = "Add a `requirements.txt` with the line `-e .`, which installs what `setup.py` names."
        raise UserError(
            f"{self.repository.name} can't be built: no Dockerfile, uv.lock, requirements.txt, "
            f"pyproject.toml with [project] dependencies, or environment.yml. *Fix:* {fix}"
        )

    def _uv_lock(self, why: str) -> Recipe:
        locked = uv_lock.read(self.files["uv.lock"], self.files["pyproject.toml"])
        if locked.missing:
            raise UserError(
                f"`uv.lock` of {self.repository.name} is out of date: it lacks `{locked.missing[0]}` of "
                "`pyproject.toml`. *Fix:* Run `uv lock` and commit both files."
            )
        if locked.local:
            return self._one_job(
                "uv.lock", f"the package {locked.local[0]} is in the repository", "uv sync --frozen --no-dev"
            )
        copies, sync = ("pyproject.toml", "uv.lock"), "uv sync --frozen --no-dev --no-install-project"
        if why:
            first = f"COPY {' '.join(copies)} /app/\nRUN cd /app && {sync}\n"
            return self._one_job("uv.lock", why, "uv sync --frozen --no-dev", first)
        return self._separate("uv.lock", copies, sync, _writable(locked.frameworks))

    def _requirements(self, why: str) -> Recipe:
        first = next(iter(self.requirements))
        install = f"{LIKE_PIP} -r {first}"
        if line := requirements.local_requirement(self.requirements):
            return self._one_job(first, f"{line} needs the repository", f"{VENV} && {install}")
        if why:
            return self._one_job(first, why, f"{VENV} && {install} && {INSTALL} --no-deps .")
        heavy = _writable(requirements.framework_pins(self.requirements))
        return self._separate(
            first, tuple(self.requirements), install if heavy.lines else f"{VENV} && {install}", heavy
        )

    def _pyproject(self, why: str) -> Recipe:
        if why:
            return self._one_job("pyproject.toml", why, f"{VENV} && {INSTALL} .")
        install = f"{VENV} && {INSTALL} -r pyproject.toml"
        if local := pyproject.from_repository(self.project):
            return self._one_job("pyproject.toml", f"the package {local} is in the repository", install)
        found = self._separate("pyproject.toml", ("pyproject.toml",), install, FrameworkPins())
        return Recipe(steps=found.steps, words=f"{found.words} (no lock file: latest versions)")

    def _conda(self, file: str, why: str) -> Recipe:
        create = CREATE.format(file)
        if why:
            setup = f"{self.micromamba}{UV_SETUP}"
            return self._one_job(file, why, f"{create} && {INSTALL} --no-deps .", setup=setup)
        if line := requirements.local_conda_line(self.files[file], file):
            return self._one_job(file, f"{line} needs the repository", create, setup=self.micromamba)
        return self._separate(file, (file,), create, FrameworkPins(), setup=self.micromamba)

    def _separate(
        self,
        source: str,
        copies: tuple[str, ...],
        install: str,
        heavy: FrameworkPins,
        *,
        setup: str = UV_SETUP,
    ) -> Recipe:
        steps: list[Step] = []
        base = self.base
        if heavy.lines:
            steps.append(self._heavy(heavy))
            base = f"{self.heavy_at}{steps[0].key}"
        lines = [f"COPY {path} /opt/project/{path}" for path in copies]
        lines += [f"RUN cd /opt/project && {install}", ENVIRONMENT]
        text = f"FROM {base}\n{setup}" + "\n".join(lines)
        contents = [part for path in copies for part in (path, self.files[path])]
        steps.append(_step(Role.DEPENDENCIES, text, ".git\n", *contents))
        steps.append(_step(Role.CODE, CODE, self._ignore("uv.lock")))
        return Recipe(steps=tuple(steps), words=f"from `{source}`")

    def _heavy(self, heavy: FrameworkPins) -> Step:
        lines = " ".join(shlex.quote(line) for line in heavy.lines)
        install = f"{INSTALL} {shlex.join(heavy.options)} -r /opt/heavy.txt"
        write = f"printf '%s\\n' {lines} > /opt/heavy.txt"
        text = f"FROM {self.base}\n{UV_SETUP}RUN {write} && {VENV} && {install}\n"
        return _step(Role.FRAMEWORKS, text, ".git\n")

    def _one_job(
        self, source: str, why: str, install: str, first: str = "", *, setup: str = UV_SETUP
    ) -> Recipe:
        """Build in one Job. `first`: instructions before the code is copied, so Kaniko can cache them."""
        text = f"FROM {self.base}\n{setup}{first}{ENVIRONMENT}COPY . /app\nRUN {install}\n"
        step = _step(Role.IMAGE, text, self._ignore())
        return Recipe(
            steps=(replace(step, cache=True),), words=f"from `{source}`, installed in one Job: {why}"
        )

    def _ignore(self, *more: str) -> str:
        own = self.files.get(".dockerignore", "").splitlines()
        return "\n".join([*IGNORED, *more, *own, ".git", ""])


def _writable(heavy: FrameworkPins) -> FrameworkPins:
    """Return the pins if a generated Dockerfile can hold them, else none: Jobs and records show it."""
    each = (*heavy.lines, *heavy.options)
    is_writable = all(ONE_LINE.fullmatch(line) and not LOGIN.search(line) for line in each)
    return heavy if is_writable else FrameworkPins()


def _step(role: Role, dockerfile: str, ignore: str, *contents: str) -> Step:
    key = _hash(TEMPLATE, dockerfile, ignore, *contents)
    return Step(role=role, dockerfile=dockerfile, ignore=ignore, key=key)


def _hash(*parts: str) -> str:
    """Hash the parts with their lengths, so that different lists never have the same hash."""
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]
