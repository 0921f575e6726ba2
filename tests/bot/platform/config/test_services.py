"""`environments.services` of the configuration."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.environments import ServiceConfig, ServiceLimits
from tests.bot.platform.config.test_environments import LEAST, read
from tests.cases import cases


def services(text):
    return read(f"{LEAST}  services: {text}\n").services


def test_images_are_enough_and_all_keys_are_read():
    assert read(LEAST).services is None
    assert services("{images: [ghcr.io/lab/]}") == ServiceConfig(images=("ghcr.io/lab/",))
    limits = "limits: {per_person: 1, replicas: 4, gpus: 8, cpu: 64, memory: 1Ti}"
    found = read(
        f"{LEAST}  url: 'https://{{name}}.env.example/'\n"
        f"  services: {{images: [a:1], volumes: [models], ingress: true, {limits}}}\n"
    ).services
    assert found == ServiceConfig(
        images=("a:1",),
        volumes=("models",),
        ingress=True,
        limits=ServiceLimits(per_person=1, replicas=4, gpus=8, cpu="64", memory="1Ti"),
    )


@cases(
    ("text", "error"),
    [
        ("{}", "missing key: images"),
        ("{images: []}", "must have at least one entry"),
        ("{images: ['/']}", "must be an image, or a prefix that ends in a slash"),
        ("{images: ['']}", "must be text"),
        ("{images: [a b]}", "must be an image, or a prefix that ends in a slash"),
        ("{images: [a/], ingress: true}", "ingress: true needs {name} in the host of environments.url"),
        (
            '{images: [a/], ingress: true}\n  url: "https://env.example/{name}/"',
            "ingress: true needs {name} in the host of environments.url",
        ),
        ("{images: [a/], volumes: [A_b]}", "must be the name of a PersistentVolumeClaim"),
        ("{images: [a/], limits: {replicas: 0}}", "must be at least 1; got 0"),
        ("{images: [a/], limits: {memory: lots}}", "must be a Kubernetes quantity"),
        ("{images: [a/], limit: {}}", "Did you mean limits?"),
    ],
)
def test_mistake_is_reported(text, error):
    with pytest.raises(UserError) as caught:
        services(text)
    assert error in str(caught.value)


@cases(
    ("image", "allowed"),
    [
        ("ghcr.io/lab/llm:3", True),
        ("ghcr.io/lab/a/b@sha256:0", True),
        ("ghcr.io/labevil/llm:3", False),
        ("vllm/vllm-openai:v1", True),
        ("vllm/vllm-openai@sha256:0", True),
        ("vllm/vllm-openai-evil:v1", False),
        ("vllm/vllm-openai/evil:v1", False),
        ("cache:1", True),
        ("cache:5000/evil:1", False),
        ("nginx:1.27", True),
        ("nginx:1.27-evil", False),
        ("nginx:1.2", False),
    ],
)
def test_images_match_as_a_whole_or_below_a_prefix(image, allowed):
    config = ServiceConfig(images=("ghcr.io/lab/", "vllm/vllm-openai", "cache", "nginx:1.27"))
    assert config.allows(image) is allowed
