"""What keeps Sweepbot from scaling a Deployment, and which rejections it reports."""

from dataclasses import replace

import pytest

from bot.platform.slack.mrkdwn import finding_text
from bot.workspaces.elastic.preconditions import problem_of, rejection
from k8s.api.errors import ApiError, UnreachableError
from tests.bot.workspaces.elastic.factories import CLASS, LLM, deployment_of
from tests.cases import cases


@cases(
    ("deployment", "priority", "gpus", "text"),
    [
        (deployment_of(), -100, 1, ""),
        (deployment_of(), -1, 1, ""),
        (deployment_of(), 0, 1, f"PriorityClass `{CLASS}` is 0"),
        (deployment_of(), None, 1, f"PriorityClass `{CLASS}` doesn't exist"),
        (deployment_of(priorityClassName=""), None, 1, "the template has no `priorityClassName`"),
        (deployment_of(gpus=2), -100, 2, ""),
        (deployment_of(gpus=2), -100, 1, "requests 2 GPUs, but `gpus` in `elastic:` is 1"),
        (deployment_of(gpus=0), -100, 0, ""),
        (deployment_of(gpus=1), -100, 0, "requests 1 GPU, but `gpus` in `elastic:` is 0"),
        (deployment_of(gpus=0, cpu="0"), -100, 0, "A replica requests no CPU"),
        ({}, None, 1, "Deployment `llm` doesn't exist in `serving`"),
    ],
)
def test_deployment_needs_a_negative_priority_and_the_configured_gpus(deployment, priority, gpus, text):
    problem = problem_of(replace(LLM, gpus=gpus), deployment, priority)
    assert (problem is None) == (not text)
    assert not problem or (text in problem.text and problem.fix)


def test_rejection_is_shown_masked_if_it_lasts():
    problem = rejection(
        ApiError(403, "Forbidden", "token hunter2"), lambda text: text.replace("hunter2", "***")
    )
    assert finding_text(problem) == (
        "The cluster rejected a request.\n"
        "*Fix:* Grant the permissions (`kubectl apply -k deploy/elastic`), and run `/sweep doctor`.\n"
        "> token ∗∗∗"
    )


@pytest.mark.parametrize("error", [ApiError(503, "", "x"), UnreachableError("x"), ValueError("x")])
def test_error_that_can_end_by_itself_is_not_shown(error):
    assert rejection(error, str) is None
