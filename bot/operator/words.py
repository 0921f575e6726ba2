"""The names of the operators' commands, for the command line and for Slack. Pure."""

COMMANDS = {
    "ps": "list unfinished sweeps and failing jobs, those in trouble first",
    "inspect": "print why a sweep doesn't continue, with its record, objects, and last errors",
    "retry": "reconcile a sweep now instead of after its delay",
    "release": "release a sweep or job from quarantine",
    "recover": "restore from ConfigMaps the records that Redis lost, and reconcile all unfinished sweeps",
}
ABOUT_ONE = {"inspect", "retry", "release"}  # need a name
MAX_NAME = 300  # characters
