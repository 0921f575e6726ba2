"""Where the command line keeps the URL of Sweepbot's API and a person's token, or SWEEPBOT_URL and
SWEEPBOT_TOKEN, and what it says if one is missing or wrong; the token that GitHub gives a job.
"""

import json
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from bot.core.errors import UserError
from k8s.retry import Retry

FILE = Path("~/.config/sweepbot/credentials.json")
TOKEN = re.compile(r"swb_[\w-]{43}|([\w-]{10,12000}\.){2}[\w-]{10,2000}", re.ASCII)  # or a CI job's: a JWT
URL = re.compile(r"https?://[!-~]+")
JOB_URL, JOB_SECRET = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
RENEWED = 240.0  # seconds; each token of a job is valid for a few minutes
TIMEOUT = 30.0  # seconds
MAX_TOKEN = 64 * 1024  # bytes of GitHub's answer
RETRY = Retry(base=1, factor=2, max=16, jitter=0.5, attempts=6)  # for half a minute, as a rollout takes
LOG_IN = "*Fix:* Type `/sweep token` in Slack, then `sweepbot login URL`."


@dataclass(frozen=True)
class Credentials:
    url: str  # without a slash at its end
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        """Raise UserError if the URL or the token can't be one."""
        check_url(self.url)
        if not TOKEN.fullmatch(self.token):
            raise UserError(f"The token must be swb_ and 43 characters, as Slack shows it. {LOG_IN}")


class JobCredentials:
    """As Credentials, of a GitHub job, which needs no stored secret: GitHub gives tokens to jobs with
    `id-token: write`, each valid for a few minutes. `url`: of the API, which is the tokens' audience, too.
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.url = url
        self._source, self._secret = environ[JOB_URL], environ[JOB_SECRET]
        self._token, self._since = "", float("-inf")

    @property
    def token(self) -> str:
        """Raises UserError."""
        if time.monotonic() - self._since > RENEWED:
            self._token, self._since = self._new(), time.monotonic()
        return self._token

    def _new(self) -> str:
        address = f"{self._source}&audience={quote(self.url, safe='')}"
        headers = {"Authorization": f"Bearer {self._secret}", "Accept": "application/json"}
        failures = 0
        while True:
            try:
                request = Request(address, headers=headers)  # noqa: S310 - from the job's own environment
                with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
                    return str(json.loads(answer.read(MAX_TOKEN))["value"])
            except (OSError, HTTPException, ValueError, TypeError, KeyError) as error:
                failures += 1
                if RETRY.exhausted(failures) or not _is_outage(error):
                    fix = "*Fix:* Give the job `permissions: id-token: write`, or set SWEEPBOT_TOKEN."
                    raise UserError(f"GitHub gave the job no token ({error}). {fix}") from None
            time.sleep(RETRY.seconds(failures))


def _is_outage(error: Exception) -> bool:
    """Return whether GitHub can answer soon: a job that follows a sweep for hours asks often."""
    if isinstance(error, HTTPError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, OSError | HTTPException)


def _is_job(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(JOB_URL) and environ.get(JOB_SECRET))


def check_url(url: str) -> None:
    """Raise UserError if it can't be that of an API."""
    try:
        parts = urlsplit(url)
        valid = URL.fullmatch(url) and parts.hostname and not (parts.query or parts.fragment)
        _ = parts.port  # ValueError if it isn't a number
    except ValueError:
        valid = False
    if not valid or "@" in parts.netloc:
        raise UserError("The URL must be that of Sweepbot's API, for example https://sweepbot.example.com.")


def stored() -> Credentials | None:
    """Return what `sweepbot login` stored, if anything. Raises UserError."""
    path = FILE.expanduser()
    try:
        return Credentials(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} can't be read ({error}). *Fix:* Repeat `sweepbot login URL`.") from None


def current(environ: Mapping[str, str]) -> Credentials | JobCredentials | None:
    """Return the environment's credentials, or else the stored ones, if there are any. Raises UserError.

    With a URL and no token, those are a GitHub job's own.

    The stored token is sent only to the URL that it was stored with.
    """
    url = environ.get("SWEEPBOT_URL", "").strip().rstrip("/")
    token = environ.get("SWEEPBOT_TOKEN", "").strip()  # secrets are often pasted with a newline
    if url and token:
        return Credentials(url, token)
    known = stored()
    if url and _is_job(environ) and (known is None or known.url != url):
        check_url(url)
        return JobCredentials(url, environ)
    if url and (known is None or known.url != url):
        fix = "*Fix:* Set SWEEPBOT_TOKEN, too, or give a GitHub job `permissions: id-token: write`."
        raise UserError(f"SWEEPBOT_URL is set, but no token for {url}. {fix}")
    if token and known is None:
        raise UserError("SWEEPBOT_TOKEN is set, but no URL. *Fix:* Set SWEEPBOT_URL, too.")
    return Credentials(known.url, token or known.token) if known else None


def store(credentials: Credentials) -> Path:
    """Write the file so that only its owner can read it, and return its path. Raises UserError."""
    path = FILE.expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # its mode is 0600
            json.dump(asdict(credentials), file)
        Path(file.name).replace(path)
    except OSError as error:
        raise UserError(f"{path} can't be written ({error.strerror}).") from None
    return path
