"""The command `results`, which reads an ended sweep's results from the HTTP API or the cluster, and prints a
table, CSV, or JSON.
"""

import argparse
import asyncio
import csv
import json
import os
from collections.abc import Iterable, Sequence
from io import StringIO

from bot.core.errors import UnknownNameError, UserError
from bot.platform.config.settings import PlanSettings
from bot.remote.api import connect
from bot.remote.client import MAX_ANSWER
from bot.remote.credentials import current
from bot.sweep.results.csv_file import csv_text, json_text, ordered, values
from bot.sweep.results.models import SweepResults
from bot.sweep.results.store import ResultsStore
from bot.text.masking import Mask, secrets_in_environment
from bot.text.number_format import as_csv, short
from bot.text.terminal import aligned
from bot.text.wording import printable, shortened
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError

CELL_MAX = 40  # characters in a table
COLUMNS_HIDDEN = {"node", "run_url", "ended", "image"}  # in a table


def print_results(arguments: argparse.Namespace) -> int:
    """Print the results of a sweep. Raises UserError."""
    if not arguments.namespace and current(os.environ):
        text = _from_api(arguments.sweep, arguments.format)
    else:
        namespace = arguments.namespace or PlanSettings.read().k8s_namespace
        text = FORMATS[arguments.format](asyncio.run(_read(arguments.sweep, namespace)))
    print(Mask(secrets_in_environment(os.environ))(text), end="" if text.endswith("\n") else "\n")
    return 0


def _from_api(sweep: str, form: str) -> str:
    api = connect()
    if form == "json":
        return json.dumps({"trials": api.results(sweep)}, indent=2)
    lines = StringIO(api.results(sweep, "csv"), newline="")
    csv.field_size_limit(MAX_ANSWER)
    rows = [[printable(cell) for cell in row] for row in csv.reader(lines)]
    if not rows:
        raise UnknownNameError(f"No results of {sweep}. Results are stored when a sweep ends.")
    if form == "csv":
        return as_csv(rows)
    shown = [index for index, name in enumerate(rows[0]) if name not in COLUMNS_HIDDEN]
    return aligned([_cell(short(cell)) for cell in _at(row, shown)] for row in rows)


def _at(row: Sequence[str], columns: Iterable[int]) -> list[str]:
    """Return the cells of these columns; rows of statistics are shorter than the others."""
    return [row[index] if index < len(row) else "" for index in columns]


async def _read(sweep: str, namespace: str) -> SweepResults:
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415  see KubernetesClient.connect

    try:
        cluster = await KubernetesClient.connect()
    except ConfigException as error:
        raise UserError(
            f"No access to a cluster: {error}. *Fix:* Log in with sweepbot login URL, or set KUBECONFIG."
        ) from None
    try:
        found = await ResultsStore(cluster, namespace).get(sweep)
    except (ApiError, UnreachableError, ValueError) as error:
        raise UserError(f"The results of {sweep} can't be read: {error}") from None
    finally:
        await cluster.close()
    if found is None:
        raise UnknownNameError(
            f"No results of {sweep} in namespace {namespace}. Results are stored when a sweep ends. "
            "*Fix:* Give the sweep's full name, and its namespace with --namespace."
        )
    return found


def as_table(results: SweepResults) -> str:
    """Return aligned columns for a terminal; unknown values are empty."""
    rows = [values(results, trial) for trial in ordered(results)]
    names = [name for name in (rows[0] if rows else ()) if name not in COLUMNS_HIDDEN]
    lines = aligned([names, *([_cell(row[name]) for name in names] for row in rows)])
    return f"{lines}\n{results.omitted} more trials weren't stored." if results.omitted else lines


def _cell(value: object) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else printable(str(value))
    return shortened(text, CELL_MAX)


FORMATS = {"table": as_table, "csv": csv_text, "json": json_text}
