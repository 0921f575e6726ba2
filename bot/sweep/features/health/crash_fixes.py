"""Find the fix for a training that failed with a well-known message: about arguments, a missing file or
module, an import, or too little RAM. Pure.
"""

from bot.platform.pod_health.evidence import TrialEvidence

DEBUG = "Run the command locally to debug it."
# Lines of Python, argparse, jsonargparse, click, tyro, absl, fire, Hydra, Hugging Face, nanoGPT, and numpy.
FIXES = {
    r"(?i)(unrecognized|no such|unknown|consume|override|not used).{1,300}tensorboard[_-]dir\b": (
        "Add the arguments shown in the log to the program. `--tensorboard_dir` isn't passed with "
        "`metrics: stdout`, which reads the metric from the output."
    ),
    r"ignored explicit argument|does not take a value|^Unrecognized options: (true|false)$": (
        "This flag takes no value: set `booleans: switch` in the space file."
    ),
    r"[Uu]nrecognized (arguments|options|or misplaced options):|[Nn]o such option|Unknown command line flag"
    r"|Could not consume arg:|^Could not override|are not used by the HfArgumentParser|Unknown config key:": (
        "Add the argument shown in the log to the program, or change `command:`, `parameters:`, `flags:`, or "
        "`booleans:` in the space file."
    ),
    r"arguments are required:|Missing (option|argument)": (
        "Add the argument to `command:` in the space file, or give it a default in the program."
    ),
    r"can't open file .{1,300}No such file": (
        "Correct the path in `command:` of the space file. The image contains only committed files."
    ),
    r"^ModuleNotFoundError|: No module named ": (
        "Add a package to the build file, for example `requirements.txt`. If it's your own code, check its "
        "name, that `Dockerfile` and `.dockerignore` let it into the image, and that `PYTHONPATH` has its "
        "directory."
    ),
    r"attempted relative import ": (
        "Run the file as a module of its package, such as `python -m package.train`, in `command:` of the "
        "space file."
    ),
    r"^MemoryError|Unable to allocate .{1,40} for an array|^std::bad_alloc|DefaultCPUAllocator: ": (
        "Keep less data in memory, or request more memory with a larger `profile=` or `gpus=`."
    ),
}


def crash_fix(evidence: TrialEvidence) -> str:
    return next((fix for pattern, fix in FIXES.items() if evidence.failed_with(pattern)), DEBUG)
