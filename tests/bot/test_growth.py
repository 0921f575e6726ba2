"""Reading takes linear time, whatever a file, a log, or a command contains."""

import re
import time
from contextlib import suppress
from dataclasses import replace

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.platform.config.limits import Limits
from bot.platform.pod_health.diagnosis import refusals
from bot.platform.pod_health.evidence import TrialEvidence
from bot.platform.pod_health.log_cause import find_cause
from bot.platform.pod_health.rules_admission import _exceeds_quota, _quota
from bot.platform.registry.images import IMAGE_NAME
from bot.platform.repos.catalog import description
from bot.platform.repos.git_commands import _failure
from bot.platform.repos.submodules import modules
from bot.platform.runtime.log_format import Mask
from bot.platform.slack.mrkdwn import block, code, quoted
from bot.sweep.builds import uv_lock
from bot.sweep.builds.dockerfile_split import split
from bot.sweep.builds.failures import explain
from bot.sweep.builds.pyproject import toml
from bot.sweep.builds.requirements import framework_pins, local_requirement, references
from bot.sweep.features.health import rules_training
from bot.sweep.launch.command_line import parse_options
from bot.sweep.spaces.space import parse_space
from bot.text.terminal import without_markup
from bot.text.wording import did_you_mean
from handlers.any_wording import _for_one
from handlers.mentions import own_words
from k8s.jobs import Job, JobState
from tests.bot.factories import NOW
from tests.cases import cases

SHORT, TIMES, MAX_RATIO = 2_000, 4, 9  # four times the text: four times the work, where sixteen is the square


def space(text):
    parse_space(text, "sweeps/lr.yaml", SweepRequest(branch="main", space="lr"), Limits())


def parameter(text):
    space(f"command: x\nobjective: {{metric: a, goal: minimize}}\nparameters:\n  lr: [{text}x]\n")


