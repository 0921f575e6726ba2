"""Find the line of a failed process's log that a person would quote as the cause (Python, NCCL, CUDA, pip,
uv, launchers), and choose the lines to show. Pure.

Several processes write into one log, most failures raise others, and a launcher adds an epilogue of its
own. So each line that could be the cause gets a rank, and the last one of the highest rank counts. Linear:
every line is cut, and every repetition in a pattern is bounded or ends at the line's end.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import takewhile

LOG_LINES_SHOWN = 20
LINES_BELOW_CAUSE = 5  # a message can have several
MAX_LINE = 500  # characters of a line that are read
MAX_LINE_SHOWN, HEAD_SHOWN, TAIL_SHOWN = 1000, 300, 100  # characters: of a longer line, its head and tail
MAX_CAUSE = 200  # characters of a cause
LONG_TITLE = 40  # characters: if a longer message ends with a colon, the detail below it is the cause
LONG_MODULE = 30  # characters: a longer qualified name of an exception loses its module
STALE, STALE_IF_KILLED = 40, 3  # later lines of a training that continued after an error
NEAR_END = 12  # lines in which a sentence without any mark of an error can be the cause
WRAPPED = 3  # lines of a console that a long message continues in


class Rank(IntEnum):
    SENTENCE = 1  # says that something is wrong
    GENERIC = 2  # says that a step failed, not why
    ERROR = 3  # is marked as an error
    WRAPPER = 4  # an exception about another one
    CONSEQUENCE = 5  # what other processes report when one has failed, or is stuck
    CAUSE = 6


@dataclass(frozen=True)
class LogCause:
    text: str = ""  # such as `ValueError: unknown optimizer 'adamw' (train.py:102)`; empty: unknown
    line: str = ""  # the whole message
    number: int = -1  # of its first line in the log, from 0
    path: str = ""  # the file of the innermost frame outside of packages; empty: unknown
    row: int = 0  # of that file
    kind: str = ""  # what equal failures have in common: an exception's class, or the message without numbers


# torchrun, Ray, mpirun, srun --label, and Docker's builder put the process before each line. A progress bar
# has no end of its line when the process dies.
PREFIX = re.compile(
    r"\[(?:default|rank|trainer|worker)?(\d{1,5})\]:\s?"
    r"|\((?:\w[\w.]{0,60} )?pid=(\d{1,9})(?:, ip=[\w.:]{1,45})?\)\s?"
    r"|([\w-]{1,40}-\d{1,5}): (?=\s|[A-Z]\w)|\[\d{1,5},(\d{1,5})\]<std(?:err|out)>:\s?|(\d{1,4}): (?=\s"
    r"|[A-Z]\w)|#\d{1,4} [\d.]{1,9}\s"
    r"|\d{1,4}\.\d{1,3} (?=\s|[a-zA-Z])|.{0,300}?(?:it/s|s/it)[^\]]{0,100}\](?=[A-Za-z])"
)
TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
# Python's frames, also in a group of exceptions, and those of rich.
FRAME = re.compile(r'[\s|]*File "([^"]{1,500})", line (\d{1,9})|│ (\S{1,500}\.py):(\d{1,9}) in ')
PACKAGED = re.compile(
    r"(?:site|dist)-packages|/lib/python[\d.]{1,6}/|^<|[/\\]torch[/\\]|/bin/[^/]{1,60}$|^/tmp/__auto"
)
CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
# Tracebacks after these lines don't end a process.
IGNORED = re.compile(r"Exception ignored in|Error in atexit|Logging error|exception was never retrieved")
NAME = r"(?:[A-Za-z_]\w{0,80}\.){0,8}"
# Names of exceptions, in and outside of a traceback whose lines are mixed with others.
RAISED = re.compile(
    rf"\s*({NAME}(?:[A-Z]\w{{0,80}}|error|timeout|gaierror))(?:\(\w{{1,80}}\))?(?::\s?(.*)|\s*)$"
)
EXCEPTION = re.compile(
    rf"[\s│|>]*({NAME}\w{{0,80}}(?:Error|Exception|Interrupt|NotFound|gaierror))(?:\(\w{{1,80}}\))?(?::\s(.*)|:?\s*)$"
)
# Exceptions and lines that only repeat that something else failed.
WRAPPER = re.compile(
    r"Process(?:Raised|Exited)Exception|CalledProcessError|TrainingFailedError|WorkerCrashedError"
    r"|RayTaskError\(|ActorDiedError|BrokenProcessPool|BrokenExecutor|DatasetGenerationError"
    r"|InstantiationException|Error (?:building|compiling objects for) extension"
    r"|exited unexpectedly|multiarray failed to import|device-side assert|SystemExit"
    r"|because of the following error|Traceback \(most recent call last\)|Caught \w{1,60} in \w"
    r"|cuda runtime error \(59\)|Job failed|Failed to initialize the distributed"
)
CONSEQUENCE = re.compile(
    r"^(?:srun|slurmstepd|mpirun)\b|^\s*what\(\):\s|ncclRemoteError|(?i:connection (?:was )?(?:closed|reset"
    r"|aborted) by"
    r"|broken ?pipe|socket timeout)"
    r"|remote process exited"
    r"|communicator was aborted|Watchdog|watchdog|DistBackendError|NCCL error|recvValue failed"
    r"|SignalException"
    r"|KeyboardInterrupt|^EOFError|Timed out waiting \d{1,9}ms for (?:recv|send)|ConnectionResetError"
    r"|failed to recv, got 0 bytes|Stale|heartbeat|Execution of replica \d{1,5} failed"
)
# Lines that end a process without an exception of Python, or say why.
FATAL = re.compile(
    r"\bSegmentation fault|Bus error|\bKilled(?:$|\s{3})|Illegal instruction"
    r"|Fatal Python error: (?!Aborted)|\*\*\* stack smashing|double free or corruption"
    r"|corrupted (?:top size|double|size vs)|^(?:free|malloc|realloc|malloc_consolidate|munmap_chunk)\(\): "
    r"|^\s*what\(\):\s|Assertion [`'\"]|Check failed: |^panic: "
    r"|^[\w./-]{1,200}: error: (?!command|subprocess|metadata)|[Nn]o such option"
    r"|[Uu]nrecognized (?:or misplaced )?options: |[Mm]issing (?:option"
    r"|argument|parameter)"
    r"|: (?:command )?not found$|can't open file|executable file not found|^exec .{1,300}: "
    r"|CANCELLED AT|DUE TO TIME LIMIT|oom[-_]kill|Out of memory: Kill"
    r"|Signal \d{1,2} \(SIG\w{1,8}\) received by PID"
    r"|CUDA out of memory|RESOURCE_EXHAUSTED|CUDNN_STATUS_\w{3,60}|CUBLAS_STATUS_\w{3,60}"
    r"|CUDA (?:driver )?error"
    r"|driver version is insufficient|driver on your system is too old|NVIDIA driver"
    r"|CUDA GPUs are available|[Nn]o space left on device|[Dd]isk quota exceeded"
    r"|(?i:loss (?:is|became|was|=) ?(?:nan|inf)|(?:nan|inf) loss)|module compiled against API"
    r"|^Could not override|^Ambiguous value for argument|^mismatched input"
    r"|symbol lookup error|GLIBC(?:XX)?_[\d.]{1,9}' not found"
    r"|cannot open shared object file"
    # builds
    r"|error: command \S{1,100} failed: No such file"
    r"|fatal error: |Unknown compiler|^\s*fatal: |No matching distribution found"
    r"|(?:was|were) not found in the package registry"
    r"|^\s*E: (?:Unable to locate|Package|Version|Failed to fetch)|depends on \S{1,100}[~=<>!]"
    r"|cannot find -l|Unsupported gpu arch"
    r"|failed to authorize|DO NOT MATCH THE HASHES|Hash mismatch|is not a supported wheel"
    r"|Because .{1,800} (?:depends on|you require) "
    r"|requires (?:a different )?[Pp]ython|CMake Error|CUDA_HOME"
    r"|NoneType: None|ResolvePackageNotFound|PackagesNotFoundError|nvcc fatal|MANIFEST_UNKNOWN|COPY failed"
    r"|not found in build context"
)
# Of PyTorch's watchdog, and of NCCL's own log
STUCK = re.compile(r"Watchdog caught collective|NCCL WARN|NCCL error in:|collective operation timeout")
ERROR = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|FAILED|Fatal|FATA)\b|(?:^|[\s\]:(])(?:[Ee]rror|E):? |^E\d{4} "
    r"|: [EF] tensorflow/|\[E "
)
GENERIC = re.compile(
    r"subprocess-exited|metadata-generation|originates from a|[Ff]ailed (?:to build|building)"
    r"|ResolutionImpossible|Could not build wheels"
    r"|returned (?:a )?non-zero|exit(?:ed)? (?:with )?(?:exit )?(?:code|status)|failed \(exitcode"
    r"|Error executing job|error: command (?!\S{1,100} failed: No such)"
    r"|legacy-install|Failures:|build stopped|compilation terminated|Command errored out|exit code:"
    r"|failed to solve"
    r"|error_file|Sending process|Killing subprocess|Some errors|ld returned|make(?:\[\d\])?: \*\*\*"
    r"|bdist_wheel|FullyQualifiedErrorId|CategoryInfo|Main process received|exits with return|Cannot\s*$"
    r"|stack trace"
)
# Harmless messages with the mark of an error
HARMLESS = re.compile(
    r"^\[?W(?:ARN\w{0,6}|\d{0,4})[ \]:]|(?:User|Future|Deprecation|Runtime)Warning: "
    r"|ChildFailedError|failed \(exitcode|closing signal SIG|Unable to register cu|E tensorflow/"
    r"|failed call to cuInit|wandb: ERROR Error (?:while|up)|NUMA node"
    r"|weights of|failed-wheel-build"
)
# Warnings, progress, launchers' tables, and advice after an exception
NOISE = re.compile(
    r"^\s*$|^[\W_]*$|\[?W(?:ARN|\d{3,4})?[ \]:]|(?i:^.{0,80}warning\b)|\d{1,3}%\||it/s|HYDRA_FULL_ERROR"
    r"|^wandb: |^srun: "
    r"|^(?:real|user|sys)\s|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|For debugging|kernel errors might"
    r"|resource_tracker"
    r"|To enable traceback|^ncc?l\w{3,30}Error: |^\s*(?:time|host|rank|exitcode|error_file"
    r"|traceback)\s{1,9}:|^usage: "
    r"|^\s{1,40}\S|Root Cause|^\[notice\]|DEBUG|INFO|(?:See|see) above|^(?:hint|note): |Hint: |warnings\.warn"
)
WRONG = re.compile(
    r"(?i)\b(?:not|no|cannot|can't|couldn't|fail\w{0,4}|invalid|missing|unable|expected|must|unknown"
    r"|unsupported|abort\w{0,4}"
    r"|denied|refused|expired|exceed\w{0,3}|mismatch|diverged|corrupt\w{0,3}|unreachable|timed out|already)\b"
)
PLACE_OF_CODE = re.compile(
    r" in: \S{1,300}\.(?:cpp|cu|cc|h|hpp):\d{1,9},|^\S{0,200}/\S{1,200}\.\w{1,4}:\d{1,9}(?::\d{1,9})?: "
)
LOG_MARK = re.compile(
    r"^\[?[EFIW]\d{4} \S{1,20}\s{1,6}(?:\d{1,9} )?\S{1,120}\] |^\[[EF] ?\S{1,60}\] (?:\[c10d\] )?"
    r"|^\d{4}-\d\d-\d\d[ T][\d:.,]{5,20}Z? |^traceback\s{1,4}: "
)
INVALID = re.compile(r"\d validation errors? for \S")  # of pydantic: below it, the field, and what is wrong
SENTENCE_END = re.compile(r"[.;] (?=[A-Z])")
DIGITS = re.compile(r"0x[0-9a-f]{1,16}|\d{1,20}|'[^']{0,200}'|\"[^\"]{0,200}\"")


@dataclass
class _Stream:
    """A traceback of one process, as far as it is read."""

    open: bool = False
    inside: bool = False  # the last line was a frame or its code: an exception can follow
    ignored: bool = False
    path: str = ""
    row: str = ""
    source: str = ""


@dataclass(frozen=True)
class _Candidate:
    rank: Rank
    number: int
    name: str = ""  # of an exception, with its module
    path: str = ""
    row: str = ""  # of the file
    source: str = ""  # the code that raised it


def find_cause(log: str, *, stale: int = STALE) -> LogCause:
    """Return the cause that the end of a failed process's log names; an empty one if it names none.

    Args:
        stale: ordinary lines after an error that show that the training survived it.
    """
    lines = [line[:MAX_LINE] for line in log.splitlines()]
    rows, candidates = _read(lines, stale)
    if not candidates:
        return LogCause()
    best = max(candidates, key=lambda each: (each.rank, each.number))
    return _told(_raised_first(best, candidates, rows), rows)


def _raised_first(best: _Candidate, candidates: Sequence[_Candidate], rows: Sequence[str]) -> _Candidate:
    """Return the exception with the place where it was first raised: pools raise it again in their parent."""
    row = rows[best.number]
    inner = next((each for each in candidates if each.path and rows[each.number] == row), best)
    if not any(map(CHAINED.search, rows[inner.number : best.number])):
        return best
    return replace(inner, number=best.number)


def quoted(log: str, cause: LogCause) -> str:
    """Return the last lines of a log; if its cause is above them, the lines around it."""
    lines = log.splitlines()
    end = len(lines)
    if 0 <= cause.number < end - LOG_LINES_SHOWN:  # launchers and other processes end later
        end = cause.number + 1 + LINES_BELOW_CAUSE
    return "\n".join(map(_shown, lines[max(end - LOG_LINES_SHOWN, 0) : end]))


def _shown(line: str) -> str:
    """Cut the middle of a long line, such as pip's list of all versions of a package: it fills a phone."""
    return line if len(line) <= MAX_LINE_SHOWN else f"{line[:HEAD_SHOWN]} … {line[-TAIL_SHOWN:]}"


