"""Write the shell script that prints an installation's Secrets, so that no file has them. Pure."""

import shlex

from bot.operate.setup.answers import Answers

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
