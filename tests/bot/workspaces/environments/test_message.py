"""The message of an environment, with texts of others."""

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.workspaces.environments.message import Observed, message
from bot.workspaces.environments.record import EnvironmentRecord
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


def test_message_of_a_problem_mentions_and_links_nothing():
    evil = "<!channel> <https://evil.example|log in>"
    problem = Diagnosis(key="x", text=f"Webhook {evil}", fix=f"Ask {evil}", detail=evil)
    text = message(RECORD, Observed(problem=problem)).blocks[0]["text"]["text"]
    assert "<!" not in text
    assert "<http" not in text
    assert text.count("&lt;!channel&gt;") == 3
