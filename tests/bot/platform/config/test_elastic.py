"""`elastic:` of the configuration file."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.config.policy import parse_config
from tests.cases import cases

HEAD = "repositories: {digits: {url: https://github.com/acme/digits.git}}\nelastic:"
LLM = "{namespace: serving, deployment: llm, gpus: 2, max: 6, channel: C012ABC}"


def changed(old, new):
    return f"[{LLM.replace(old, new)}]"


def parsed(text):
    return parse_config(f"{HEAD} {text}", "config.yaml").elastic


def test_elastic_deployment_has_defaults():
    assert parsed(f"[{LLM}]") == (
        ElasticDeployment(namespace="serving", deployment="llm", gpus=2, max=6, channel="C012ABC"),
    )
    assert parse_config(HEAD.partition("\n")[0], "config.yaml").elastic == ()


@cases(
    ("text", "error"),
    [
        ("{llm: 1}", "elastic: must be a list; got a mapping"),
        (f"[{LLM}, {LLM}]", "elastic[1]: duplicate Deployment serving/llm"),
        ("[{}]", "elastic[0]: missing key: namespace"),
        (changed("gpus: 2", "gpus: -1"), "elastic[0].gpus: must be from 0 to 1,000; got -1"),
        (
            changed("max: 6", "max: 2, min: 3"),
            "elastic[0].min: must be at most max (2); got 3",
        ),
        (changed("gpus: 2", "gpus: two"), 'elastic[0].gpus: must be a number; got "two"'),
        (changed("llm", "LLM"), 'must be the name of a Deployment; got "LLM"'),
        (
            changed("serving", "a.b"),
            'must be a namespace name (lowercase letters, digits, dashes); got "a',
        ),
        (changed("C012ABC", "'#ml'"), "must be a Slack channel ID"),
        (f"[{', '.join([LLM] * 21)}]", "elastic: must have at most 20 entries; got 21"),
    ],
)
def test_elastic_with_an_error_names_the_key_and_the_rule(text, error):
    with pytest.raises(UserError) as caught:
        parsed(text)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("namespace", "pod", "owned"),
    [
        ("serving", "llm-6d5f9c7b8-x2x4z", True),
        ("other", "llm-6d5f9c7b8-x2x4z", False),
        ("serving", "llm-x-0", False),
        ("serving", "llm-large-6d5f9c7b8-x2x4z", False),
        ("serving", "llm", False),
    ],
)
def test_elastic_deployment_knows_its_pods_by_name(namespace, pod, owned):
    one = ElasticDeployment(namespace="serving", deployment="llm", gpus=1, max=1, channel="C1")
    assert one.owns(namespace, pod) is owned


@pytest.mark.parametrize("length", [45, 46, 47, 50, 57, 58, 80])
def test_elastic_deployment_with_a_long_name_knows_its_pods(length):
    """Kubernetes cuts what a pod's name is generated from to 58 characters."""
    name = "llm-" + "x" * (length - 4)
    one = ElasticDeployment(namespace="serving", deployment=name, gpus=1, max=1, channel="C1")
    pod = f"{name}-6d5f9c7b8f-"[:58] + "x2x4z"
    assert one.owns("serving", pod)
    assert not one.owns("serving", pod.replace("llm", "asr"))
    assert not one.owns("serving", pod[:-1])
    assert not one.owns("serving", f"{pod[:-5]}a1o-1")
