"""Open sessions with API servers, by kubeconfig or as the pod's service account.

The official client is imported on the first call: it takes a second of CPU time, which `serve` and `plan` do
without.
"""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

USER_AGENT = "sweepbot"


def in_cluster() -> "ApiClient":
    """Connect as the pod's service account; the client reads its token again when it is renewed."""
    from kubernetes.aio import config  # noqa: PLC0415
    from kubernetes.aio.client import ApiClient, Configuration  # noqa: PLC0415

    configuration = Configuration()
    config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    session = ApiClient(configuration)
    session.user_agent = USER_AGENT
    return session


async def by_kubeconfig(file: str, context: str = "") -> "ApiClient":
    """Connect by a kubeconfig file. A token of an exec plugin is renewed until the session is closed.

    Raises kubernetes.aio.config.ConfigException if the file, or the context, isn't there or is incomplete.
    """
    from kubernetes.aio import config  # noqa: PLC0415
    from kubernetes.aio.client import ApiClient, Configuration  # noqa: PLC0415

    configuration = Configuration()
    loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
        file, context=context or None, client_configuration=configuration, persist_config=False
    )

    class Session(ApiClient):
        """Stops renewing the token when it is closed."""

        async def close(self) -> Any:
            renewal.cancel()
            return await super().close()  # type: ignore[no-untyped-call]

    renewal = asyncio.create_task(config.refresh_token(loader, configuration))  # type: ignore[no-untyped-call]
    session = Session(configuration)
    session.user_agent = USER_AGENT
    return session
