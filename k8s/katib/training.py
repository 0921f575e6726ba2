"""Build the shell line of a trial, which forwards SIGTERM, copies its output, and outlasts the start of
Katib's metrics collector, and the collector's spec.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from k8s.katib.reader import Reader
from k8s.objects import Manifest

TRIAL_NAME = "${trialParameters.trialName}"  # what Katib replaces by the trial's name
TENSORBOARD_DIR = "/var/log/katib/tfevent/"
FOLDER = "/var/log/katib"
LOG = f"{FOLDER}/metrics.log"
FIFO = f"{FOLDER}/training.fifo"
# In a trial of several pods, Katib mounts its volume for the first one only.
FOLDER_OR_TMP = f"k={FOLDER}; [ -d $k ] || k=/tmp; "
# The shell lasts at least so many seconds: the collector starts later, and fails unless it finds the shell's
# process (kubeflow/katib#2181). That of TensorBoard first imports TensorFlow: 12 s with 500m of CPU.
COLLECTOR_SECONDS = {"TensorFlowEvent": 60, "File": 20, "StdOut": 20}
COLLECTOR_VARIABLE = "SWEEPBOT_COLLECTOR_SECONDS"  # of the training: replaces these seconds
# Of namespaces whose pods Katib's webhook reviews.
INJECTION_LABEL = "katib.kubeflow.org/metrics-collector-injection"
FLUSH_DELAY = 1  # seconds in which `tee` writes the last lines of a training that failed


@dataclass(frozen=True, kw_only=True)
class Collector:
    """How Katib gets the metrics of a trial."""

    kind: str = "TensorFlowEvent"  # TensorFlowEvent | File | Push
    path: str = TENSORBOARD_DIR  # directory of events, or file of lines; the webhook mounts a volume there
    filter: str = ""  # of File: a regular expression with two groups, the name and the value
    tee: bool = False  # of File: whether Sweepbot copies the training's output into the file
    reader: Reader | None = None  # of Push: Sweepbot's own, which reports what is in TENSORBOARD_DIR


def metrics_collector_spec(collector: Collector) -> Manifest:
    if collector.kind == "Push":
        return {"collector": {"kind": "Push"}}
    if collector.kind == "File":
        place = {"kind": "File", "path": collector.path, "format": "TEXT"}
        source = {"fileSystemPath": place, "filter": {"metricsFormat": [collector.filter]}}
        return {"collector": {"kind": "File"}, "source": source}
    place = {"kind": "Directory", "path": collector.path}
    return {"collector": {"kind": collector.kind}, "source": {"fileSystemPath": place}}


def shell(
    command: str, arguments: str, collector: Collector, directory: str = "", *, several: bool = False
) -> str:
    """Return the training's one shell line. `$` in both texts is doubled, except in Katib's placeholders.

    Katib joins `sh -c` words unquoted and appends `&& echo completed > marker`, for StdOut after
    `1>file 2>&1`: the line is one word, braces make the redirect apply to all of it, the command runs in a
    subshell (an `exec` or `exit` in it would skip the marker), and `&&` keeps its exit code. Kubernetes
    expands `$(NAME)` and `$$` in args.

    When a pod is deleted, only this shell gets SIGTERM. A shell handles a signal after its foreground command
    has exited, so the training runs in the background and the trap forwards the signal. The subshell becomes
    the command's last program (dash, bash, and BusyBox exec it), so that program gets the signal, and none of
    its children, such as data loaders. The exit code is 143 even if the training exits with 0: it didn't
    complete.

    The training is the shell's only child, because Katib's early stopping terminates that one and fails if
    there are more: `tee` is started by a subshell that exits.

    `directory`: created first; an absolute path without characters that are special in a shell. `several`:
    whether the trial has several pods, which all run this line.
    """
    training = f"( {command}{arguments and ' '}{arguments} )"
    flush = f"sleep {FLUSH_DELAY}; " if collector.tee else ""
    trap = f"trap 'kill -TERM $p; wait $p; {flush}exit 143' TERM"
    end = "wait $p && trap - TERM"
    made = f"mkdir -p {directory} || exit 1; " if directory else ""
    if seconds := COLLECTOR_SECONDS.get(
        collector.kind
    ):  # monotonic: the clock can be set during the training
        made += "IFS=. read b _ < /proc/uptime; "
        left = f"$((b + ${{{COLLECTOR_VARIABLE}:-{seconds}}} - n))"
        end += f" && {{ IFS=. read n _ < /proc/uptime; w={left}; [ $w -le 0 ] || sleep $w; }}"
    if collector.tee:
        end = f"{end} || {{ r=$?; {flush}( exit $r ); }}"
    setup, output = _setup(collector), _output(collector)
    if several:
        setup, output = _for_all_pods(collector, setup), output.replace(FOLDER, "$k")
    return f"{{ {made}{setup}{training}{output} & p=$!; {trap}; {end}; }}"


def _for_all_pods(collector: Collector, setup: str) -> str:
    """Return the setup for pods with and without Katib's volume."""
    if collector.tee:
        return FOLDER_OR_TMP + setup.replace(FOLDER, "$k")
    if collector.kind == "File":
        folder = str(PurePosixPath(collector.path).parent)
        return f"( mkdir -p {folder} && : >> {collector.path} ) 2> /dev/null; "
    return setup


def _setup(collector: Collector) -> str:
    if collector.tee:
        return (
            f"mkfifo {FIFO} && command -v tee > /dev/null || exit 127; ( tee {collector.path} < {FIFO} & ); "
        )
    # The collector fails if there is no file.
    return f": >> {collector.path}; " if collector.kind == "File" else ""


def _output(collector: Collector) -> str:
    return f" > {FIFO} 2>&1" if collector.tee else ""
