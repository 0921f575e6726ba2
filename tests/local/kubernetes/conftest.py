"""A cluster to talk to: its store, its API server, and the official client."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from kubernetes.aio import client

from local.kubernetes.apiserver.api import TOKEN, ApiServer, serve
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers


@pytest.fixture
def store() -> Store:
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kaniko"}})
    return store


@pytest.fixture
async def server(store: Store) -> AsyncIterator[ApiServer]:
    server = await serve(store)
    yield server
    await server.close()


@pytest.fixture
async def controllers(store: Store) -> AsyncIterator[Controllers]:
    """Job controller and garbage collector; a failed pod is replaced at once."""
    controllers = Controllers(store, backoff=0)
    controllers.start()
    yield controllers
    await controllers.close()


@pytest.fixture
async def http(server: ApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    """Bare HTTP with the right token."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as session:
        yield session


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[client.ApiClient]:
    configuration = client.Configuration()
    configuration.host = server.url
    configuration.api_key = {"authorization": f"Bearer {TOKEN}"}
    async with client.ApiClient(configuration) as api:
        yield api
