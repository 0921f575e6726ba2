"""Everything the cluster will be asked for, decided before anything is done."""

from dataclasses import dataclass
from enum import StrEnum

from bot.core.space import SearchSpace
from k8s.objects import Manifest, Ref, ref_of


class Role(StrEnum):
    """What a built image is to a sweep. Values are stored in records; `label` is for users."""

    IMAGE = "image"
    FRAMEWORKS = "heavy packages"
    DEPENDENCIES = "dependencies"
    CODE = "code"

    @property
    def label(self) -> str:
        return "ML frameworks" if self is Role.FRAMEWORKS else self.value


@dataclass(frozen=True, kw_only=True)
class Build:
    """One image that one Job makes, for every sweep that needs it."""

    role: Role
    repository: str  # as the bot asks the registry: path without host
    tag: str
    job: Manifest
    needs: str = ""  # the tag of another one, which has to be there first

    @property
    def ref(self) -> Ref:
        return ref_of(self.job)


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Everything the cluster will be asked for, decided before anything is done."""

    repo_url: str
    commit: str  # 40 hexadecimal digits
    subject: str  # the commit message's first line
    space: SearchSpace
    gpus: int
    image_repository: str  # as the bot asks the registry: path without host
    image_tag: str
    image_by_digest: str  # as nodes pull it, with a placeholder where the digest goes; a ready one without
    recipe: str  # what the image is made from, in words
    results_name: str  # of the MLflow experiment
    builds: tuple[Build, ...]  # several are composed; none: a ready image
    experiment: Manifest  # with image_by_digest until the digest is known

    def build(self, role: Role) -> Build | None:
        return next((build for build in self.builds if build.role is role), None)

    @property
    def experiment_ref(self) -> Ref:
        return ref_of(self.experiment)