def _read(lines: Sequence[str], stale: int) -> tuple[list[str], list[_Candidate]]:
    """Return the lines without their processes, and what could be the cause.

    An error that a training survived is none: ordinary lines follow it.
    """
    rows: list[str] = []
    found: list[tuple[_Candidate, int]] = []
    streams: dict[str, _Stream] = {}
    ordinary = 0
    for number, line in enumerate(lines):
        prefix = PREFIX.match(line)
        row = line[prefix.end() :] if prefix else line
        stream = streams.setdefault(next(filter(None, prefix.groups()), "") if prefix else "", _Stream())
        if each := _candidate(stream, row, number, end=len(lines)):
            found.append((each, ordinary))
        elif not (NOISE.search(row) or GENERIC.search(row) or HARMLESS.search(row)):
            ordinary += 1
        rows.append(row)
    return rows, [each for each, before in found if ordinary - before <= stale]


def _candidate(stream: _Stream, row: str, number: int, *, end: int) -> _Candidate | None:
    if HARMLESS.search(row):
        return None
    if IGNORED.search(row):
        stream.ignored = True
    if TRACEBACK.search(row) and not EXCEPTION.match(row):
        stream.open, stream.path, stream.row, stream.source = True, "", "", ""
        return None
    if frame := FRAME.match(row):
        path, place = frame[1] or frame[3], frame[2] or frame[4]
        if not PACKAGED.search(path):
            stream.path, stream.row = path, place
        stream.source, stream.inside = "", True
        return None
    raised = (RAISED if stream.open and stream.inside else EXCEPTION).match(row) or EXCEPTION.match(row)
    if raised and not row.startswith("nccl"):
        return _exception(stream, raised, row, number)
    stream.inside = stream.inside and row.startswith((" ", "\t"))
    if stream.inside and "^" not in row:
        stream.source = row.strip()
    rank = _rank(row, near_end=end - number <= NEAR_END)
    return _Candidate(rank, number) if rank else None


