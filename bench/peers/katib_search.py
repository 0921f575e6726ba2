"""Katib's suggestion services, by their own code. `python bench/peers/katib_search.py hyperopt|optuna`

Needs a clone of Katib in PYTHONPATH, as in its services' Dockerfiles. Each line of the input is a
GetSuggestionsRequest in the JSON of protobuf, and each line of the output the reply's assignments. Katib
starts one service for each experiment, so each name of an experiment gets one of its own.
"""

import json
import logging
import sys
from importlib import import_module
from typing import Any

from google.protobuf import json_format

ENGINE = sys.argv[1]


def main() -> None:
    api = import_module("pkg.apis.manager.v1beta1.python.api_pb2")
    module = import_module(f"pkg.suggestion.v1beta1.{ENGINE}.service")
    logging.disable()
    services: dict[str, Any] = {}
    for line in sys.stdin:
        request = json_format.Parse(line, api.GetSuggestionsRequest())
        name = request.experiment.name
        if name not in services:
            services[name] = getattr(module, f"{ENGINE.capitalize()}Service")()
        reply = services[name].GetSuggestions(request, None)
        rows = [{each.name: each.value for each in row.assignments} for row in reply.parameter_assignments]
        print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
