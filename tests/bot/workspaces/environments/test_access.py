"""The ways to an environment that the dialog shows: a link by host or path, or kubectl and VS Code."""

import pytest

from bot.workspaces.environments.requests import Verb
from tests.bot.workspaces.environments.world import NAMESPACE, World


async def opened(redis, **changes):
    """Return the dialog and the Ingress of a running environment."""
    image = changes.pop("image", "jupyter")
    async with World(redis, **changes).started() as world:
        await world.ask(Verb.START, image=image)
        await world.ask(Verb.OPEN, view="V0")
        assert "`lab` isn't running" in str(world.slack.views["V0"])
        await world.ready()
        await world.ask(Verb.OPEN, view="V1")
        ingress = world.kubernetes.get("Ingress", NAMESPACE, "env-lab")
        return world.slack.views["V1"]["blocks"], ingress


@pytest.mark.parametrize(
    ("url", "link", "rule"),
    [
        ("https://{name}.env.example/", "https://lab.env.example/", ("lab.env.example", "/")),
        ("https://env.example/{name}/", "https://env.example/lab/", ("env.example", "/lab/")),
    ],
)
async def test_url_is_the_link_and_the_rule_of_the_ingress(redis, url, link, rule):
    blocks, ingress = await opened(redis, url=url)
    assert blocks[1]["elements"][0]["url"] == link
    [found] = ingress["spec"]["rules"]
    assert (found["host"], found["http"]["paths"][0]["path"]) == rule


@pytest.mark.parametrize(("image", "port"), [("jupyter", 8888), ("code", 8080)])
async def test_without_a_url_the_dialog_shows_how_to_forward_the_port(redis, image, port):
    blocks, ingress = await opened(redis, url="", image=image)
    assert ingress is None
    text = blocks[1]["text"]["text"]
    assert f"```kubectl -n {NAMESPACE} port-forward svc/env-lab {port}:80```" in text
    assert f"Open `http://127.0.0.1:{port}/`." in text


async def test_dialog_names_the_pod_for_vs_code(redis):
    blocks, _ = await opened(redis)
    assert f"*Attach* to pod `env-lab-0` in `{NAMESPACE}`" in str(blocks)