def lock(text):
    found = toml(text, "uv.lock")
    uv_lock.framework_pins(found)
    uv_lock.not_locked(
        found, {"project": {"name": "own", "dependencies": [f"p{n}==1" for n in range(len(text) // 80)]}}
    )


def requirements(text):
    files = {"requirements.txt": text}
    references("requirements.txt", text)
    local_requirement(files)
    if "-r" not in text:
        framework_pins(files)


def setting(text):
    modules(f'[submodule "a"]\nurl={text}"')


def build_log(text):
    explain(text, Job(name="b", uid="1", state=JobState.FAILED), None)


EVIDENCE = TrialEvidence(now=NOW, metric="loss", gpus=1)


def training_log(text):
    evidence = replace(EVIDENCE, log=text)
    for pattern in (rules_training.NO_CUDA, rules_training.NCCL, rules_training.NAN, rules_training.LOADER):
        evidence.line(pattern)
    find_cause(text)
    find_cause(text.replace(" ", "\n"))
    re.findall(rules_training.PLACE, text)
    re.search(rules_training.GPU_MEMORY_SIZE, text)


def refusal(text):
    refusals(f"0/5 nodes are available: {text}")
    _exceeds_quota(text)
    _quota(text, EVIDENCE)


def shown(text):
    block(text)
    code(text)
    quoted(text)


# Texts that make a regular expression backtrack: beginnings without their ends.
PIECES = {
    space: ("1x", "[", "{", "- ", "?\n", ": ", "&a ", "!a ", "#\n", "-", ".", "1:", "1_", "\n", "%", "a:\n"),
    parameter: ("1", "1,", "[", "{", "'", "x", "1e", "1:", "a: ", "&a ", "-"),
    lock: ("a.", '"a".', "'a'.", "a. ", "[a.", "[[a.", "a", "[", "a=[", "a={", '"', "[a]\n", "1_"),
    requirements: ("1", "\n", " \n", ".whl", "a.", "a @", "-r ", "-r=\n", "#", "\\\n", "torch", "nvidia-"),
    split: (
        "a",
        " ",
        "\n",
        "\\ ",
        "\\\n",
        "RUN install -a",
        "mkdir -p -",
        "install ",
        "#",
        "FROM nvidia/cuda",
        "COPY . .\n",
        "COPY a b\n",
        " #\n",
        "WORKDIR a\n",
    ),
    setting: (" ", "a", "=", "a ="),
    build_log: (
        *(
            "resolving source context: ",
            "No interpreter found for Python ",
            "lockfile ",
            "lstat a",
            "Usage:\n",
        ),
        *(
            '"https://a/v2/',
            "Because ",
            "Hash mismatch for `",
            "INFO[1] RUN a ",
            "\x1b[1",
            "DENIED",
            "Usage:\n",
        ),
    ),
    training_log: (
        *(
            "1",
            "1.",
            "1 G",
            "iter",
            "step:",
            "cuda.is_available",
            "loss-",
            "DataLoader worker ",
            "a.b",
            "/a/b",
        ),
        *(
            "[rank1]: ",
            "[1,1]<stderr>: ",
            "(pid=1",
            "x.Error: ",
            ": error: ",
            "Because a ",
            " in: a.cpp",
            "E: ",
        ),
        *('File "', "Traceback (most recent call last):\n", "a: E\n", "ValueError: a \n", "nan loss ", "\n"),
    ),
    parse_options: ("<http://", "<http://a|", "repo=<mailto:a", "—", '"', "a=b ", "&lt;", "\\", "a/"),
    description: ("description: ", "description:\n", "description: [", "\n [", "#", "# ", "\n"),
    refusal: (", 1 a", "1", "insufficient quota for a in flavor b, maximum capacity (", "1 > ", "used: "),
    Mask(["secret"]): (
        *(
            "xoxb-",
            "-----BEGIN PRIVATE KEY-----",
            "-",
            "://",
            "://a",
            "bearer ",
            "Basic a",
            "eyJ",
            "eyJaaaaaaaa.",
        ),
        *(
            "authorization: x ",
            "password=",
            'password: \\"',
            "token=",
            "token=a",
            "api_key=",
            '"auth":',
            "sk-",
        ),
    ),
    without_markup: ("*a", "* ", "`", "<https://", "<https://|", "&lt"),
    shown: ("`", "```", "&", "<", "\r", "\n", "\u202e", " "),
}
PIECES |= {
    lambda text: own_words("U1", {"text": text}): ("<@U1|", "&gt;", "&gt;a\n"),
    lambda text: _for_one({"text": text}): ("_", "_ ", "a_", "*", "•", "- ", "a ", "| a "),
    IMAGE_NAME.fullmatch: ("a:",),
    lambda text: _failure("url", text): ("//a",),
    lambda text: did_you_mean(text, [text[::-1]]): ("ab",),
}


def work(parser, text):
    """Seconds of this thread."""
    started = time.thread_time()
    with suppress(UserError):
        parser(text)
    return max(time.thread_time() - started, 1e-4)  # less is the clock's


def is_linear(parser, short, long):
    """Compare the least of some measurements: what else the machine does adds to the others."""
    times = [work(parser, short)]
    while len(times) < 4 and sum(times) < 0.02:
        times.append(work(parser, short))
    least = min(times)
    return any(work(parser, long) / least < MAX_RATIO for _ in range(4))


@cases(("parser", "pieces"), PIECES.items())
def test_parsers_need_linear_time(parser, pieces):
    texts = {piece: piece * (SHORT // len(piece)) for piece in pieces}
    assert [piece for piece, text in texts.items() if not is_linear(parser, text, text * TIMES)] == []


PACKAGE = """
[[package]]
name = "p{0}"
version = "1"
source = {{ registry = "https://pypi.org/simple" }}
dependencies = [{{ name = "p{1}" }}, {{ name = "torch", extra = ["a", "b"] }}]
"""


@cases(
    ("parser", "piece"),
    [
        (lock, lambda n: PACKAGE.format(n, n + 1)),
        (lock, lambda n: PACKAGE.format(f"torch{n}", n).replace("torch", "nvidia-a")),
        (
            lock,
            lambda n: PACKAGE.format(n, n + 1).replace('"torch"', f'"torch", marker = "os_name == \'{n}\'"'),
        ),
        (lock, lambda n: f"a.b{n} = 1\n"),
        (requirements, lambda n: f"torch{n}==1\n"),
        (space, lambda n: f"k{n}: &a{n} 1\n"),
        (parameter, lambda n: f"{n},"),
        (build_log, lambda n: f"INFO[{n}] RUN pip install a{n}\n"),
    ],
)
def test_parsers_compare_no_entries_in_pairs(parser, piece):
    pieces = [piece(number) for number in range(200 * TIMES)]
    assert is_linear(parser, "".join(pieces[:200]), "".join(pieces))
