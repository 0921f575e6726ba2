"""The message of an environment, with texts of others."""

from dataclasses import replace

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.workspaces.environments.message import Observed, message
from bot.workspaces.environments.record import EnvironmentRecord, Wanted
from tests.bot.factories import NOW, OWNER

RECORD = EnvironmentRecord(
    name="lab",
    owner=OWNER,
    channel="C1",
    request_id="r1",
    image="jupyter",
    size="m",
    gpus=1,
    home="lab",
    home_size="20Gi",
    since=NOW,
)


def test_message_counts_gpus_of_a_pod_that_is_stopping_as_allocated():
    stopped = replace(RECORD, wanted=Wanted.STOPPED)
    seen = [Observed(has_pod=there, has_home=True) for there in (True, False)]
    lines = [message(stopped, each).blocks[0]["text"]["text"] for each in seen]
    kept = ["The home is kept.", "No GPUs are allocated. The home is kept."]
    assert [text.splitlines()[-1] for text in lines] == kept


def test_message_of_a_problem_mentions_and_links_nothing():
    evil = "<!channel> <https://evil.example|log in>"
    problem = Diagnosis(key="x", text=f"Webhook {evil}", fix=f"Ask {evil}", detail=evil)
    text = message(RECORD, Observed(problem=problem)).blocks[0]["text"]["text"]
    assert "<!" not in text
    assert "<http" not in text
    assert text.count("&lt;!channel&gt;") == 3
