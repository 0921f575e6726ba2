"""`environments:` of the configuration."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.environments import EnvironmentIdle, EnvironmentImage
from bot.platform.config.policy import parse_config
from tests.cases import cases

HEAD = "repositories:\n  digits: {url: https://git.example/digits.git}\nenvironments:\n"
LEAST = "  namespace: environments\n  images: {jupyter: {image: quay.io/jupyter/base:1}}\n"


def read(text):
    return parse_config(HEAD + text, "c.yaml").environments


def test_namespace_and_an_image_are_enough():
    found = read(LEAST)
    assert found.images == (EnvironmentImage(name="jupyter", image="quay.io/jupyter/base:1"),)
    assert (found.sizes[0].name, found.home, found.max_home, found.url) == ("m", "20Gi", "100Gi", "")
    assert found.idle == EnvironmentIdle(hours=2.0, stop=False, notice_minutes=30)
    assert (found.limits.per_person, found.limits.gpus, found.limits.gpus_per_team) == (2, 1, None)


@cases(
    ("text", "error"),
    [
        ("  images: {a: {image: base:1}}\n", "namespace"),
        ("  namespace: environments\n  images: {}\n", "must have from 1 to 100 entries; got 0"),
        ("  namespace: environments\n  images: {a: {image: base}}\n", "must have a tag or a digest"),
        (
            "  namespace: environments\n  images: {A: {image: base:1}}\n",
            "name must have at most 30 lowercase",
        ),
        (LEAST + "  home: 2Ti\n", "home (2Ti) must be at most max_home (100Gi)"),
        (LEAST + "  home: 20GB\n", 'must be a size such as 20Gi; got "20GB"'),
        (LEAST + "  url: https://env.example/\n", "must be a URL with one {name} that ends in a slash"),
        (LEAST + '  url: "https://{name}.env.example/{name}/"\n', "must be a URL with one {name}"),
        (LEAST + '  url: "https://{name}}.env.example/"\n', "must be a URL with one {name}"),
        (LEAST + '  url: "http://10.0.0.7:80/{name}/"\n', "must have a host name: an Ingress rejects IP"),
        (LEAST + "  sizes: {m: {cpu: many, memory: 1Gi}}\n", "must be a Kubernetes quantity"),
        (LEAST + "  limits: {gpus: -1}\n", "must be at least 0; got -1"),
        (LEAST + "  idle: {hours: 25}\n", "must be from 0 to 24; got 25"),
        (LEAST + "  idle: {notice_minutes: 1}\n", "must be from 5 to 1,440; got 1"),
        (LEAST + "  colour: blue\n", "colour"),
    ],
)
def test_mistake_is_reported(text, error):
    with pytest.raises(UserError) as caught:
        read(text)
    assert error in str(caught.value)


def test_code_server_needs_a_host_of_its_own():
    images = "  images: {code: {image: 'codercom/code-server:4', server: code-server}}\n"
    path = '  url: "https://env.example/{name}/"\n'
    with pytest.raises(UserError) as caught:
        read("  namespace: environments\n" + images + path)
    assert "must have {name} in the host, and no path: code (code-server) needs /" in str(caught.value)
    assert read(
        "  namespace: environments\n" + images + path.replace("env.example/{name}", "{name}.env.example")
    )
