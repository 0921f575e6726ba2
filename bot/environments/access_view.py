"""The modal with an environment's link and login. Pure."""

from bot.environments.record import EnvironmentRecord
from bot.slack.blocks import Block, View, actions, button, context, modal, section
from bot.slack.mrkdwn import code
from k8s.environments import EnvironmentSpec

TITLE = "Open environment"
OPEN_LINK = "open_environment_link"


def loading() -> View:
    return modal(TITLE, [section("Loading… If nothing appears in a few seconds, no worker is running.")])


def refused(why: str) -> View:
    return modal(TITLE, [section(why)])


def access(record: EnvironmentRecord, spec: EnvironmentSpec, url: str, password: str) -> View:
    """Build the modal: the link if there is an Ingress, else the command line; the login apart from it."""
    where = f"env-{spec.name}"
    blocks: list[Block] = [section(f"*{record.name}* is running on {code(record.node)}.")]
    if url:
        blocks.append(actions(button(OPEN_LINK, "Open in browser", url=url, style="primary")))
    else:
        line = f"kubectl -n {spec.namespace} port-forward svc/{where} {spec.server.port}"
        local = f"http://127.0.0.1:{spec.server.port}{spec.path}"
        again = "It ends when the connection is idle or the pod restarts: run it again."
        blocks.append(
            section(f"1. Run this, with your own kubeconfig:\n```{line}```\n2. Open {code(local)}.")
        )
        blocks.append(context(again))
    blocks.append(section(f"*Login* (token or password)\n```{password}```"))
    attach = (
        f"In VS Code, Kubernetes extension: pod {code(f'{where}-0')} in {code(spec.namespace)}, *Attach*."
    )
    note = "Only you see this. Don't share it: it runs code as you. The next start has a new login."
    return modal(TITLE, [*blocks, context(attach), context(note)])
