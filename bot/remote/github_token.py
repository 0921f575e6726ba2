"""The token of a GitHub job, which needs no stored secret: GitHub gives it to jobs with `id-token: write`."""

import json
from collections.abc import Mapping
from http.client import HTTPException
from time import monotonic, sleep
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from bot.core.errors import UserError
from k8s.retry import Retry

URL, SECRET = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
RENEWED = 240.0  # seconds; each is valid for a few minutes
TIMEOUT = 30.0  # seconds
RETRY = Retry(base=1, factor=2, max=16, jitter=0.5, attempts=6)
MAX_ANSWER = 64 * 1024  # bytes


class JobCredentials:
    """As Credentials, with a new token in time. `url`: of the API, which is the tokens' audience, too."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.url = url
        self._source, self._secret = environ[URL], environ[SECRET]
        self._token, self._since = "", float("-inf")

    @property
    def token(self) -> str:
        """Raises UserError."""
        if monotonic() - self._since > RENEWED:
            self._token, self._since = self._new(), monotonic()
        return self._token

    def _new(self) -> str:
        address = f"{self._source}&audience={quote(self.url, safe='')}"
        headers = {"Authorization": f"Bearer {self._secret}", "Accept": "application/json"}
        failures = 0
        while True:
            try:
                request = Request(address, headers=headers)  # noqa: S310 - from the job's own environment
                with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
                    return str(json.loads(answer.read(MAX_ANSWER))["value"])
            except (OSError, HTTPException, ValueError, TypeError, KeyError) as error:
                failures += 1
                if RETRY.exhausted(failures) or not _is_outage(error):
                    fix = "*Fix:* Give the job `permissions: id-token: write`, or set SWEEPBOT_TOKEN."
                    raise UserError(f"GitHub gave the job no token ({error}). {fix}") from None
            sleep(RETRY.seconds(failures))


def _is_outage(error: Exception) -> bool:
    """Return whether GitHub can answer soon: a job that follows a sweep for hours asks often."""
    if isinstance(error, HTTPError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, OSError | HTTPException)


def is_job(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(URL) and environ.get(SECRET))
