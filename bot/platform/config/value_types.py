"""The types of values in the configuration file and in space files, with what each must be: names of objects,
IDs of Slack, quantities, GPU-hours or money, images with a tag. Pure.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core.core_schema import ValidationInfo

from bot.core.budget import AMOUNT, RULE
from bot.platform.config.rules import Matching, Reads, Schema
from bot.platform.config.yaml_reader import Node
from bot.platform.registry.images import ImageName
from bot.text.wording import did_you_mean, shortened
from k8s.quantities import QUANTITY

OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")  # of a Secret, a claim: RFC 1123 subdomain
NAMESPACE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123 label
STRING: Schema = {"type": "string", "minLength": 1}
SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
MEMBER = re.compile(r"[UW][A-Z0-9]{2,}")
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
GROUP = re.compile(r"S[A-Z0-9]{2,}")  # of users
TEAM_MEMBER = re.compile(f"{MEMBER.pattern}|{GROUP.pattern}|{MAIL.pattern}")
CHANNEL = re.compile(r"[CG][A-Z0-9]{2,}")
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_.-]+)+")  # nothing that is special in a shell
FLAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
LABELS: Schema = {"type": "object", "additionalProperties": SCALAR}
QUANTITY_TYPE: Schema = {
    "title": "Kubernetes quantity",
    "type": ["string", "number"],
    "pattern": f"^(?:{QUANTITY.pattern})$",
}


def _as_written(node: Node) -> str:
    """Return a scalar as text; `true` and `1` need no quotes."""
    if isinstance(node.value, dict | list):
        node.error("must be text")
    return node.raw


def _labels(node: Node) -> dict[str, str]:
    return {key: _as_written(each) for key, each in node.mapping().items()}


def _texts(node: Node) -> dict[str, str]:
    return {key: each.text() for key, each in node.mapping().items()}


def read_quantity(node: Node) -> str:
    if not QUANTITY.fullmatch(node.raw):
        node.error(f"must be a Kubernetes quantity such as 4 or 32Gi; got {node.described}")
    return node.raw


def _known_team(name: str, info: ValidationInfo) -> str:
    if info.context and name not in info.context.teams:
        hint = did_you_mean(name, info.context.teams)
        raise ValueError(f'must be a name under `teams`; got "{shortened(name)}".{hint}')
    return name


def _amount(text: str) -> str:
    found = AMOUNT.fullmatch(text)
    if found is None or not float(found[2]):
        raise ValueError(f'must be {RULE.format("$100")}; got "{shortened(text)}"')
    return text


def image_with_tag(image: str) -> str:
    """Return an image that a pod can start from. Raises ValueError."""
    try:
        ImageName.parse(image)
    except ValueError as error:
        raise ValueError(f"must be an image reference ({error})") from None
    if ":" not in image.rpartition("/")[2]:
        raise ValueError("must have a tag or a digest: without one, each start pulls the image again")
    return image


def string(title: str, pattern: str) -> Schema:
    """Return the schema of a string that `pattern` matches as a whole; the reference shows the title."""
    return {"type": "string", "title": title, "pattern": f"^(?:{pattern})$"}


def object_name(what: str) -> Matching:
    """The name of a Kubernetes object; `what`: its kind, with an article."""
    return Matching(OBJECT_NAME, f"the name of {what}")


Text = Annotated[str, Reads(Node.text), WithJsonSchema(STRING)]
Whole = Annotated[int, Reads(Node.whole)]
Number = Annotated[float, Reads(Node.number)]
AsNumber = Annotated[int | float, Reads(Node.number), WithJsonSchema({"type": "number"})]  # 1 stays whole
Flag = Annotated[bool, Reads(Node.flag)]
Written = Annotated[str, Reads(_as_written), WithJsonSchema(SCALAR)]
AmountText = Annotated[
    Written,
    AfterValidator(_amount),
    WithJsonSchema(
        {
            "title": "GPU-hours, or money",
            "type": ["number", "string"],
            "pattern": f"^(?:{AMOUNT.pattern})$",
        }
    ),
]
Labels = Annotated[dict[str, str], Reads(_labels), WithJsonSchema(LABELS)]
Texts = Annotated[
    dict[str, str], Reads(_texts), WithJsonSchema({"type": "object", "additionalProperties": STRING})
]
Quantity = Annotated[str, Reads(read_quantity), WithJsonSchema(QUANTITY_TYPE)]
Namespace = Annotated[
    Text, Matching(NAMESPACE_NAME, "a namespace name (lowercase letters, digits, dashes)", "namespace")
]
Member = Annotated[
    Text,
    Matching(
        MEMBER, "a Slack member ID such as U012ABC (Profile > More > Copy member ID)", "Slack member ID"
    ),
]
TeamMember = Annotated[
    Text,
    Matching(
        TEAM_MEMBER,
        "a Slack member ID such as U012ABC, a user group's ID such as S012ABC, or an email address",
        "Slack member ID or user group ID or email address",
    ),
]
Channel = Annotated[
    Text,
    Matching(CHANNEL, "a Slack channel ID such as C012ABC (at the end of its details)", "Slack channel ID"),
]
TeamName = Annotated[
    Text, Matching(NAMESPACE_NAME, "the name of a team", "team"), AfterValidator(_known_team)
]
Claim = Annotated[Text, object_name("a PersistentVolumeClaim")]
SecretName = Annotated[
    Text, Matching(OBJECT_NAME, "the name of a Kubernetes Secret, not its contents", shown=False)
]
FlagName = Annotated[Text, Matching(FLAG, "the name of a flag without its dashes, such as output_dir")]
Variable = Annotated[
    Text,
    Matching(VARIABLE, "the name of an environment variable, not its value", "variable", shown=False),
]
