"""MLflow, imported by the tests that need it: the import takes over a second in each process of the tests."""

from types import SimpleNamespace
from typing import Any

from bot.sweep.results import run_writer
from bot.sweep.results.run_search import Search
from bot.sweep.results.run_writer import RunWriter


def mlflow_client(url: str) -> Any:
    from mlflow import MlflowClient  # noqa: PLC0415

    return MlflowClient(url)


def entities() -> SimpleNamespace:
    """Return the classes of mlflow.entities, and PagedList."""
    from mlflow import entities  # noqa: PLC0415
    from mlflow.store.entities import PagedList  # noqa: PLC0415

    names = ("Experiment", "ExperimentTag", "Metric", "Run", "RunData", "RunInfo", "RunTag")
    return SimpleNamespace(PagedList=PagedList, **{name: getattr(entities, name) for name in names})


def file_search(store: str) -> Search:
    """Return the search of MLflow's store of files, which has no REST API."""

    def search(experiments: Any, where: str, size: int, token: str) -> tuple[list[dict[str, Any]], str]:
        client = run_writer.tracking_client(store)
        page = client.search_runs(experiments, where, max_results=size, page_token=token or None)
        return [_raw(run) for run in page], page.token or ""

    return search


def file_writer(store: str) -> RunWriter:
    return RunWriter(store, "http://ui", file_search(store))


def _raw(run: Any) -> dict[str, Any]:
    """Return a run as the REST API does."""
    info, data = dict(run.info), {}
    for kind in ("tags", "params", "metrics"):
        data[kind] = [{"key": key, "value": value} for key, value in getattr(run.data, kind).items()]
    return {"info": info, "data": data}


async def nothing():
    """Return no curves."""
    return {}
