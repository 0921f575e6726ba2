"""The options of `/sweep`."""

import re
from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.request import Notify, SweepRequest
from bot.platform.config.limits import Limits
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.sweep.launch.command_line import changed, parse
from tests.cases import cases

CONFIG = Config(
    repositories=(Repository(name="digits", url="https://github.com/acme/digits.git"),),
    allowed_urls=("https://github.com/acme/",),
    limits=Limits(gpus_per_trial=8, parallel=16, trials=100),
)
LR = SweepRequest(branch="main", space="lr")


@cases(
    ("text", "request_"),
    [
        ("branch=main space=lr", LR),
        ("  space=lr   branch=main gpus=4 ", SweepRequest(branch="main", space="lr", gpus=4)),
        ("branch=main space=lr gpus=0", SweepRequest(branch="main", space="lr", gpus=0)),
        (
            'branch=fix/loss_2 space=wide-2 repo=digits parallel=4 trials=20 name="Big" cmd="a b"',
            SweepRequest(
                branch="fix/loss_2",
                space="wide-2",
                repo="digits",
                parallel=4,
                trials=20,
                name="Big",
                cmd="a b",
            ),
        ),
        (
            "branch=main space=lr cmd=“python t.py”",
            SweepRequest(branch="main", space="lr", cmd="python t.py"),
        ),
        ("branch=main\u00a0space=lr", LR),
        (
            'branch=main space=lr name="a — b" cmd="t.py —lr=3"',
            SweepRequest(branch="main", space="lr", name="a — b", cmd="t.py --lr=3"),
        ),
        ("branch=main space=lr name=‘it is’", SweepRequest(branch="main", space="lr", name="it is")),
        (
            "branch=main space=lr cmd='a &lt; b &amp;&amp; c &amp;gt;'",
            SweepRequest(branch="main", space="lr", cmd="a < b && c &gt;"),
        ),
        (
            "branch=main space=lr repo=<https://github.com/acme/x.git|github.com/acme/x.git>",
            SweepRequest(branch="main", space="lr", repo="https://github.com/acme/x.git"),
        ),
        (
            "branch=main space=lr repo=<https://github.com/acme/x>",
            SweepRequest(branch="main", space="lr", repo="https://github.com/acme/x"),
        ),
        (
            'branch=main seeds=5 cmd="python train.py"',
            SweepRequest(branch="main", space="seeds", seeds="0-4", cmd="python train.py"),
        ),
        (
            'branch=main seeds=7,1-2, cmd="t" metric=val_acc goal=Maximize',
            SweepRequest(
                branch="main", space="seeds", seeds="1-2,7", cmd="t", metric="val_acc", goal="maximize"
            ),
        ),
        ("branch=<http://fix.io|fix.io> space=lr", SweepRequest(branch="fix.io", space="lr")),
        ("branch=<mailto:ada@x.org|ada@x.org> space=lr", SweepRequest(branch="ada@x.org", space="lr")),
        ("branch=<tel:5551234567|555-123-4567> space=lr", SweepRequest(branch="555-123-4567", space="lr")),
        ("\u200fbranch=main\u2060 space=\ufefflr", SweepRequest(branch="main", space="lr")),
    ],
)
def test_parse_reads_a_request(text: str, request_: SweepRequest) -> None:
    assert parse(text, CONFIG) == request_


@cases(
    ("text", "request_"),
    [
        ("Branch=main Space=LR", LR),
        ("branch=main, space=lr,", LR),
        ("branch=main ; space=lr;", LR),
        ("run branch=main space=lr", LR),
        ("Start branch=main space=lr", LR),
        ("branch=main space=lr gpus=2,", replace(LR, gpus=2)),
        ("branch=main space=lr Algorithm=TPE", replace(LR, algorithm="tpe")),
        ("branch=main space=lr algorithm=Bayes", replace(LR, algorithm="bayesianoptimization")),
        ("branch=main space=lr algorithm=multi", replace(LR, algorithm="multivariate-tpe")),
        ("branch=main space=lr from=lr-brave-otter", replace(LR, from_="lr-brave-otter")),
        ("branch=main space=lr notify=DM", replace(LR, notify=Notify.DM)),
        ("branch=main space=lr gate=OFF", replace(LR, gate=False)),
        ("branch=main space=lr gate=yes goal=Minimize", replace(LR, gate=True, goal="minimize")),
        ("branch=main space=lr metrics=STDOUT flags=Hydra", replace(LR, metrics="stdout", flags="a.b=1")),
        (
            "branch=main space=lr metrics=/logs/m.txt flags=ENV",
            replace(LR, metrics="/logs/m.txt", flags="env"),
        ),
        ("branch=main space=lr gate=on max_hours=0.5", replace(LR, gate=True, max_hours=0.5)),
        ("branch=main space=lr max_hours=.5H", replace(LR, max_hours=0.5)),
        ('branch=main space=lr name="a," cmd="t.py a;"', replace(LR, name="a,", cmd="t.py a;")),
        (
            "branch=main space=lr Repo=<https://github.com/acme/x.git|github.com/acme/x.git>",
            replace(LR, repo="https://github.com/acme/x.git"),
        ),
    ],
)
def test_parse_accepts_typographic_quotes_and_spacing(text: str, request_: SweepRequest) -> None:
    assert parse(text, CONFIG) == request_