def _exception(stream: _Stream, raised: re.Match[str], row: str, number: int) -> _Candidate:
    rank = Rank.CAUSE
    if stream.ignored:
        rank = Rank.GENERIC
    elif WRAPPER.search(row) or not (raised[2] or stream.open):
        rank = Rank.WRAPPER
    elif CONSEQUENCE.search(row):
        rank = Rank.CONSEQUENCE
    found = _Candidate(rank, number, raised[1], stream.path, stream.row, stream.source)
    stream.open = stream.ignored = stream.inside = False
    return found


def _rank(row: str, *, near_end: bool) -> Rank | None:
    """Return the rank of a line that is no exception of Python; None if it can't be a cause."""
    if STUCK.search(row):
        return Rank.CONSEQUENCE
    if FATAL.search(row) and not re.match(r"\[?W\d{0,4}[ \]]", row):
        if CONSEQUENCE.search(row):
            return Rank.CONSEQUENCE
        return Rank.GENERIC if GENERIC.search(row) else Rank.CAUSE
    if NOISE.search(row) and not ERROR.search(row):
        return None
    if WRAPPER.search(row) or GENERIC.search(row):
        return Rank.GENERIC if ERROR.search(row) else None
    if ERROR.search(row):
        return Rank.ERROR
    return Rank.SENTENCE if near_end and WRONG.search(row) else None


