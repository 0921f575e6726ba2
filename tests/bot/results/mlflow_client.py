"""MLflow, imported by the tests that need it: the import takes over a second in each process of the tests."""

from types import SimpleNamespace
from typing import Any


def mlflow_client(url: str) -> Any:
    from mlflow import MlflowClient  # noqa: PLC0415

    return MlflowClient(url)


def entities() -> SimpleNamespace:
    """Return the classes of mlflow.entities, and PagedList."""
    from mlflow import entities  # noqa: PLC0415
    from mlflow.store.entities import PagedList  # noqa: PLC0415

    names = ("Experiment", "ExperimentTag", "Metric", "Run", "RunData", "RunInfo", "RunTag")
    return SimpleNamespace(PagedList=PagedList, **{name: getattr(entities, name) for name in names})
