"""The keys of `environments.services` in the configuration file. Pure."""

from bot.config.keys import (
    BOOLEAN,
    MAPPING,
    OBJECT_NAME,
    STRING,
    Key,
    Keys,
    integer,
    list_of,
    string,
)
from bot.config.trial_pods import QUANTITY_TYPE

LIMIT_KEYS: Keys = {
    "per_person": Key(meaning="Maximum services of one person.", type=integer(0), default="2", example="3"),
    "replicas": Key(meaning="Maximum replicas of one service.", type=integer(1), default="2", example="4"),
    "gpus": Key(
        meaning="Maximum GPUs of one service, across all replicas. `environments.limits.gpus_per_person` and "
        "`gpus_per_team` count them, too.",
        type=integer(0),
        default="1",
        example="4",
    ),
    "cpu": Key(
        meaning="Maximum CPU of one service, across all replicas.",
        type=QUANTITY_TYPE,
        default="8",
        example="16",
    ),
    "memory": Key(
        meaning="Maximum memory of one service, across all replicas.",
        type=QUANTITY_TYPE,
        default="32Gi",
        example="64Gi",
    ),
}
SERVICE_KEYS: Keys = {
    "images": Key(
        meaning="Images that services can use: an image with any tag, an image with one tag or digest, or a "
        "prefix that ends in a slash.",
        type=list_of(STRING) | {"minItems": 1},
        example="[ghcr.io/lab/, vllm/vllm-openai]",
        required=True,
    ),
    "volumes": Key(
        meaning="PersistentVolumeClaims in the namespace of environments that services can mount, read-only.",
        type=list_of(string("name", OBJECT_NAME.pattern)),
        default="none",
        example="[models]",
    ),
    "ingress": Key(
        meaning="Give each service an Ingress at `environments.url`. Services have no login.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "limits": Key(meaning="Maximum values; they don't apply to admins.", type=MAPPING, keys=LIMIT_KEYS),
}