def _told(found: _Candidate, rows: Sequence[str]) -> LogCause:
    line = _message(found, rows)
    name = found.name.rpartition(".")[2] if len(found.name) > LONG_MODULE else found.name
    text = name + line.removeprefix(found.name) if line.startswith(found.name) else line
    text = PLACE_OF_CODE.sub(lambda match: ":" if match[0].startswith(" in") else "", text)
    if found.source.startswith("assert") and text == name:
        text = f"{name}: {found.source}"
    file = found.path.replace("\\", "/").rpartition("/")[2]
    place = f" ({file}:{found.row})" if file else ""
    kind = found.name or DIGITS.sub("", line)[:80]
    return LogCause(_shortened(text) + place, line, found.number, found.path, int(found.row or 0), kind)


def _message(found: _Candidate, rows: Sequence[str]) -> str:
    """Return the message of a candidate: of one that ends with a colon, what it announces."""
    text, rest = rows[found.number], rows[found.number + 1 : found.number + 1 + NEAR_END]
    for row in rest[:WRAPPED]:  # a narrow console
        if not text.endswith(" ") or not row.strip() or row.startswith(" ") or len(text) < LONG_MODULE / 2:
            break
        text += row
    text = LOG_MARK.sub("", text.strip(" \t│|"))
    told = [row.strip() for row in rest if row.strip()]
    if framed := _framed(text, rest, told):
        return framed
    if "Graph execution error" in text:  # of TensorFlow: what failed is above the name of the node
        node = next((n for n, row in enumerate(rows) if n > found.number and "[[{{node" in row), 0)
        return rows[node - 1].strip() if node else text
    if "root error(s) found" in text and told:  # of TensorFlow: "(0) Resource exhausted: …"
        return told[0].removeprefix("(0) ")
    if INVALID.search(text):
        return ": ".join([text, *(row for row in told[:2] if not row.startswith("For further"))])
    if text.endswith(":") and told:
        if inner := next((row.strip() for row in rest if EXCEPTION.match(row)), ""):
            return inner
        is_detail = found.name and len(text) > LONG_TITLE and rest[0].startswith((" ", "\t"))
        return told[0] if is_detail else f"{text} {told[0]}"
    if "NCCL error in" in text:
        last = next((n for n, row in enumerate(told) if row.startswith("Last error")), len(told))
        return " ".join([text, *told[last + 1 : last + 2]])
    return text.removeprefix("what():").strip()


def _framed(text: str, rest: Sequence[str], told: Sequence[str]) -> str:
    """Return what stands in a box, as of Typer and tyro, or at a branch, as of uv, wrapped; else ""."""
    if text.startswith("╭"):
        inside = takewhile(lambda row: any(map(str.isalnum, row)), told)
        return " ".join(row.strip("│ ") for row in inside) or text
    if not text.startswith("╰─▶ "):
        return ""
    more = takewhile(lambda row: row.startswith(" ") and row.strip(), rest)
    return " ".join([text.removeprefix("╰─▶ "), *map(str.strip, more)])


def _shortened(text: str) -> str:
    """Cut a long message after its last complete sentence, else after a word."""
    text = " ".join(text.split()).rstrip(".")
    if len(text) <= MAX_CAUSE:
        return text
    ends = [match.start() + 1 for match in SENTENCE_END.finditer(text, 0, MAX_CAUSE)]
    return text[: ends[-1]].rstrip(";.") if ends else f"{text[:MAX_CAUSE].rpartition(' ')[0]} …"
