"""The keys of the configuration file, with their meaning and limits. Pure."""

import re

from bot.config.allowed import NAME, OUTPUT_KEYS, SECRET_KEYS, VARIABLE, VOLUME_NAME_KEYS
from bot.config.clusters import CLUSTER_KEYS, CLUSTER_NAME
from bot.config.digest_times import DIGEST_KEYS
from bot.config.elastic import ELASTIC_KEYS
from bot.config.environment_keys import ENVIRONMENT_KEYS
from bot.config.idle_thresholds import THRESHOLD_KEYS
from bot.config.keys import (
    BOOLEAN,
    LIST,
    MAPPING,
    NAMED,
    NAMESPACE_NAME,
    OBJECT_NAME,
    STRING,
    Key,
    Keys,
    Schema,
    integer,
    list_of,
    named,
    number,
    one_of,
    string,
)
from bot.config.profiles import POOL_KEYS, PROFILE_KEYS, PROFILE_NAME
from bot.config.queues import PRIORITIES, PRIORITY_KEYS, QUEUE_KEYS, QUEUE_NAME
from bot.config.teams import CHANNEL_ID, TEAM_KEYS, USER_ID
from bot.config.trial_pods import POD_KEYS

MAX_GPUS_PER_TRIAL, MAX_PARALLEL, MAX_TRIALS, MAX_GRACE_SECONDS = 8, 16, 500, 600  # default limits
MAX_NODES_PER_TRIAL = 8  # default limit
A_MINUTE, MAX_HOURS = 1 / 60, 2**31 // 3600  # hours; Kubernetes rejects deadlines of 2**31 seconds or more
REPOSITORY_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
REPOSITORY_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9_.][A-Za-z0-9_./-]*")
WORKSPACE = re.compile(r"[TE][A-Z0-9]{2,}")
GOALS = ("minimize", "maximize")
PLACEHOLDER_IMAGE = "registry.k8s.io/pause:3.10"
SEED_PARAMETER, SEED_METRIC = "seed", "loss"  # defaults of sweeps over seeds
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
TENSORBOARD_TAG = re.compile(r"[A-Za-z0-9_-]{1,100}")
MAX_CURRENCY = 8  # characters
EXAMPLE_URL = "https://github.com/acme/digits.git"
PREFIX: Schema = string("URL prefix", r"https://\S*/")
REPOSITORY_KEYS: Keys = {
    "url": Key(
        meaning="URL of the git repository: https or http, without credentials.",
        type=string("URL", r"https?://\S+"),
        example=EXAMPLE_URL,
        required=True,
    ),
    "dockerfile": Key(
        meaning="Path of the Dockerfile in the repository.",
        type=string("path", REPOSITORY_PATH.pattern),
        default="`Dockerfile`, if it exists",
        example="docker/Dockerfile",
    ),
    "requirements": Key(
        meaning="Path of the requirements file, if the repository has several.",
        type=string("path", REPOSITORY_PATH.pattern),
        default="found by its name",
        example="requirements/train.txt",
    ),
    "install": Key(
        meaning="Install the project itself into the image, not only its dependencies.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "secret": Key(
        meaning="Name of the Secret with `username` and `password` for a private repository.",
        type=string("name", OBJECT_NAME.pattern),
        default="none (public)",
        example="git-vision",
    ),
    "push_secret": Key(
        meaning="Name of the dockerconfigjson Secret that pushes this repository's images.",
        type=string("name", OBJECT_NAME.pattern),
        default="`IMAGE_PUSH_SECRET`",
        example="push-vision",
    ),
}
LIMIT_KEYS: Keys = {
    "gpus_per_trial": Key(
        meaning="Maximum GPUs of one trial on each of its nodes.",
        type=integer(0),
        default=str(MAX_GPUS_PER_TRIAL),
        example="4",
    ),
    "nodes_per_trial": Key(
        meaning="Maximum nodes of one trial.",
        type=integer(1),
        default=str(MAX_NODES_PER_TRIAL),
        example="16",
    ),
    "parallel": Key(
        meaning="Maximum parallel trials of one sweep; `parallel=auto` grows up to it.",
        type=integer(1),
        default=str(MAX_PARALLEL),
        example="8",
    ),
    "trials": Key(
        meaning="Maximum trials of one sweep.", type=integer(1), default=str(MAX_TRIALS), example="200"
    ),
    "trial_hours": Key(
        meaning="Maximum run time of one trial, in hours.",
        type=number(A_MINUTE, MAX_HOURS),
        default="no limit",
        example="24",
    ),
    "grace_seconds": Key(
        meaning="Maximum `trials.grace_seconds` of a space file.",
        type=integer(1),
        default=str(MAX_GRACE_SECONDS),
        example="900",
    ),
}
SEED_KEYS: Keys = {
    "parameter": Key(
        meaning="Name of the seed's flag.",
        type=string("name", PARAMETER.pattern),
        default=SEED_PARAMETER,
        example="random_seed",
    ),
    "metric": Key(
        meaning="Metric of the results. `metric=` overrides it.",
        type=string("name", TENSORBOARD_TAG.pattern),
        default=SEED_METRIC,
        example="val_loss",
    ),
    "goal": Key(
        meaning="Direction of the metric. `goal=` overrides it.",
        type=one_of(*GOALS),
        default=GOALS[0],
        example="maximize",
    ),
}
LAUNCH_KEYS: Keys = {
    "channels": Key(
        meaning="Slack channels where sweeps can be started.",
        type=list_of(CHANNEL_ID),
        default="all",
        example="[C012ABC]",
    ),
    "people": Key(
        meaning="Slack users who can start sweeps.",
        type=list_of(USER_ID),
        default="everyone",
        example="[U012ABC]",
    ),
    "gpus": Key(
        meaning="Maximum peak GPUs of one sweep: parallel trials × nodes × GPUs per node.",
        type=integer(0),
        default="no limit",
        example="16",
    ),
    "gpus_per_person": Key(
        meaning="Maximum peak GPUs of all active sweeps of one person.",
        type=integer(0),
        default="no limit",
        example="32",
    ),
}
KEYS: Keys = {
    "repositories": Key(
        meaning="Repositories by name (lowercase letters, digits, `.`, `-`, `_`). The first is the default.",
        type=named(REPOSITORY_NAME) | {"minProperties": 1},
        example=f"{{digits: {{url: {EXAMPLE_URL}}}}}",
        required=True,
        keys=REPOSITORY_KEYS,
    ),
    "allowed_urls": Key(
        meaning="URL prefixes of other repositories, each ending in a slash, that `repo=` can name.",
        type=list_of(PREFIX),
        default="none",
        example="[https://github.com/acme/]",
    ),
    "images": Key(
        meaning="Allowed prebuilt images: image repositories without a tag, or prefixes ending in a slash.",
        type=list_of(STRING),
        default="none",
        example="[pytorch/pytorch, registry.example/team/]",
    ),
    "admins": Key(
        meaning="Slack users who can manage all sweeps and run `/sweep doctor` and `/sweep setup`.",
        type=list_of(USER_ID),
        default="none",
        example="[U012ABC]",
    ),
    "limits": Key(meaning="Maximum values of one sweep.", type=MAPPING, keys=LIMIT_KEYS),
    "seeds": Key(
        meaning="Defaults of sweeps over seeds (`seeds=`), which have no space file.",
        type=MAPPING,
        keys=SEED_KEYS,
    ),
    "launch": Key(
        meaning="Who can start sweeps, where, and how large. Admins always can.",
        type=MAPPING,
        keys=LAUNCH_KEYS,
    ),
    "teammates_can_act": Key(
        meaning="Let members of a team cancel, drain, pause, and extend each other's sweeps.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "gate": Key(
        meaning="Run one trial first, and the others once it is healthy, in sweeps with several parallel "
        "trials. `gate=` overrides it.",
        type=BOOLEAN,
        default="true",
        example="false",
    ),
    "guests": Key(
        meaning="Let guests of the Slack workspace use Sweepbot.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "reservations": Key(
        meaning="Let admins reserve GPUs for teams: `/gpus reserve`. Needs Kueue and deploy/reservations.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "placeholder_image": Key(
        meaning="Image of the pods that hold reserved GPUs: one that only waits.",
        type=STRING,
        default=f"`{PLACEHOLDER_IMAGE}`",
        example="registry.lab.example/pause:3.10",
    ),
    "workspaces": Key(
        meaning="IDs of other Slack workspaces whose members can use Sweepbot through Slack Connect.",
        type=list_of(string("Slack workspace ID", WORKSPACE.pattern)),
        default="none",
        example="[T012ABC]",
    ),
    "teams": Key(
        meaning="Teams by name (lowercase letters, digits, dashes; at most 63 characters).",
        type=named(NAMESPACE_NAME),
        default="none",
        example="{vision: {namespaces: [vision], members: [U012ABC]}}",
        keys=TEAM_KEYS,
    ),
    "queues": Key(
        meaning="Kueue's LocalQueues that trials can use, by name. The first is the default.",
        type=named(QUEUE_NAME),
        default="none: trials aren't queued by Sweepbot",
        example="{research: {}, urgent: {teams: [vision]}}",
        keys=QUEUE_KEYS,
    ),
    "priorities": Key(
        meaning="Priorities of trials: `low`, `normal` (the default of sweeps), and `high`, which only "
        "admins can use unless it names teams or people.",
        type=named(re.compile("|".join(PRIORITIES))),
        default="none",
        example="{low: {class: sweeps-low}, normal: {class: sweeps-normal}}",
        keys=PRIORITY_KEYS,
    ),
    "clusters": Key(
        meaning="Clusters for trials, by name, in order of preference ([details](clusters.md)). `main` is "
        "the one that Sweepbot runs in.",
        type=named(CLUSTER_NAME),
        default="all trials run in the cluster that Sweepbot runs in",
        example="{main: {}, west: {kubeconfig: /etc/sweepbot-clusters/west}}",
        keys=CLUSTER_KEYS,
    ),
    "prices": Key(
        meaning="Price of one GPU-hour by model: a regular expression for the start of the model's name. "
        "The most specific match wins; a MIG slice costs its share of the card.",
        type=NAMED | {"additionalProperties": number(0)},
        default="none",
        example='{"NVIDIA H100": 2.5}',
    ),
    "currency": Key(
        meaning="Currency of `prices`: a sign or a code.",
        type=STRING | {"maxLength": MAX_CURRENCY},
        default="`$`",
        example="EUR",
    ),
    "digests": Key(
        meaning="Daily GPU usage digests, at most one per channel. `/sweep setup` adds more.",
        type=LIST,
        default="none",
        example="[{channel: C012ABC}]",
        keys=DIGEST_KEYS,
    ),
    "warnings": Key(
        meaning="Idle-GPU warning thresholds. 0 turns a warning off.", type=MAPPING, keys=THRESHOLD_KEYS
    ),
    "admin_channel": Key(
        meaning="Slack channel for GPU errors and rejected configuration files.",
        type=CHANNEL_ID,
        default="none",
        example="C012ABC",
    ),
    "trials": Key(meaning="What the pods of all trials need on this cluster.", type=MAPPING, keys=POD_KEYS),
    "profiles": Key(
        meaning="Machine types by name; `profile=` chooses one. The first is the default, scaled by `gpus=`.",
        type=named(PROFILE_NAME),
        default="none",
        example="{1xh100: {gpus: 1, cpu: 16, memory: 200Gi}}",
        keys=PROFILE_KEYS,
    ),
    "pools": Key(
        meaning="Autoscaled pools by name: what one machine has, even while the pool is empty. With "
        "`profiles`, a sweep that fits no node and no pool is refused.",
        type=named(PROFILE_NAME),
        default="none",
        example="{h100: {gpus: 8, cpu: 190, memory: 1900Gi}}",
        keys=POOL_KEYS,
    ),
    "volumes": Key(
        meaning="Volumes by name that space files can mount with `volumes`.",
        type=named(NAME),
        default="none",
        example="{datasets: {claim: datasets, at: /data, read_only: true}}",
        keys=VOLUME_NAME_KEYS,
    ),
    "env": Key(
        meaning="Environment variables that space files can set with `env`.",
        type=list_of(string("variable", VARIABLE.pattern)),
        default="none",
        example="[HF_HOME, WANDB_PROJECT]",
    ),
    "secrets": Key(
        meaning="Secrets by name that space files can use with `secrets`. Whoever can start a sweep can read "
        "them.",
        type=named(NAME),
        default="none",
        example="{wandb: {secret: wandb-login, keys: [WANDB_API_KEY]}}",
        keys=SECRET_KEYS,
    ),
    "output": Key(
        meaning="Directory per trial that outlives its pod, for checkpoints ([details](checkpoints.md)).",
        type=MAPPING,
        default="none",
        example="{claim: checkpoints, at: /ckpt, flag: output_dir}",
        keys=OUTPUT_KEYS,
    ),
    "namespaces": Key(
        meaning="More namespaces for trials. `/sweep setup` assigns them to channels.",
        type=list_of(string("namespace", NAMESPACE_NAME.pattern)),
        default="none",
        example="[vision]",
    ),
    "environments": Key(
        meaning="Research environments (`/env`): Jupyter or code-server, each with a home that survives it.",
        type=MAPPING,
        default="none",
        keys=ENVIRONMENT_KEYS,
    ),
    "elastic": Key(
        meaning="Deployments whose replicas follow free GPUs ([details](elastic.md)).",
        type=LIST,
        default="none",
        example="[{namespace: serving, deployment: llm, gpus: 2, max: 6, channel: C012ABC}]",
        keys=ELASTIC_KEYS,
    ),
}
