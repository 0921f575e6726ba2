"""Mask secrets in text from other systems: the installation's own, and known forms of secrets. Pure.

docs/security.md lists the forms; a test compares the two.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from bot.text.terminal import without_escapes

MASKED = "***"
MAX_RENEWED = 50  # secrets that replaced others while a process runs; older ones have ended
MIN_SECRET = 6  # characters of a secret known only by its variable's name: USE_TOKEN=true isn't one
# Names of variables with secrets: of MLflow, package indexes, clouds, and git.
# Some settings hold the names of Kubernetes Secrets, which messages must show.
SECRET_NAME = re.compile(
    r"(?!(?:IMAGE_REGISTRY|IMAGE_PUSH|BUILD_NETWORK|MLFLOW)_SECRET$)(?:GIT_PASSWORD_.*|.*(?:PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRET"
    r"|(?:API|ACCESS|ACCOUNT|PRIVATE|SECRET)_?KEY))",
    re.IGNORECASE,
)

URL_LOGIN = re.compile(r"([a-z]+)://([^\s/\"'<>]*)@")
URL_PASSWORD = re.compile(r"[?&](?:sentinel_)?password=([^&\s\"']+)")

# Between a name and its value, in JSON, YAML, shells and URLs, and in a container's `env:`.
QUOTE = r"\\?[\"']?"
SEPARATOR = (
    rf"{QUOTE}(?:\](?=[ \t]?=[ \t]?[\"']))?"
    rf"(?:[ \t]{{0,30}}[:=][ \t]{{0,30}}|,?\s{{1,40}}{QUOTE}(?i:value){QUOTE}[:=][ \t]{{0,2}}){QUOTE}"
)
# Before long values, which few words are: also in a call, a table, and a Dockerfile's ENV.
LOOSE_SEPARATOR = rf"(?:{SEPARATOR}|\\?[\"'], ?\\?[\"']|[ \t]{{1,4}}(?:\| ?)?)"
AFTER_OPTION = rf"{QUOTE}(?:=|,?[ \t]{{1,2}}){QUOTE}"  # of a command line, also as a list
# Within quotes, a generated password can have any sign, and a passphrase has spaces.
PLAIN_VALUE = r"(?:(?<=\")[^\"\\\n]{6,200}(?=\\?\")|(?<=')[^'\\\n]{6,200}(?=\\?')|[^\s\"'`,;&\\]{6,})"
# `password: must be set` is prose: after a colon and a space, a lowercase word isn't a secret.
SECRET_AFTER_NAME = rf"(?:(?<![: ] )|(?![a-z]{{1,200}}(?:[\s.,;:!?)]|\Z))){PLAIN_VALUE}"
# Long, with a digit and a letter: `tokens=2048` and `eos_token: <|endoftext|>` aren't secrets.
# Neither is a path of short names, such as /etc/keys or ~/keys; base64 can begin with a slash.
PATH = r"(?:\.{1,2}|~|/[a-z]{3,20})/(?![^\s\"']{0,200}[\w+=-]{16})"
RANDOM_VALUE = rf"(?!{PATH})(?=[^\s\"']{{0,200}}[0-9])(?=[^\s\"']{{0,200}}[A-Za-z])[\w.~+/=%-]{{16,}}"
NAMED_KEYS = (
    "api access account auth encryption kaggle openai private secret signing storage subscription wandb"
)
KEY_NAMES = "|".join(f"(?<=(?i:{name}{dash}key))" for name in NAMED_KEYS.split() for dash in ("", "_", "-"))
KEY_NAMES += "|(?<=[A-Z0-9]_KEY)"  # a variable such as AZURE_KEY

KEY_END = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Backward: a line of base64, whose break can be escaped, and what a log has before each line, such as a time.
KEY_LINE = (
    r"[ \t]*(?:\n\r?|n\\{1,4}(?:r\\{1,4})?)[ \t\"']*[\w+/=]{LEAST,4000}?(?=[ \t\"']*(?:\n|n\\)|[^\w+/=]|\Z)"
)
ANY_LINE, LONG_LINE = (KEY_LINE.replace("LEAST", least) for least in ("1", "40"))
BEFORE_LINE = r"[^\w+/=\n][^\n]{0,200}(?=\n)"
# Short lines are the last one, and a PGP key's checksum.
KEY_LINES = re.compile(rf"(?:{ANY_LINE}|{BEFORE_LINE}(?:{ANY_LINE}{BEFORE_LINE}){{0,2}}{LONG_LINE})+")
MAX_KEY = 20_000  # characters


@dataclass(frozen=True)
class Form:
    """A form that identifies a secret. Group 1 of the expression isn't masked."""

    name: str  # as in docs/security.md
    pattern: re.Pattern[str]


