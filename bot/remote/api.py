"""The calls of the HTTP API as methods, for notebooks (results as a pandas DataFrame), for scripts, and for
the command line.

`Sweepbot` has a method for each operation of the OpenAPI document, with the same parameters; `sweep` is a
full name such as `lr-brave-otter`. Methods return the answer, parsed. They raise UserError with the server's
sentence, and UnavailableError if it doesn't answer for about half a minute.
"""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from bot.core.errors import UserError
from bot.remote.answers import ANOTHER
from bot.remote.client import Client, Sweep, needs_person, of
from bot.remote.credentials import LOG_IN, Credentials, current
from bot.text.masking import Mask, secrets_in_environment
from bot.text.terminal import without_markup

if TYPE_CHECKING:
    from pandas import DataFrame

PAGE = 200  # sweeps in one answer
CLEAR = "\r\x1b[K"  # the line of the terminal


def connect(url: str = "", token: str = "") -> "Sweepbot":
    """Return the API; without arguments, with the login of the environment or `sweepbot login`.

    Raises UserError.
    """
    credentials = Credentials(url.rstrip("/"), token) if url or token else current(os.environ)
    if credentials is None:
        raise UserError(f"You aren't logged in. {LOG_IN}")
    return Sweepbot(credentials, say)


def say(sentence: str) -> None:
    """Print a sentence for people, apart from the output."""
    text = without_markup(Mask(secrets_in_environment(os.environ))(sentence))
    print(f"{CLEAR if sys.stderr.isatty() else ''}{text}", file=sys.stderr)


class Sweepbot(Client):
    def plan(self, command: str) -> dict[str, Any]:
        """Return what a sweep would build, run, and cost, without starting it."""
        return self.post("/plans", {"command": command})

    def launch(self, command: str, key: str = "") -> Sweep:
        """Start a sweep; `command` is what follows `/sweep` in Slack. The same key is the same sweep."""
        return self.post("/sweeps", {"command": command}, key or uuid4().hex)

    def list(self, limit: int = PAGE, cursor: str = "", *, active: bool = False) -> Iterator[Sweep]:
        """Yield your sweeps and all running ones, the newest first. `limit`: in one answer."""
        return self.pages("/sweeps", "sweeps", limit=limit, active=active, cursor=cursor)

    def show(self, sweep: str, wait: int = 0) -> Sweep:
        """Return the sweep; with `wait`, at its end, when it needs a person, or after so many seconds."""
        return self.json(of(sweep), wait=wait)

    def wait(self, sweep: str) -> Sweep:
        """Return the sweep once it has ended, or, with None as `ended`, waits for a person's decision."""
        return next(found for found in self.events(sweep) if found["ended"] or needs_person(found))

    def results(self, sweep: str, format: Literal["json", "csv"] = "json") -> Any:  # noqa: A002
        """Return the trials, the best first; as CSV, a text with all columns."""
        path = f"{of(sweep)}/results"
        return self.csv(path, format=format) if format == "csv" else self.json(path)["trials"]

    def frame(self, sweep: str) -> "DataFrame":
        """Return the trials as a pandas DataFrame, the best first.

        Parameters are columns, with numbers where all of their values are, and None where a trial hasn't the
        parameter. One that is named like another column gets the prefix `params.`.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - only this needs it
        except ModuleNotFoundError:
            raise UserError("A DataFrame needs pandas. *Fix:* Run `pip install pandas`.") from None
        trials = self.results(sweep)
        found = pd.DataFrame(trials, columns=["name", "state", "value", "started", "ended"])
        found["value"] = found["value"].astype(float)  # also if no trial has one
        for time in ("started", "ended"):
            try:
                found[time] = pd.to_datetime(found[time], utc=True, format="ISO8601")
            except ValueError:
                raise UserError(f'The answer has an unexpected "{time}": {ANOTHER}') from None
        for name in dict.fromkeys(name for each in trials for name in each["parameters"]):
            texts = pd.Series([each["parameters"].get(name) for each in trials], dtype=object)
            numbers = pd.to_numeric(texts, errors="coerce")
            is_number = numbers.notna().equals(texts.notna())
            while name in found:
                name = f"params.{name}"  # noqa: PLW2901
            found[name] = numbers if is_number else texts
        return found

    def logs(self, sweep: str, trial: str = "") -> dict[str, Any]:
        """Return the end of a log: of a trial, by default the most interesting one, or of the build."""
        return self.json(f"{of(sweep)}/logs", trial=trial)

    def command(self, sweep: str, command: str, key: str = "") -> dict[str, Any]:
        """Send a command such as `cancel` or `extend trials=30`. Its effect appears in the sweep."""
        return self.post(f"{of(sweep)}/commands", {"command": command}, key or uuid4().hex)

    def check_space(self, space: str, options: str = "") -> dict[str, Any]:
        """Return whether the text of a space file is valid, and each error with its line."""
        return self.post("/spaces/check", {"space": space, "options": options})

    def compare(self, sweeps: str) -> dict[str, Any]:
        """Compare 2 to 6 ended sweeps, with commas between their names."""
        return self.json("/comparison", sweeps=sweeps)

    def history(self, space: str) -> dict[str, Any]:
        """Return a space's ended sweeps with their best values, the latest first."""
        return self.json("/history", space=space)
