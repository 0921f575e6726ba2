"""GPUs by a DeviceClass: create the template of the trials' claims with the experiment."""

from datetime import datetime

from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.sweep.model.changes import RequiredChanges
from bot.sweep.model.experiment import can_submit
from bot.sweep.model.feature import Feature
from bot.sweep.model.observation import Observation
from k8s.katib.device_claims import device_class, template


def changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, _: datetime) -> RequiredChanges:
    if not (can_submit(sweep, seen) and plan.gpus and device_class(plan.resource)):
        return RequiredChanges()
    return RequiredChanges(create=(template(plan.experiment_ref.namespace, plan.resource, plan.gpus),))


FEATURE = Feature(name="device_claims", changes=changes)
