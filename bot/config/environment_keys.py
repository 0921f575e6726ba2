"""The keys of `environments:` in the configuration file. Pure."""

import re

from bot.config.keys import (
    BOOLEAN,
    MAPPING,
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
from bot.config.service_keys import SERVICE_KEYS
from bot.config.trial_pods import QUANTITY_TYPE
from bot.core.errors import UserError
from bot.text.wording import shortened

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")  # of an environment, a home, an image, and a size
STORAGE = re.compile(r"([1-9][0-9]{0,5})(Mi|Gi|Ti)")  # the size of a home
BYTES = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
JUPYTER, CODE_SERVER = "jupyter", "code-server"
URL = re.compile(r"https?://[A-Za-z0-9.{}-]+(:\d{1,5})?/([A-Za-z0-9._~{}/-]*/)?")
MAX_CHOICES = 100  # options of a Slack menu
STORAGE_TYPE: Schema = string("size", STORAGE.pattern)
IMAGE_KEYS: Keys = {
    "image": Key(
        meaning="Image reference, with a tag or a digest.",
        type=STRING,
        example="quay.io/jupyter/pytorch-notebook:cuda12-2026-11-02",
        required=True,
    ),
    "server": Key(
        meaning="What listens in it: `jupyter` (port 8888) or `code-server` (port 8080).",
        type=one_of(JUPYTER, CODE_SERVER),
        default=JUPYTER,
        example=CODE_SERVER,
    ),
    "command": Key(
        meaning="Command of an image that isn't built like Jupyter Docker Stacks.",
        type=list_of(STRING),
        default="the image's",
        example="[jupyter, lab]",
    ),
}
SIZE_KEYS: Keys = {
    "cpu": Key(meaning="Requested CPU.", type=QUANTITY_TYPE, example="4", required=True),
    "memory": Key(
        meaning="Requested memory, which is also the limit; a quarter of it can be `/dev/shm`.",
        type=QUANTITY_TYPE,
        example="32Gi",
        required=True,
    ),
}
LIMIT_KEYS: Keys = {
    "per_person": Key(
        meaning="Maximum environments of one person.", type=integer(0), default="2", example="3"
    ),
    "per_team": Key(
        meaning="Maximum environments of one team.", type=integer(0), default="no limit", example="20"
    ),
    "gpus": Key(meaning="Maximum GPUs of one environment.", type=integer(0), default="1", example="2"),
    "gpus_per_person": Key(
        meaning="Maximum GPUs of one person's running environments.",
        type=integer(0),
        default="1",
        example="2",
    ),
    "gpus_per_team": Key(
        meaning="Maximum GPUs of one team's running environments.",
        type=integer(0),
        default="no limit",
        example="8",
    ),
}
IDLE_KEYS: Keys = {
    "hours": Key(
        meaning="Hours without use before a warning. 0: never.",
        type=number(0, 24),
        default="2",
        example="4",
    ),
    "stop": Key(
        meaning="Stop an environment that stays idle after its warning.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "notice_minutes": Key(
        meaning="Minutes from the warning to the stop.", type=integer(5, 1440), default="30", example="60"
    ),
}
ENVIRONMENT_KEYS: Keys = {
    "namespace": Key(
        meaning="Namespace of environments only: not `K8S_NAMESPACE`, because pods can mount its Secrets.",
        type=string("namespace", NAMESPACE_NAME.pattern),
        example="environments",
        required=True,
    ),
    "images": Key(
        meaning="Images by name. The first is the default.",
        type=named(NAME) | {"minProperties": 1},
        example="{jupyter: {image: quay.io/jupyter/pytorch-notebook:cuda12-2026-11-02}}",
        required=True,
        keys=IMAGE_KEYS,
    ),
    "sizes": Key(
        meaning="Sizes by name. The first is the default.",
        type=named(NAME),
        default="{m: {cpu: 2, memory: 8Gi}}",
        example="{m: {cpu: 4, memory: 16Gi}, l: {cpu: 8, memory: 64Gi}}",
        keys=SIZE_KEYS,
    ),
    "home": Key(meaning="Size of a new home.", type=STORAGE_TYPE, default="20Gi", example="50Gi"),
    "max_home": Key(meaning="Maximum size of a home.", type=STORAGE_TYPE, default="100Gi", example="1Ti"),
    "storage_class": Key(
        meaning="StorageClass of homes.",
        type=string("name", OBJECT_NAME.pattern),
        default="the cluster's",
        example="cephfs",
    ),
    "shared_homes": Key(
        meaning="Create homes as ReadWriteMany, so that no node has to release them first.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "url": Key(
        meaning="URL of an environment, with `{name}` in the host or the path, for an Ingress. Without it, "
        "people use `kubectl port-forward`.",
        type=string("URL", URL.pattern),
        default="none",
        example='"https://env.example/{name}/"',
    ),
    "ingress_class": Key(
        meaning="IngressClass of environments.",
        type=string("name", OBJECT_NAME.pattern),
        default="the cluster's",
        example="nginx",
    ),
    "ingress_annotations": Key(
        meaning="Annotations of the Ingress, such as timeouts for WebSockets.",
        type={"type": "object", "additionalProperties": STRING},
        default="none",
        example='{nginx.ingress.kubernetes.io/proxy-read-timeout: "3600"}',
    ),
    "limits": Key(meaning="Maximum values; they don't apply to admins.", type=MAPPING, keys=LIMIT_KEYS),
    "idle": Key(meaning="What happens to unused environments.", type=MAPPING, keys=IDLE_KEYS),
    "services": Key(
        meaning="Services that people can run with `/env service`. Without it, they can't.",
        type=MAPPING,
        default="none",
        example="{images: [ghcr.io/lab/]}",
        keys=SERVICE_KEYS,
    ),
}


def checked_name(name: str) -> str:
    """Raises UserError for a name that an environment can't have."""
    if NAME.fullmatch(name):
        return name
    rule = "at most 30 lowercase letters, digits, and dashes, and start with a letter"
    raise UserError(f'The name must have {rule}; got "{shortened(name)}".', field="name")
