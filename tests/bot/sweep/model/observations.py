"""What sweeps observe, for the tests of their lifecycle."""

from dataclasses import replace
from datetime import timedelta

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.sweep.decisions.advance import advance
from bot.sweep.model.observation import BuildSeen, Observation
from k8s.engine import End, ExperimentState, Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.katib.status import read_experiment
from k8s.pods import Pod
from tests.bot.factories import CONFIG, NOW, OWNER, PLAN, a_sweep

COUNTS = {"maxTrialCount": 4, "parallelTrialCount": 2, "maxFailedTrialCount": 2}
LABELS = PLAN.experiment["metadata"]["labels"]
META = {"name": "x", "resourceVersion": "7", "labels": LABELS}
RAW = {"metadata": META, "spec": COUNTS, "status": {"conditions": []}}
OPEN = read_experiment(RAW)
DONE = replace(OPEN, state=ExperimentState.SUCCEEDED, end=End.ALL_TRIALS)
FAILED = replace(OPEN, state=ExperimentState.FAILED, end=End.FAILED)
CANCEL = Command(action=Action.CANCEL, user=OWNER, user_name="ada")
(MAKES,) = PLAN.builds
LATER = NOW + timedelta(hours=1)
RUNNING = a_sweep(Phase.RUNNING, submitted=True)
PENDING = a_sweep(Phase.PENDING, submitted=True)


def an_experiment(raw, like=OPEN):
    """Return what Katib's object says of an experiment that is in the state of `like`."""
    return replace(read_experiment(raw), state=like.state, end=like.end, message=like.message)


def a_trial(name, state=TrialState.LIVE, value=None, **parameters):
    killed = state is TrialState.KILLED
    return Trial(name=name, state=state, parameters=parameters, value=value, killed=killed, raw=RAW)


def a_job(name, state=JobState.ACTIVE, **facts):
    return Job(name=name, uid=f"u-{name}", state=state, **facts)


def a_pod(job, **facts):
    known = {"node": "n1", "finished": False, "job_uid": f"u-{job}"}
    return Pod(name=f"{job}-x", job=job, **known | facts)


def after(sweep, *parts, now=LATER, config=CONFIG, **seen):
    """Advance by an observation with these parts of features."""
    observation = Observation(**seen)
    for part in parts:
        observation = observation.put(part)
    return advance(sweep, observation, config, now)


def kinds(sweep):
    return [event.kind for event in sweep.outbox]


def building(job=None, there=None, **facts):
    """Return an observation of the only build."""
    return {"builds": (BuildSeen(build=MAKES, job=job, there=there, **facts),)}