@cases(
    ("text", "reported"),
    [
        ("", "Missing `branch=` and `space=`. Example: `/sweep branch=main gpus=1 space=lr`"),
        ("branch=main", "Missing `space=`. Example: `/sweep branch=main gpus=1 space=lr`"),
        (
            "main",
            "Unknown argument: `main`. Usage: `/sweep branch=main gpus=1 space=lr`.",
        ),
        ("branch=main space=lr early_stopping=asha", "Set `early_stopping:` in the space file."),
        ("branch=main space=lr mem=8GB", "CPU and memory come with `gpus=` or `profile=` (a machine type)."),
        ("brunch=main space=lr", "Unknown option: `brunch=`. Did you mean branch?"),
        (
            "branch=main space=lr algorithm=tpee",
            'algorithm= must be a search algorithm; got "tpee". Did you mean tpe?',
        ),
        (
            "branch=main space=lr tint=red",
            "Unknown option: `tint=`. Available: space, branch, repo, image, seeds, profile, gpus, ",
        ),
        (
            "branch=main space=lr who=ada",
            "and 14 more. All options: `/sweep help`.",
        ),
        ("branch=main space=lr from=a/b", "from= must be `auto`, `none`, or a sweep, for example from=lr"),
        ("branch=main space=lr gate=maybe", 'gate= must be on or off; got "maybe".'),
        (
            "branch=main space=lr max_hours=2y",
            'max_hours= must be a number of hours from 0.02 (one minute) to 596523; got "2y".',
        ),
        ("branch=main space=lr max_hours=0.001", "max_hours= must be a number of hours from 0.02"),
        (
            "branch=main space=lr algorithm=foo",
            'algorithm= must be a search algorithm; got "foo". Available: auto, random, grid, tpe, ',
        ),
        (
            "branch=main space=lr algorithm=mu",
            'algorithm= must be a search algorithm; got "mu". Did you mean multivariate-tpe?',
        ),
        ("branch=main space=lr Branch=dev", "`branch=` is set twice."),
        (
            'branch=main space=lr cmd="python',
            'Unclosed quote. Write `cmd="python train.py"`. Got: ',
        ),
        ("branch=main space=lr gpus=many", 'gpus= must be a whole number from 0 to 8; got "many".'),
        ("branch=main space=lr gpus=1.5", 'from 0 to 8; got "1.5".'),
        ("branch=main space=lr gpus=-1", 'gpus= must be a whole number from 0 to 8; got "-1".'),
        ("branch=main space=lr gpus=٣", 'from 0 to 8; got "٣".'),
        ("branch=main space=lr gpus=", 'from 0 to 8; got "".'),
        (
            "branch=main space=lr gpus=9",
            "gpus= can be at most 8 on this cluster (limits.gpus_per_trial); got 9.",
        ),
        (
            "branch=main space=lr trials=101",
            "trials= can be at most 100 on this cluster (limits.trials); got 101.",
        ),
        (
            "branch=main space=lr gpus=9999999999999999999",
            "gpus= can be at most 8 on this cluster (limits.gpus_per_trial); got 9999999999999999999.",
        ),
        (
            "branch=main space=lr trials=" + "9" * 5000,
            f"at most 100 on this cluster (limits.trials); got {'9' * 99}….",
        ),
        ("branch=main space=lr trials=0", 'trials= must be a whole number from 1 to 100; got "0".'),
        ("branch=main space=lr parallel=0", 'from 1 to 16; got "0".'),
        (
            "branch=main space=lr parallel=5 trials=4",
            "parallel= can't exceed trials=; got parallel=5, trials=4.",
        ),
        (
            "branch=main space=configs/lr.yaml",
            'for example space=lr; got "configs/lr.yaml".',
        ),
        ("branch=main space=../x", "space= must be a file name from sweeps/"),
        ("branch=main space=lr name=" + "x" * 31, "name= must be 1 to 30 characters on one line; got "),
        ("branch=main space=lr name='a\nb'", "name= must be 1 to 30 characters on one line; got "),
        ("branch=main space=lr name=", "name= must be 1 to 30 characters"),
        ("branch=main space=lr cmd=' '", 'cmd= must be a command, for example cmd="python'),
        ("branch=main space=lr repo=mnist", "repo=mnist isn't a configured repository. Available: `digits`."),
        (
            "branch=main space=lr repo=<https://evil.org/x>",
            "repo=https://evil.org/x isn't allowed. Available: ",
        ),
    ],
)
def test_parse_invalid_value_names_the_requirement(text: str, reported: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text, CONFIG)
    assert reported in str(error.value)