def _forms(name: str, *patterns: str) -> list[Form]:
    return [Form(name, re.compile(pattern)) for pattern in patterns]


# What keys of other services begin with, which docs/security.md lists; the second ones have several parts.
PREFIXES = (
    *("sk_live_", "sk_test_", "rk_live_", "rk_test_", "gsk_", "r8_", "fw_", "jina_", "pplx-", "rpa_", "xai-"),
    *("AKCp", "do[opr]_v1_", "sbp_", "ntn_", "secret_", "AGE-SECRET-KEY-1", "ops_eyJ", "napi_"),
)
PREFIXES_OF_PARTS = (
    *("lsv2_[ps][kt]_", "pcsk_", "tvly-", "tgp_v1_", "gl(?:sa|c)_", "tskey-", "pscale_", "sntry[su]_"),
    r"\.atlasv1\.",
)

# A log of 1 MiB passes through all of these in linear time: each starts with letters or sets of letters,
# which `re` finds quickly, and every repetition is bounded or ends at a character that it can't contain.
FORMS = (
    *_forms(
        "private keys",
        r"()-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----)){0,20000}"
        r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        # The same in base64, as in a kubeconfig.
        r"()LS0tLS1CRUdJTi(?:BQUklW|BSU0Eg|BFQyBQ|BPUEVO|BFTkNS|BEU0Eg)[\w+/=]{40,}",
    ),
    # A user has no comma: in CSV, `s3://data,model@v2` is two cells.
    *_forms(
        "user and password in a URL",
        r"(://)(?!git@|@)[^\s/|<>\"',:]{0,500}(?::[^\s/|<>\"']{0,500})?(?=@)",
    ),
    *_forms(
        "`Authorization` headers",
        r"([Bb](?i:earer) +)(?=[^\s]{0,200}[A-Z0-9.])[\w.~+/-]{8,}=*",
        r"([Bb](?i:asic) +)(?=\w[\w+/]{0,200}[A-Z0-9+/=])[\w+/]{8,}=*",
        rf"([Aa](?i:uthorization){SEPARATOR}(?i:token|key|api-?key|digest|negotiate) ){PLAIN_VALUE}",
        rf"([Aa](?i:uthorization){SEPARATOR}){RANDOM_VALUE}",
    ),
    *_forms("Slack tokens", r"()xox[a-z]-[\w-]+", r"()xapp-[\w-]+"),
    *_forms("one-time URLs of Slack", r"(ticket=)[\w-]+", r"(hooks\.slack(?:-gov)?\.com/)[\w/-]+"),
    *_forms(
        "webhooks of Discord and Teams, tokens of Telegram bots",
        r"(discord(?:app)?\.com/api/webhooks/)[\w/-]+",
        r"(\.webhook\.office\.com/webhookb2/)[\w@/-]+",
        r"()AA(?<=[0-9]:AA)[\w-]{33}",
    ),
    *_forms("Sweepbot's own tokens", r"()swb_[\w-]{20,}"),
    *_forms("secrets of webhooks", r"()whsec_[A-Za-z0-9+/]{20,}=*"),
    *_forms("GitHub tokens", r"()gh[pour]_[A-Za-z0-9]{20,}", r"()ghs_[\w.-]{20,}", r"()github_pat_\w{20,}"),
    *_forms(
        "GitLab tokens",
        r"()gl(?:pat|ptt|dt|rt|cbt|oas|ft|soat|imt|agent)-[\w.-]{16,}",
        r"()GR1348941[\w-]{16,}",
    ),
    *_forms("Atlassian and Bitbucket tokens", r"()AT[AC]TT3[\w=-]{60,}", r"()ATBB[A-Za-z0-9]{32}"),
    *_forms("Hugging Face tokens", r"()hf_[A-Za-z0-9]{20,}", r"()api_org_[A-Za-z0-9]{20,}"),
    *_forms(
        "Weights & Biases keys",
        r"()wandb_v1_\w{20,}",
        r"()local-[0-9a-f]{40}",
        r"(wandb login (?:--[\w=:/.-]{1,100} ){0,4})[0-9a-f]{40}",
        r"(wandb\.login\([^)\n]{0,100}?[\"'])[0-9a-f]{40}",
    ),
    *_forms("Neptune tokens", r"()eyJhcGlf[\w+/]{40,}=*"),
    *_forms(
        "Kaggle keys",
        r"()KGAT_[0-9a-f]{32}",
        r"(\"username\": ?\"[^\"\n]{1,100}\", ?\"key\": ?\")[0-9a-f]{32}",
    ),
    *_forms("NVIDIA keys", r"()nvapi-[\w-]{40,}"),
    *_forms("Databricks tokens", r"()dapi[0-9a-f]{32}"),
    *_forms("tokens of HashiCorp Vault", r"()hv[bsr]\.[\w-]{20,}"),
    *_forms("PyPI tokens", r"()pypi-[\w-]{40,}"),
    *_forms("npm tokens", r"()npm_[A-Za-z0-9]{30,}"),
    *_forms("Docker Hub tokens", r"()dckr_[a-z]{3}_[\w-]{16,}"),
    # Not every word behind /t/: forums have their topics there.
    *_forms(
        "tokens of Conda channels",
        r"(/t/)(?:[a-z]{2}-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}",
        r"()pfx_[A-Za-z0-9]{20,}",
    ),
    *_forms(
        "AWS access keys, EKS tokens",
        r"()A(?:KI|SI|BI)A[0-9A-Z]{16}",
        r"()k8s-aws-v1\.[\w-]{20,}",
        r"()ABSK[\w+/]{60,}=*",
        r"()IQoJb3JpZ2lu[\w+/%]{60,}=*",
        r"()FwoGZXIvYXdz[\w+/%]{60,}=*",
    ),
    *_forms(
        "Google keys",
        r"()AIza[\w-]{30,}",
        r"()ya29\.[\w-]{20,}",
        r"()1//0[\w-]{40,}",
        r"()GOCSPX-[\w-]{20,}",
        r"()GOOG1[A-Z0-9]{50,}",
    ),
    *_forms(
        "OpenAI and Anthropic keys",
        r"()sk-(?:(?:proj|ant|or|svcacct|admin|lf|None)-[\w-]{16,}|[A-Za-z0-9]{32,})",
    ),
    *_forms(
        "keys of other services",
        *(rf"(){prefix}[\w.=-]{{28,}}" for prefix in PREFIXES_OF_PARTS),
        *(rf"(){prefix}[A-Za-z0-9]{{20,}}" for prefix in PREFIXES),
        r"()sk_[0-9a-f]{48}",
        r"()dp\.[a-z]{2,5}\.(?:[\w-]{1,40}\.)?[A-Za-z0-9]{40,}",  # `ddp.model.layers.0` is a module
        r"()SG\.[\w-]{20,24}\.[\w-]{40,}",
    ),
    *_forms("JSON Web Tokens", r"()eyJ(?<![\w-]eyJ)[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    *_forms(
        "signatures in URLs",
        r"(X-(?:Amz|Goog)-(?:Signature|Security-Token|Credential)=)[^&\s]+",
        r"([?&](?:sig|Signature)=)[\w%+/=~-]{16,}",
    ),
    *_forms(
        "values named password, passphrase, or secret",
        rf"([Pp][Aa][Ss][Ss](?i:word|wd|phrase){SEPARATOR}){SECRET_AFTER_NAME}",
        rf"([Ss][Ee][Cc][Rr][Ee][Tt]{SEPARATOR}){SECRET_AFTER_NAME}",
        rf"(--(?:password|passwd|passphrase|secret){AFTER_OPTION}){PLAIN_VALUE}",
        rf"([Pp][Aa][Ss][Ss]word[ \t]{{1,2}}){RANDOM_VALUE}",  # of a .netrc
        r"(curl {1,4}(?:\S{1,300} {1,4}){0,20}?(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,100}:)[^\s\"']+",
        r"((?:docker|podman|helm registry) login {1,4}(?:[^\s;&|]{1,300} {1,4}){0,10}?-p[ =]?[\"']?)"
        r"[^\s\"'-][^\s\"']*",
    ),
    *_forms(
        "long values named token, API key, or auth",
        rf"([Tt][Oo][Kk][Ee][Nn]{LOOSE_SEPARATOR}){RANDOM_VALUE}",
        rf"([Kk][Ee][Yy](?:{KEY_NAMES}){LOOSE_SEPARATOR}){RANDOM_VALUE}",
        rf"(\"auth\\?\"{LOOSE_SEPARATOR}){RANDOM_VALUE}",
        rf"(--(?<![\w-]--)(?=[a-z])[\w-]{{0,40}}?(?:token|secret|key){AFTER_OPTION}){RANDOM_VALUE}",
    ),
)


