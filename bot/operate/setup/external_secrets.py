"""Write an installation's ExternalSecrets (external-secrets.io/v1), which have no values. Pure.

The store has the values under two keys, of which each property is one value.
"""

import json
from typing import Any

import yaml

from bot.operate.setup.answers import Answers
from bot.operate.setup.secrets_script import LOGINS, login_key
from k8s.objects import Manifest

TOKENS, LOGIN = "sweepbot", "sweepbot-registry"  # keys in the store
HEAD = """\
# The External Secrets Operator makes Sweepbot's Secrets of these. The ClusterSecretStore needs, by key:
#   sweepbot: SLACK_BOT_TOKEN, SLACK_APP_TOKEN, REDIS_PASSWORD (letters and digits only)
"""
REGISTRY_HEAD = f"#   {LOGIN}: username, password\n"
AUTH = """{{ printf "%s:%s" .username .password | b64enc | toJson }}"""


def external_secrets(answers: Answers, store: str) -> str:
    """Return the manifests. `store`: a ClusterSecretStore."""
    found, head = [_manifest("sweepbot", "sweepbot", TOKENS, store, {})], HEAD
    if answers.registry_login == "secret":
        document = f'{{"auths": {{{json.dumps(login_key(answers))}: {{"auth": {AUTH}}}}}}}'
        data = {".dockerconfigjson": document}
        template = {"template": {"type": "kubernetes.io/dockerconfigjson", "data": data}}
        found += [_manifest(namespace, name, LOGIN, store, template) for namespace, name in LOGINS]
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
