"""Find the fix for a training that failed with a well-known line at the end of its log. Pure."""

import re

from bot.health.evidence import TrialEvidence

DEBUG = "Run the command locally to debug it."
# Lines of Python, argparse, click, absl, and numpy.
FIXES = {
    r"unrecognized arguments:|[Nn]o such option|Unknown command line flag": (
        "Make the program accept the argument that its log names, or change `command:`, `parameters:`, or "
        "`flags:` in the space file."
    ),
    r"arguments are required:|Missing (option|argument)": (
        "Add the argument to `command:` in the space file, or give it a default in the program."
    ),
    r"can't open file .{1,300}No such file": (
        "Correct the path in `command:` of the space file. The image has only committed files."
    ),
    r"^ModuleNotFoundError|: No module named ": (
        "Add the package to the build file, for example `requirements.txt`."
    ),
    r"^MemoryError|Unable to allocate .{1,40} for an array": (
        "Keep less data in memory, or request more with a larger `profile=` or `gpus=`."
    ),
}


def crash_fix(evidence: TrialEvidence) -> str:
    """Return the fix for the first of these lines in the part of the log that is shown."""
    return next(
        (fix for pattern, fix in FIXES.items() if re.search(pattern, evidence.tail, re.MULTILINE)), DEBUG
    )
