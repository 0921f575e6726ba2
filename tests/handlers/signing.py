"""A client that signs as Slack does."""

import hashlib
import hmac
import time
from urllib.parse import urlencode

from handlers.http_server import SLACK_PATH
from local.slack.workspace import TEAM

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
FORM = "application/x-www-form-urlencoded"
COMMAND = {
    "command": "/sweep",
    "text": "branch=main space=lr",
    "trigger_id": "trigger-1",
    "user_id": "U1",
    "user_name": "ada",
    "channel_id": "C1",
    "team_id": TEAM["id"],
    "response_url": "https://hooks.slack.com/commands/1",
}


def signed(body, *, secret=SECRET, age=0, version="v0"):
    """The headers of Slack's call: https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    at = str(int(time.time() - age))
    base = f"v0:{at}:".encode() + body
    digest = hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"{version}={digest}", "Content-Type": FORM}


async def call(client, form, **how):
    body = urlencode(form).encode()
    async with client.post(SLACK_PATH, data=body, headers=signed(body, **how)) as answer:
        return answer.status, await answer.text()
