"""Fill the modal with an environment's link and credentials, which nothing stores, for its owner only."""

from bot.platform.clients import Clients
from bot.platform.slack.blocks import Block, View, actions, button, context, modal, section
from bot.platform.slack.mrkdwn import code
from bot.text.wording import IF_NOTHING_APPEARS
from bot.workspaces.environments import cluster
from bot.workspaces.environments.record import Environment, EnvironmentRecord, Wanted
from bot.workspaces.environments.spec import login, spec_of, url_of
from k8s.environments import PORT, EnvironmentSpec

TITLE = "Open environment"
LOADING = f"Loading… {IF_NOTHING_APPEARS}"
OPEN_LINK = "open_environment_link"


async def show(view: str, environment: Environment, clients: Clients) -> None:
    """Fill the modal, for the owner only: the caller has checked that. Raises UserError."""
    record = environment.record
    if record.wanted is not Wanted.RUNNING or record.ready_at is None:
        why = f"{code(record.name)} isn't running. The environment's message shows why."
        return await clients.slack.update_view(view, saying(why))
    spec = spec_of(record, clients.config)
    password = login(clients.settings.slack_bot_token.get_secret_value(), environment.uid, record.starts)
    url = url_of(record.name, cluster.configured(clients.config))
    return await clients.slack.update_view(view, access(record, spec, url, password))


def saying(text: str) -> View:
    """Return the modal with only this text: while it loads, or why the environment can't be opened."""
    return modal(TITLE, [section(text)])


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
