"""Turn a recipe into build Jobs: the names and tags of their images, and which Secrets, CA, and submodules
they get. Pure.

sweepbot/<project>:<commit>-<key>         the image that trials run
sweepbot/<project>:code-<commit>-<key>    the code of a commit
sweepbot/<project>:deps-<key>             the layers of a Dockerfile below the code, and Kaniko's cache
sweepbot/dependencies:deps-<key>          dependencies, shared by all projects such as forks
sweepbot/dependencies:heavy-<key>         ML frameworks such as PyTorch, which change less often

With a prefix in IMAGE_REGISTRY, the repositories are PREFIX/sweepbot-<project>, PREFIX/sweepbot-dependencies.
Kaniko trusts the layers of its cache by their tags alone, so no cache is in the repository of all projects.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.core.plan import Build, Role
from bot.platform.config.repositories import Repository
from bot.platform.config.settings import PlanSettings
from bot.sweep.builds.recipes import Recipe, Step, recipe
from k8s.kaniko import BuildSpec, build_job
from k8s.objects import name

SHARED = "dependencies"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The commit of a branch or tag, and the files that decide how to build it."""

    repository: Repository
    ref: str  # refs/heads/... or refs/tags/...
    commit: str
    subject: str
    files: Mapping[str, str]  # text by path; empty for a prebuilt image

    @property
    def project(self) -> str:
        return project(self.repository)


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """The image that trials run, and the Jobs that build it."""

    repository: str
    tag: str
    builds: tuple[Build, ...]
    words: str
    notes: tuple[str, ...] = ()


def build_plan(source: Source, settings: PlanSettings) -> BuildPlan:
    """Return the plan. Raises UserError if the repository has nothing to build from."""
    heavy_at = f"{settings.registry_push}/{settings.image_repository(SHARED)}:heavy-"
    found = recipe(source.files, source.repository, settings.base_image, heavy_at, settings.micromamba_image)
    made = [_build(step, found, source, settings) for step in found.steps]
    tags = {build.role: build.tag for build in made}
    return BuildPlan(
        repository=own_repository(source.repository, settings),
        tag=tags.get(Role.IMAGE) or _tag(source, found),
        builds=tuple(made),
        words=found.words,
        notes=found.notes,
    )


def project(repository: Repository) -> str:
    return name(repository.name, limit=30)


def own_repository(repository: Repository, settings: PlanSettings) -> str:
    return settings.image_repository(project(repository))


def _tag(source: Source, found: Recipe) -> str:
    return f"{source.commit}-{found.key}"


def _build(step: Step, found: Recipe, source: Source, settings: PlanSettings) -> Build:
    commit, needs = source.commit[:12], ""
    own, shared = own_repository(source.repository, settings), settings.image_repository(SHARED)
    match step.role:
        case Role.IMAGE:
            repository, tag = own, _tag(source, found)
            job = f"build-{source.project}-{commit}-{found.key}"
        case Role.CODE:
            repository, tag = own, f"code-{source.commit}-{step.key[:8]}"
            job = f"build-{source.project}-code-{commit}-{step.key[:8]}"
        case Role.DEPENDENCIES if step.cache:
            repository, tag = own, f"deps-{step.key}"
            job = f"build-{source.project}-deps-{step.key[:16]}"
        case _:
            word = "heavy" if step.role is Role.FRAMEWORKS else "deps"
            repository, tag, job = shared, f"{word}-{step.key}", f"build-{word}-{step.key[:16]}"
    if step.role is Role.DEPENDENCIES:
        needs = next((f"heavy-{other.key}" for other in found.steps if other.role is Role.FRAMEWORKS), "")
    # A FROM can use the name that nodes pull from.
    names = dict.fromkeys((settings.registry_push, settings.registry_host))
    spec = BuildSpec(
        name=job,
        namespace=settings.builds_in,
        repo_url=source.repository.url,
        ref=source.ref,
        commit=source.commit,
        submodules=".gitmodules" in source.files,
        dockerfile=step.dockerfile,
        own_dockerfile=step.own,
        ignore=step.ignore,
        destination=f"{settings.registry_push}/{repository}:{tag}",
        alone=step.role is Role.FRAMEWORKS,
        code_only=step.role is Role.CODE,
        cache=step.cache,
        executor=settings.kaniko_image,
        git_secret=source.repository.secret if step.role is not Role.FRAMEWORKS else None,
        registry_secret=_push_secret(None if repository == shared else source, settings),
        network_secret=settings.build_network_secret,
        service_account=settings.build_service_account,
        ca=settings.build_ca_configmap,
        plain_http=tuple(names) if settings.image_registry_plain_http else (),
    )
    return Build(role=step.role, repository=repository, tag=tag, job=build_job(spec), needs=needs)


def _push_secret(source: Source | None, settings: PlanSettings) -> str | None:
    """Return the push Secret of the source for its own image repository, else the default one."""
    own = source.repository.push_secret if source else None
    return own or settings.image_push_secret or settings.image_registry_secret
