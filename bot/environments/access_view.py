"""The modal with an environment's link and credentials. Pure."""

from bot.environments.record import EnvironmentRecord
from bot.slack.blocks import Block, View, actions, button, context, modal, section
from bot.slack.mrkdwn import code
from k8s.environments import PORT, EnvironmentSpec

TITLE = "Open environment"
OPEN_LINK = "open_environment_link"


def loading() -> View:
    return modal(TITLE, [section("Loading… If nothing appears in a few seconds, no worker is running.")])


def refused(why: str) -> View:
    return modal(TITLE, [section(why)])


def access(record: EnvironmentRecord, spec: EnvironmentSpec, url: str, password: str) -> View:
    """Build the modal: the link if there is an Ingress, else the command line; then the credentials."""
    where = f"env-{spec.name}"
    blocks: list[Block] = [section(f"*{record.name}* is running on {code(record.node)}.")]
    if url:
        blocks.append(actions(button(OPEN_LINK, "Open in browser", url=url, style="primary")))
    else:
        line = f"kubectl -n {spec.namespace} port-forward svc/{where} {spec.server.port}:{PORT}"
        local = f"http://127.0.0.1:{spec.server.port}{spec.path}"
        again = "Port forwarding ends when it is idle or the pod restarts. Then run the command again."
        blocks.append(section(f"1. Run this with your own kubeconfig:\n```{line}```\n2. Open {code(local)}."))
        blocks.append(context(again))
    blocks.append(section(f"*Credentials* (token or password)\n```{password}```"))
    pod = f"pod {code(f'{where}-0')} in {code(spec.namespace)}"
    attach = f"VS Code: in its Kubernetes extension, *Attach* to {pod}."
    note = (
        "Only you see this. Don't share it: it lets others run code as you. Each start has new credentials."
    )
    return modal(TITLE, [*blocks, context(attach), context(note)])