class Mask:
    """Replaces secrets in a text, including their escaped forms in URLs, Python, JSON, and Slack's mrkdwn.

    A terminal's escape sequences are removed, because they can split a secret. Idempotent.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secrets)
        self._renewed = dict[str, None]()  # the newest last
        self.add(())

    def add(self, renewed: Iterable[str]) -> None:
        """Mask these, too, from now on: secrets that other systems have replaced, such as logins that end."""
        new = dict.fromkeys(renewed)
        kept = {each: None for each in self._renewed if each not in new}
        self._renewed = dict.fromkeys([*kept, *new][-MAX_RENEWED:])
        looks = {
            look
            for each in (*self._secrets, *self._renewed)
            for part in _parts(each)
            for look in _variants(part)
        }
        self._variants = sorted(looks, key=len, reverse=True)  # at once, for the threads that mask

    def __call__(self, text: str) -> str:
        if not text:
            return text
        text = without_escapes(text)
        for look in self._variants:
            text = text.replace(look, MASKED)
        text = _without_ends_of_keys(text)
        for form in FORMS:
            text = form.pattern.sub(rf"\g<1>{MASKED}", text)
        return text


def _without_ends_of_keys(text: str) -> str:
    """Mask the lines of base64 before the END of a private key whose BEGIN a log has cut off."""
    parts, done = list[str](), 0
    for end in KEY_END.finditer(text):
        before = text[done : end.start()]
        lines = KEY_LINES.match(before[::-1][:MAX_KEY])
        kept = len(before) - len(lines[0]) if lines else len(before)
        parts += [before[:kept], f"{MASKED}\n" if lines else "", end[0]]
        done = end.end()
    return "".join([*parts, text[done:]])


def _parts(secret: str) -> set[str]:
    """Return the secret and its longer lines: the end of a log can have part of a private key."""
    return {secret, *(line for line in secret.splitlines() if len(line) >= MIN_SECRET)} - {""}


def _variants(secret: str) -> set[str]:
    quotes = {repr(secret)[1:-1], json.dumps(secret)[1:-1], html.escape(secret, quote=False)}
    return {secret, quote(secret), quote(secret, safe=""), *quotes}


def secrets_in_environment(environ: Mapping[str, str]) -> set[str]:
    """Return the values of variables named like secrets, and the passwords in URLs of all others."""
    named = {value for name, value in environ.items() if SECRET_NAME.fullmatch(name)}
    found = {value for value in named if len(value) >= MIN_SECRET}
    return found.union(*map(secrets_in_urls, environ.values()))


def secrets_in_urls(text: str) -> set[str]:
    """Return passwords in the URLs of a text, escaped and unescaped; the user, too, in https://TOKEN@host."""
    found = set(URL_PASSWORD.findall(text))
    for scheme, login in URL_LOGIN.findall(text):
        user, _, password = login.partition(":")
        found.add(password or (user if scheme.startswith("http") else ""))
    return (found | {unquote(each) for each in found}) - {""}