@cases(
    "branch",
    [
        "",
        "-x",
        "--upload-pack=id",
        "'$(GIT_PASSWORD)'",
        "a..b",
        "a//b",
        "/a",
        "a/",
        ".a",
        "a/.b",
        "a.lock",
        "a.lock/b",
        "a.",
        "@",
        "a@{1}",
    ]
    + [f'"a{c}b"' for c in " ~^:?*[\t\x01\x7f"]
    + [r"'a\b'"],
)
def test_parse_rejects_invalid_branch_names(branch: str) -> None:
    with pytest.raises(UserError, match="must be a branch or tag name"):
        parse(f"space=lr branch={branch}", CONFIG)


@cases("branch", ["v1.0", "fix/a-b_c", "a@b", "ünder", "deadbeef", "a.locked", "a+b", "{x}"])
def test_parse_accepts_unusual_valid_names(branch: str) -> None:
    assert parse(f"space=lr branch={branch}", CONFIG).branch == branch


@cases(
    ("options", "message"),
    [
        ("seeds=5", "seeds= needs a command"),
        ("seeds=5 cmd=t space=lr", "seeds= runs cmd= without a space"),
        ("seeds=5 cmd=t trials=3", "trials= can't be combined with seeds=: each seed is one trial"),
        ("seeds=5 cmd=t algorithm=grid", "algorithm= can't be combined with seeds="),
        ("seeds=5 cmd=t from=auto", "from= can't be combined with seeds="),
        ("seeds=5 cmd=t where=lr<1", "where= can't be combined with seeds="),
        ("seeds=101 cmd=t", "seeds= can have at most 100 seeds"),
        ("seeds=5 cmd=t metric=a:b", "metric= must be a name of up to 100 letters"),
        ("seeds=5 cmd=t goal=up", 'goal= must be minimize or maximize; got "up"'),
    ],
)
def test_parse_seeds_with_options_that_contradict_them_names_the_option(options: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(f"branch=main {options}", CONFIG)
    assert message in str(error.value)


def test_parse_reports_all_errors_at_once_and_without_gpu_nodes_requests_no_gpus() -> None:
    with pytest.raises(UserError) as error:
        parse("branch=-x space=lr gpus=99 trails=3", CONFIG)
    assert str(error.value).splitlines() == [
        "Unknown option: `trails=`. Did you mean trials or metrics?",
        'branch= must be a branch or tag name; got "-x".',
        "gpus= can be at most 8 on this cluster (limits.gpus_per_trial); got 99.",
    ]
    config = Config(repositories=CONFIG.repositories, limits=Limits(gpus_per_trial=0, parallel=16, trials=5))
    assert parse("branch=main space=lr", config) == SweepRequest(branch="main", space="lr", gpus=0)


def test_rerun_changes_only_the_given_options() -> None:
    before = SweepRequest(branch="main", space="lr", gpus=2, parallel=4)
    assert changed(before, "", CONFIG) == before
    assert changed(before, "trials=20", CONFIG) == replace(before, trials=20)
    assert changed(replace(before, commit="0123" * 10), "", CONFIG) == before  # the branch as it is now
    with pytest.raises(UserError, match="got parallel=4, trials=2"):
        changed(before, "trials=2", CONFIG)
    with pytest.raises(UserError, match="spaec"):
        changed(before, "spaec=lr", CONFIG)
    auto = replace(LR, parallel=8, auto=True)
    assert changed(auto, "parallel=4", CONFIG) == replace(LR, parallel=4)
    assert changed(LR, "parallel=auto:8", CONFIG) == auto
    assert changed(auto, "trials=4", CONFIG) == replace(auto, trials=4)
    written = replace(LR, space="mine", text="command: x")
    assert changed(written, "gpus=2", CONFIG).text == "command: x"
    assert changed(written, "space=lr", CONFIG) == LR
    seeds = SweepRequest(branch="main", space="seeds", seeds="0-4", cmd="t")
    assert changed(replace(seeds, where="lr<1"), "", CONFIG) == seeds  # of a version that ignored where=
    with pytest.raises(UserError, match="where= can't be combined with seeds="):
        changed(seeds, "where=lr<1", CONFIG)


@pytest.mark.parametrize(("option", "most"), [("auto", 16), ("AUTO", 16), ("auto:8", 8), ("auto:16", 16)])
def test_parallel_auto_is_a_maximum(option, most):
    asked = parse(f"branch=main space=lr trials=4 parallel={option}", CONFIG)
    assert (asked.parallel, asked.auto) == (most, True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("parallel=auto:0", 'parallel= must be a whole number from 1 to 16; got "0".'),
        ("parallel=auto:17", "parallel= can be at most 16 on this cluster (limits.parallel); got 17."),
        ("parallel=auto:", "must be a whole number"),
        ("parallel=automatic", 'parallel= must be a whole number from 1 to 16; got "automatic".'),
        ("parallel=auto gpus=0", "parallel=auto follows free GPUs, and gpus=0 needs none."),
    ],
)
def test_parallel_auto_that_is_wrong_is_rejected(options, error):
    with pytest.raises(UserError, match=re.escape(error)):
        parse(f"branch=main space=lr {options}", CONFIG)
