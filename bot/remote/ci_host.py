"""The pull request that a CI job is for, on GitHub or GitLab, the comment that Sweepbot keeps there, and the
errors: a fork, a token that can't comment.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, build_opener

from bot.core.errors import RetryAfterError, UserError
from bot.remote.client import MAX_WAIT, NoRedirect, retry_after
from bot.remote.credentials import RETRY
from bot.text.wording import printable

TIMEOUT = 30.0  # seconds
PER_PAGE, MAX_PAGES = 100, 10  # of comments
MAX_ANSWER, MAX_SAID = 16 * 2**20, 200  # bytes, and characters of an error
NO_JOB = (
    "sweepbot ci runs in a job for a pull request of GitHub Actions, or for a merge request of GitLab. "
    "Elsewhere: sweepbot launch --wait"
)


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    branch: str
    base: str  # the branch that it is to be merged into
    base_commit: str
    run: str  # differs for each run of the job that a person asked for
    comments: str  # URL of the API
    edits: str  # the same for one comment, without its id
    edit_method: str
    headers: Mapping[str, str] = field(repr=False)  # with the token
    fix: str  # if the token isn't allowed to comment


def pull_request(environ: Mapping[str, str]) -> PullRequest:
    """Return what the job's environment says. Raises UserError."""
    if environ.get("GITHUB_ACTIONS") == "true":
        return _github(environ)
    if environ.get("CI_MERGE_REQUEST_IID"):
        return _gitlab(environ)
    raise UserError(NO_JOB)


def _github(environ: Mapping[str, str]) -> PullRequest:
    try:
        pull = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))["pull_request"]
        here = f"{environ['GITHUB_API_URL']}/repos/{environ['GITHUB_REPOSITORY']}/issues"
        if (pull["head"]["repo"] or {}).get("full_name") != environ["GITHUB_REPOSITORY"]:
            raise UserError(
                "The pull request is from a fork, whose branch Sweepbot's repository doesn't have."
            )
        return PullRequest(
            branch=pull["head"]["ref"],
            base=pull["base"]["ref"],
            base_commit=pull["base"]["sha"],
            run=f"{environ['GITHUB_RUN_ID']}/{environ.get('GITHUB_RUN_ATTEMPT', '1')}",
            comments=f"{here}/{int(pull['number'])}/comments",
            edits=f"{here}/comments",
            edit_method="PATCH",
            headers={"Authorization": f"Bearer {environ.get('GITHUB_TOKEN', '').strip()}"},
            fix="Give the job `permissions: {pull-requests: write}`, and set GITHUB_TOKEN.",
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(NO_JOB) from None


def _gitlab(environ: Mapping[str, str]) -> PullRequest:
    try:
        project = environ["CI_MERGE_REQUEST_PROJECT_ID"]  # a fork's pipeline is the fork's
        if environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID") != project:
            raise UserError(
                "The merge request is from a fork, whose branch Sweepbot's repository doesn't have."
            )
        of_project = f"{environ['CI_API_V4_URL']}/projects/{quote(project, safe='')}"
        notes = f"{of_project}/merge_requests/{int(environ['CI_MERGE_REQUEST_IID'])}/notes"
        return PullRequest(
            branch=environ["CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"],
            base=environ["CI_MERGE_REQUEST_TARGET_BRANCH_NAME"],
            base_commit=environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", ""),
            run=environ["CI_JOB_ID"],
            comments=notes,
            edits=notes,
            edit_method="PUT",
            headers={"PRIVATE-TOKEN": environ.get("GITLAB_TOKEN", "").strip()},
            fix="Set GITLAB_TOKEN to a project access token with the scope api: a job's own can't comment.",
        )
    except (ValueError, KeyError):
        raise UserError(NO_JOB) from None


def comment(pull: PullRequest, marker: str, body: str) -> None:
    """Edit the comment that begins with this marker, or write it. Raises UserError.

    After a failure all is looked at again: a comment whose answer was lost is there.
    """
    failures = 0
    while True:
        try:
            return _comment(pull, marker, body)
        except RetryAfterError as error:
            failures += 1
            if RETRY.exhausted(failures):
                raise UserError(f"The comment can't be written: {error}") from None
            time.sleep(max(RETRY.seconds(failures), min(error.seconds, MAX_WAIT)))


def _comment(pull: PullRequest, marker: str, body: str) -> None:
    """Others can write the marker, too: a comment that can't be edited isn't ours."""
    text = {"body": f"{marker}\n{body}"}
    for number in _marked(pull, marker):
        try:
            _call(pull, pull.edit_method, f"{pull.edits}/{number}", text)
        except _RefusedError:
            continue
        return
    try:
        _call(pull, "POST", pull.comments, text)
    except _RefusedError as refused:
        raise UserError(f"The comment can't be written: {refused} *Fix:* {pull.fix}") from None


class _RefusedError(UserError):
    """The token isn't allowed to do this, or the object is gone."""


def _marked(pull: PullRequest, marker: str) -> list[int]:
    found = list[int]()
    for page in range(1, MAX_PAGES + 1):
        try:
            listed = _call(pull, "GET", f"{pull.comments}?per_page={PER_PAGE}&page={page}")
        except _RefusedError as refused:
            raise UserError(f"The comments can't be read: {refused} *Fix:* {pull.fix}") from None
        try:
            found += [int(each["id"]) for each in listed if (each["body"] or "").startswith(marker)]
        except (TypeError, KeyError, AttributeError, ValueError):  # of a proxy
            raise UserError(
                "The comments can't be read: the host's answer isn't a list of comments."
            ) from None
        if len(listed) < PER_PAGE:
            break
    return found


def _call(pull: PullRequest, method: str, url: str, body: object = None) -> Any:
    """Return the answer. Raises _RefusedError, RetryAfterError, and UserError for other failures."""
    data = None if body is None else json.dumps(body).encode()
    known = {"Content-Type": "application/json", "User-Agent": "sweepbot", "Accept": "application/json"}
    host = url.split("/")[2]
    if not url.startswith(("https://", "http://")):
        raise UserError(NO_JOB)
    try:
        request = Request(url, data, known | dict(pull.headers), method=method)  # noqa: S310 - http and https only
        with build_opener(NoRedirect).open(request, timeout=TIMEOUT) as response:
            return json.loads(response.read(MAX_ANSWER))
    except HTTPError as error:
        with error:
            text = f"{host} answers with status {error.code}{_detail(error)}."
        # GitHub's limits are 403, too, and not all of them have Retry-After: then it asks for a minute.
        is_limit = error.code == 429 or "rate limit" in text.lower()
        if is_limit or error.code >= 500:
            seconds = retry_after(error) or (MAX_WAIT if is_limit else 0.0)
            raise RetryAfterError(text, seconds) from None
        if error.code in {401, 403, 404}:
            raise _RefusedError(text) from None
        raise UserError(text) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{host} doesn't answer: {error}.") from None
    except (OSError, HTTPException) as error:
        raise RetryAfterError(f"{host} doesn't answer: {getattr(error, 'reason', error)}.", 0) from None


def _detail(error: HTTPError) -> str:
    """Return what the host says, such as `: Resource not accessible by integration`; "" if nothing."""
    try:
        found = json.loads(error.read(MAX_ANSWER))
        said = found.get("message") or found.get("error_description")
    except (OSError, HTTPException, ValueError, AttributeError):
        return ""
    return f": {printable(str(said))[:MAX_SAID].rstrip('.')}" if said else ""
