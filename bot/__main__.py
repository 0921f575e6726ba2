"""The command line: the processes, and the commands of researchers, installers, and operators, with their
flags, help, and defaults.
"""

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

from bot import __version__
from bot.core.errors import UserError
from bot.operate.words import ABOUT_ONE, COMMANDS
from bot.platform.runtime import log_format
from bot.text.masking import Mask, secrets_in_environment
from bot.text.number_format import finite
from bot.text.terminal import without_markup
from bot.text.wording import shortened

Run = Callable[[argparse.Namespace], int]
# Module and function of each process; a module is imported only by a command that runs it.
SERVE, WORK = ("bot.serve_process", "serve"), ("bot.work_process", "workers")
NAME = "full name, such as lr-brave-otter"
PART = f"{NAME}; or a part of it that is unique"
# New objects before garbage is collected: with Python's 700, that is during every ninth `/sweep`.
GC_THRESHOLD = 10_000


def main() -> int:
    arguments, mask = _arguments(), Mask(secrets_in_environment(os.environ))
    log_format.start("WARNING", "text", mask)  # until the settings are read
    if bundle := os.environ.get("SSL_CERT_FILE"):  # requests, MLflow's client, doesn't read it
        os.environ.setdefault("REQUESTS_CA_BUNDLE", bundle)
    try:
        Path.home()
    except RuntimeError:  # a user without an entry in /etc/passwd: libraries ask for it in their imports
        os.environ["HOME"] = "/"  # as Docker has it
    try:
        return arguments.run(arguments)  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:  # of a package that few commands need
        print(f'This command needs pip install "sweepbot[{arguments.extra}]" ({error}).', file=sys.stderr)
        return 2
    except UserError as error:
        print(without_markup(mask(str(error))), file=sys.stderr)
        return error.exit_code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sweepbot", description="Run hyperparameter sweeps on Kubernetes from Slack."
    )
    parser.set_defaults(extra="server")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, jobs, words in (
        ("serve", (SERVE,), "serve Slack commands, buttons, and forms"),
        ("work", (WORK,), "run the workers: builds, experiments, messages"),
        ("all", (SERVE, WORK), "run serve and work in one process (small teams)"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.set_defaults(run=_service, jobs=jobs)
    words = "check this installation; exit with 1 if anything is broken"
    examiner = commands.add_parser("doctor", help=words, description=words)
    examiner.add_argument("--json", action="store_true", help="print findings as JSON")
    examiner.set_defaults(run=_printing(_doctor))
    words = "print the Kubernetes manifests that a sweep would create; reads git, changes nothing"
    planner = commands.add_parser("plan", help=words, description=words)
    planner.add_argument(
        "request", nargs="+", help="the command as in Slack, such as /sweep branch=main space=lr"
    )
    planner.add_argument(
        "--repo",
        default=".",
        metavar="URL|PATH",
        help="the git repository: https, http, or a directory, of which commits are read; default: this one",
    )
    planner.set_defaults(run=_imported("bot.offline_commands", "print_plan"))
    _add_space(commands)
    words = "check a configuration file: report every error with its line; exit with 2 if there are any"
    actions = commands.add_parser("config", help=words, description=words).add_subparsers(
        required=True, metavar="ACTION"
    )
    checker = actions.add_parser("check", help=words, description=words)
    checker.add_argument("file", metavar="FILE", help="such as mine/config.yaml")
    checker.set_defaults(run=_imported("bot.offline_commands", "check_config"))
    words = "print the JSON Schema of space files or of config.yaml, for editors"
    schema = commands.add_parser("schema", help=words, description=words)
    schema.add_argument("kind", choices=("space", "config"))
    schema.set_defaults(run=_imported("bot.offline_commands", "print_schema"))
    _add_remote(commands)
    _add_results(commands)
    _add_setup(commands)
    _add_operator(commands)
    return parser.parse_args()


def _add_space(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = "check, explain, or convert a space file, a Katib Experiment, or a W&B sweep file"
    actions = commands.add_parser("space", help=words, description=words).add_subparsers(
        required=True, metavar="ACTION"
    )
    for name, about in (
        ("check", "report every error with its line; exit with 2 if there are any"),
        ("explain", "print the parameters, the number of combinations, and the maximum GPU-hours"),
        ("convert", "convert the file to a Sweepbot space file and print it"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        words = "paths of files, and options of /sweep, such as sweeps/lr.yaml trials=20 gpus=2"
        action.add_argument("words", metavar="FILE", nargs="+", help=words)
        action.set_defaults(run=_imported("bot.offline_commands", "run_space"), action=name)


def _add_remote(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("--json", action="store_true", help="print JSON, one object per line")
    added = {}
    for word, about in {
        "login": "store the URL and a token of Sweepbot's API; the token is from /sweep token in Slack",
        "launch": "start a sweep",
        "watch": "follow a sweep to its end; exit with 1 if it doesn't succeed",
        "list": "list your sweeps and all running ones",
        "status": "print a sweep's state, progress, and best result",
        "logs": "print the log of a trial, or before the trials, of the build",
        "cancel": "cancel a sweep",
        "command": "send a command of a sweep's thread, such as pause, resume, or extend trials=30",
    }.items():
        parents = [] if word == "login" else [output]
        added[word] = commands.add_parser(word, help=about, description=about, parents=parents)
        added[word].set_defaults(run=_imported("bot.remote.commands", "run_remote"), word=word)
    added["login"].add_argument("url", metavar="URL", help="such as https://sweepbot.example.com")
    words = (
        "options as in Slack, such as branch=main space=lr; without branch=, the checkout, pushed if needed"
    )
    added["launch"].add_argument("request", nargs="+", metavar="OPTION", help=words)
    added["launch"].add_argument("--wait", action="store_true", help="follow the sweep, as watch does")
    words = "print what the sweep would build, run, and cost, and start nothing"
    added["launch"].add_argument("--dry-run", action="store_true", help=words)
    words = "Idempotency-Key: the same key within a day is the same sweep; default: a new one"
    added["launch"].add_argument("--key", help=words)
    added["list"].add_argument("--active", action="store_true", help="only sweeps that haven't ended")
    for word in ("watch", "status", "logs", "cancel", "command"):
        added[word].add_argument("sweep", metavar="SWEEP", help=NAME)
    words = "its name, or the end of that; default: a running one, else a failed one, else the best"
    added["logs"].add_argument("trial", metavar="TRIAL", nargs="?", default="", help=words)
    added["cancel"].set_defaults(command=["cancel"])
    words = "run a sweep for a CI job's pull request, compare it with its base, and comment the result"
    check = commands.add_parser("ci", help=words, description=words)
    check.add_argument("request", nargs="+", metavar="OPTION", help="options as in Slack, without branch=")
    words = "how much worse the branch can be, in percent of the base's mean; default: 1"
    check.add_argument("--max-worse", type=_percent, default=1.0, metavar="PERCENT", help=words)
    words = "title of the comment; jobs with different ones keep a comment each; default: Sweep"
    check.add_argument("--name", default="Sweep", metavar="TITLE", help=words)
    check.set_defaults(run=_imported("bot.remote.ci", "run_ci"))
    words = "serve the API's calls to an agent as tools, by MCP on standard input and output"
    agent = commands.add_parser("mcp", help=words, description=words)
    agent.set_defaults(run=_imported("bot.remote.mcp_tools", "run_mcp"), extra="mcp")
    added["command"].add_argument("command", nargs="+", metavar="WORD", help="the command and its options")


def _percent(text: str) -> float:
    value = finite(text)
    if value is None or value < 0:
        raise argparse.ArgumentTypeError(
            f'must be a percentage from 0 up, such as 1; got "{shortened(text)}"'
        )
    return value


def _add_results(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = (
        "print an ended sweep's trials as a table, CSV, or JSON; after login, from the API, else the cluster"
    )
    command = commands.add_parser("results", help=words, description=words)
    command.add_argument("sweep", help="full name, such as lr-brave-otter")
    command.add_argument("--format", choices=("table", "csv", "json"), default="table")
    command.add_argument(
        "--namespace", help="read the cluster, and this namespace; default: K8S_NAMESPACE, or else sweeps"
    )
    command.set_defaults(run=_imported("bot.results_command", "print_results"), extra="cluster")


def _add_setup(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = "look at a cluster, ask five questions, and write the directory that installs Sweepbot"
    command = commands.add_parser("setup", help=words, description=words)
    command.add_argument("folder", metavar="DIRECTORY", help="the directory to write, for git")
    command.add_argument("--answers", metavar="FILE", help="YAML with the answers: ask nothing")
    command.add_argument(
        "--base",
        metavar="URL|PATH",
        help="the repository of Sweepbot's manifests, or a checkout; default: the package's own",
    )
    secrets = command.add_mutually_exclusive_group()
    secrets.add_argument("--sealed-secrets", action="store_true", help="keep the Secrets in git, by kubeseal")
    secrets.add_argument(
        "--external-secrets", metavar="STORE", help="write ExternalSecrets of this ClusterSecretStore"
    )
    command.add_argument(
        "--apply",
        metavar="NUMBER",
        nargs="?",
        type=int,
        const=1,
        help="run the printed commands, from this one on, without asking: image, manifests, Secrets, doctor",
    )
    command.set_defaults(run=_imported("bot.setup_command", "run_setup"), extra="cluster")


def _add_operator(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for word, about in COMMANDS.items():
        command = commands.add_parser(word, help=about, description=about)
        if word in ABOUT_ONE:
            command.add_argument("item", metavar="SWEEP", help=NAME if word == "release" else PART)
        command.set_defaults(run=_imported("bot.operator_commands", "run_operator"), word=word)


def _imported(module: str, function: str) -> Run:
    def run(arguments: argparse.Namespace) -> int:
        return int(getattr(import_module(module), function)(arguments))

    return _printing(run)


def _printing(run: Run) -> Run:
    """Return the command without an error if the reader of its output has ended, such as `head`.

    A file or pipe that isn't UTF-8, as on Windows, gets escapes.
    """

    def quietly(arguments: argparse.Namespace) -> int:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            code = run(arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the exit
            return 1
        return code

    return quietly


def _service(arguments: argparse.Namespace) -> int:
    gc.disable()  # collecting garbage while modules are imported takes a tenth of the start
    from bot.app import run  # noqa: PLC0415
    from bot.platform.config.live_policy import LivePolicy  # noqa: PLC0415
    from bot.platform.config.settings import Settings  # noqa: PLC0415

    jobs = tuple(getattr(import_module(module), function) for module, function in arguments.jobs)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    settings = Settings.read()
    log_format.start(settings.log_level, settings.log_format, settings.mask)
    asyncio.run(run(jobs, settings, LivePolicy.read(settings.sweepbot_config)))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from bot.core.finding import Level  # noqa: PLC0415
    from bot.operate import checks  # noqa: PLC0415
    from bot.operate.findings import findings_json, findings_lines  # noqa: PLC0415
    from bot.platform.config.policy import Config, read_config  # noqa: PLC0415
    from bot.platform.config.settings import Settings  # noqa: PLC0415
    from bot.workspace_table import checks as of_workspaces  # noqa: PLC0415

    settings = Settings.read()
    config, error = Config(repositories=()), ""
    try:
        config = read_config(settings.sweepbot_config)
        checks.require_secrets(config, os.environ)
    except UserError as wrong:  # the other checks need no configuration
        error = str(wrong)
    findings = [*checks.configuration(error), *asyncio.run(checks.run(settings, config, of_workspaces))]
    mask = settings.mask
    print(mask(findings_json(findings)) if arguments.json else without_markup(mask(findings_lines(findings))))
    return int(any(one.level is Level.BROKEN for one in findings))


if __name__ == "__main__":
    sys.exit(main())
