"""The changes to the cluster that a sweep requires, as values. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from bot.core.plan import SweepPlan
from bot.platform.registry.images import ImageRef
from k8s.jobs import Job
from k8s.objects import Manifest, Ref


@dataclass(frozen=True, kw_only=True)
class Patch:
    ref: Ref
    body: Manifest
    subresource: str = ""
    optional: bool = False  # a rejection is no error: the object was changed since it was read


@dataclass(frozen=True, kw_only=True)
class Delete:
    ref: Ref
    uid: str  # a precondition: a later object of the same name is kept
    build: bool = False  # builds run in the main cluster
    wait: bool = False  # the object stays until all of its dependents are gone


@dataclass(frozen=True, kw_only=True)
class RequiredChanges:
    """Patches come before deletions: Katib recreates the Job of a trial that is still active."""

    patch: tuple[Patch, ...] = ()
    delete: tuple[Delete, ...] = ()
    create: tuple[Manifest, ...] = ()
    compose: tuple[ImageRef, ImageRef, ImageRef] | None = None  # image, dependencies, and the code to add

    def __add__(self, other: "RequiredChanges") -> "RequiredChanges":
        return RequiredChanges(
            patch=self.patch + other.patch,
            delete=self.delete + other.delete,
            create=self.create + other.create,
            compose=self.compose or other.compose,
        )


def deletions(jobs: Iterable[Job], plan: SweepPlan, *, wait: bool = False) -> tuple[Delete, ...]:
    namespace = plan.experiment_ref.namespace
    return tuple(Delete(ref=Ref(j.kind, namespace, j.name), uid=j.uid, wait=wait) for j in jobs)
