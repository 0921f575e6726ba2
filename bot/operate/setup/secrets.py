"""Write where an installation's Secrets come from, so that no file has them: the script secrets.sh, or
ExternalSecrets. Pure.

A shell script prints them, or ExternalSecrets (external-secrets.io/v1) make them of a store, which has
the values under two keys: each property is one value.
"""

import json
import shlex
from typing import Any

import yaml

from bot.operate.setup.answers import Answers
from k8s.objects import Manifest

HUB, HUB_KEY = "docker.io", "https://index.docker.io/v1/"
LOGINS = (("sweeps", "registry-push"), ("sweeps", "registry-pull"), ("sweepbot", "registry"))

HEAD = r"""#!/bin/sh
# Print Sweepbot's Secrets, which no file here has. Values come from variables, or are asked for, unseen:
#   sh secrets.sh | kubectl apply -f -
#   sh secrets.sh | kubeseal --format yaml > sealed.yaml    # for git: list sealed.yaml in the resources
# A second run makes another Redis password, unless REDIS_PASSWORD is set. Then restart both:
#   kubectl -n sweepbot rollout restart statefulset/sweepbot-redis deployment/sweepbot-work
set -eu
trap 'exit 130' INT
trap '{ stty echo < /dev/tty; } 2> /dev/null || :' EXIT

ask() { # NAME
  eval "value=\${$1:-}"
  if [ -z "$value" ]; then
    stty -echo < /dev/tty
    printf '%s: ' "$1" > /dev/tty
    IFS= read -r value < /dev/tty
    stty echo < /dev/tty
    echo > /dev/tty
  fi
  [ -n "$value" ] || { echo "$1 is empty." >&2; exit 2; }
  eval "$1=\$value"
}

encode() {
  base64 | tr -d '\n'
}

ask SLACK_BOT_TOKEN # xoxb-...
ask SLACK_APP_TOKEN # xapp-...
REDIS_PASSWORD=${REDIS_PASSWORD:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}
"""
REGISTRY = """\
ask REGISTRY_USERNAME
ask REGISTRY_PASSWORD
auth=$(printf '%s:%s' "$REGISTRY_USERNAME" "$REGISTRY_PASSWORD" | encode)
login=$(printf '{"auths":{"%s":{"auth":"%s"}}}' KEY "$auth" | encode)
"""
BOT = """
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: sweepbot, namespace: sweepbot}
data:
  SLACK_BOT_TOKEN: $(printf %s "$SLACK_BOT_TOKEN" | encode)
  SLACK_APP_TOKEN: $(printf %s "$SLACK_APP_TOKEN" | encode)
  REDIS_PASSWORD: $(printf %s "$REDIS_PASSWORD" | encode)
"""
LOGIN = """\
---
apiVersion: v1
kind: Secret
type: kubernetes.io/dockerconfigjson
metadata: {name: NAME, namespace: NAMESPACE}
data: {.dockerconfigjson: $login}
"""
# Of ExternalSecrets.
TOKENS, REGISTRY_KEY = "sweepbot", "sweepbot-registry"  # keys in the store
EXTERNAL_HEAD = """\
# The External Secrets Operator makes Sweepbot's Secrets of these. The ClusterSecretStore needs, by key:
#   sweepbot: SLACK_BOT_TOKEN, SLACK_APP_TOKEN, REDIS_PASSWORD (letters and digits only)
"""
REGISTRY_HEAD = f"#   {REGISTRY_KEY}: username, password\n"
AUTH = """{{ printf "%s:%s" .username .password | b64enc | toJson }}"""


def login_key(answers: Answers) -> str:
    """Return the key of the registry's login, as `docker login` writes it."""
    host = answers.host.partition("/")[0]
    return HUB_KEY if host == HUB else host


def secrets_script(answers: Answers) -> str:
    """Return a script for any POSIX shell."""
    asked = printed = ""
    if answers.registry_login == "secret":
        asked = REGISTRY.replace("KEY", shlex.quote(login_key(answers)), 1)
        named = [LOGIN.replace("NAMESPACE", namespace).replace("NAME", name) for namespace, name in LOGINS]
        printed = "".join(named)
    return f"{HEAD}{asked}{BOT}{printed}END\n"


def external_secrets(answers: Answers, store: str) -> str:
    """Return the manifests. `store`: a ClusterSecretStore."""
    found, head = [_manifest("sweepbot", "sweepbot", TOKENS, store, {})], EXTERNAL_HEAD
    if answers.registry_login == "secret":
        document = f'{{"auths": {{{json.dumps(login_key(answers))}: {{"auth": {AUTH}}}}}}}'
        data = {".dockerconfigjson": document}
        template = {"template": {"type": "kubernetes.io/dockerconfigjson", "data": data}}
        found += [_manifest(namespace, name, REGISTRY_KEY, store, template) for namespace, name in LOGINS]
        head += REGISTRY_HEAD
    return head + yaml.safe_dump_all(found, sort_keys=False, width=1000)


def _manifest(namespace: str, name: str, key: str, store: str, template: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "refreshInterval": "1h",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": store},
            "target": {"name": name, **template},
            "dataFrom": [{"extract": {"key": key}}],
        },
    }
