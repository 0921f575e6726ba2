"""The mask hides the installation's secrets and texts that look like secrets, and nothing else."""

import json
from pathlib import Path

from bot.text.masking import FORMS, MAX_RENEWED, Mask, secrets_in_environment
from tests.cases import cases

OWN = ("xoxb-1-2-planted", "5ign-ing$ecret", 'p@ss/wörd "quoted"\'', "short")
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza\n-----END OPENSSH PRIVATE KEY-----"
KEY_END = "-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"
LONG = "0123456789abcdef0123456789abcdef01234567"
DOCS = Path(__file__).parents[3] / "docs" / "security.md"


@cases(
    ("text", "shown"),
    [
        ("redis://:p%40ss%2Fw%C3%B6rd%20%22quoted%22%27@redis", "redis://***@redis"),
        ("'Authorization': 'Basic YWRhOmh1bnRlcjI='", "'Authorization': 'Basic ***'"),
        ("Authorization: Bearer ey.Ab-c_d", "Authorization: Bearer ***"),
        ("authorization: bearer 0af31.x-y", "authorization: bearer ***"),
        ("Authorization: token 0123456789abcdef", "Authorization: token ***"),
        ("another's xoxp-12-ab and xapp-1-ab", "another's *** and ***"),
        ("wss://wss.slack.com/link/?ticket=ab-12&app=1", "wss://wss.slack.com/link/?ticket=***&app=1"),
        ("https://hooks.slack.com/commands/T1/2/ab3 is", "https://hooks.slack.com/*** is"),
        ("https://hooks.slack-gov.com/services/T1/B2/ab3", "https://hooks.slack-gov.com/***"),
        ("a shortcut", "a ***cut"),
        ("Looking in https://ada:hunter2@pypi.acme/simple", "Looking in https://***@pypi.acme/simple"),
        ("clone https://ghtoken:x-oauth-basic@github.com/a/b", "clone https://***@github.com/a/b"),
        ("https://ada:hunt@er2@index/simple", "https://***@index/simple"),
        ("https://ada:hun,ter2@index,llama@v2", "https://***@v2"),
        (f"key: whsec_{LONG}=", "key: ***"),
        (f"remote: ghp_{LONG} refused", "remote: *** refused"),
        (f"remote: ghs_{LONG} refused", "remote: *** refused"),
        (f"ghs_123456_eyJhbGciOiJS.eyJpc3MiOiIx.{LONG}-_ refused", "*** refused"),
        (f"github_pat_{LONG}", "***"),
        ("glpat-abcdEFGH12345678", "***"),
        (f"hf_{LONG}", "***"),
        (f"wandb_v1_{LONG}", "***"),
        (f"nvapi-{LONG}", "***"),
        (f"token dapi{'0a1b' * 8}-2", "token ***-2"),
        (f"X-Vault-Token: hvs.{LONG}", "X-Vault-Token: ***"),
        (f"WANDB_API_KEY={LONG}", "WANDB_API_KEY=***"),
        (f"pypi-AgEI{LONG}", "***"),
        (f"npm_{LONG}", "***"),
        (f"dckr_pat_{LONG}", "***"),
        (
            "https://conda.anaconda.org/t/ab-0a1b2c3d-1234-5678-9abc-0123456789ab/acme",
            "https://conda.anaconda.org/t/***/acme",
        ),
        (f"https://repo.prefix.dev/t/pfx_{LONG}/acme", "https://repo.prefix.dev/t/***/acme"),
        ("discuss.pytorch.org/t/nan-loss/1", "discuss.pytorch.org/t/nan-loss/1"),
        (f"AWS_SECRET_ACCESS_KEY: {LONG}", "AWS_SECRET_ACCESS_KEY: ***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ('"token":"k8s-aws-v1.aHR0cHM6Ly9zdHMuZXUtd2VzdC0xLmFtYXpvbmF3cy5jb20v"', '"token":"***"'),
        (f"AIza{LONG}", "***"),
        (f"ya29.{LONG}", "***"),
        (f"sk-proj-{LONG}", "***"),
        (f"sk-ant-api03-{LONG}", "***"),
        (f"a token: {JWT}", "a token: ***"),
        (f"key:\n{KEY}\nend", "key:\n***\nend"),
        (f"key:\n{KEY.replace('KEY', 'KEY BLOCK')}\nend", "key:\n***\nend"),
        ("?X-Amz-Credential=AK%2F1&X-Amz-Signature=0af", "?X-Amz-Credential=***&X-Amz-Signature=***"),
        ("?X-Goog-Credential=a%40b&X-Goog-Signature=0af", "?X-Goog-Credential=***&X-Goog-Signature=***"),
        ("https://cdn/y?Expires=1&Signature=AbCd-0123~456789__&x", "https://cdn/y?Expires=1&Signature=***&x"),
        ("https://x.blob/y?sv=1&sig=AbCd%2F0123456789x%3D", "https://x.blob/y?sv=1&sig=***"),
        ('{"auths": {"r": {"auth": "YWRhOmh1bnRlcjI6MQ=="}}}', '{"auths": {"r": {"auth": "***"}}}'),
        ('{\\"password\\": \\"hunter22\\"}', '{\\"password\\": \\"***\\"}'),
        ("RUN curl -sSf -u 'ada:hunter2' https://x", "RUN curl -sSf -u 'ada:***' https://x"),
        ("curl --user ada:hunter2 https://x", "curl --user ada:*** https://x"),
        ("docker login -u ada -p hunter2 reg", "docker login -u ada -p *** reg"),
        ("docker login --password hunter22 reg", "docker login --password *** reg"),
        ("password: correct2horse, secret='batterystaple'", "password: ***, secret='***'"),
        ("connect(password='x9&kP;2mQ', user='ada')", "connect(password='***', user='ada')"),
        ('{\\"password\\": \\"x9&kP;2mQ\\"}', '{\\"password\\": \\"***\\"}'),
        ('passphrase: "correct horse battery"', 'passphrase: "***"'),
        ("MLFLOW_TRACKING_PASSWORD=hunter22", "MLFLOW_TRACKING_PASSWORD=***"),
        (f"{{'token': '{LONG}'}}", "{'token': '***'}"),
        ("https://discord.com/api/webhooks/12/aB-c_d", "https://discord.com/api/webhooks/***"),
        (
            "https://a.webhook.office.com/webhookb2/1@2/IncomingWebhook/3",
            "https://a.webhook.office.com/webhookb2/***",
        ),
        (f"api.telegram.org/bot123:AA{LONG[:33]}/send", "api.telegram.org/bot123:***/send"),
        (f"glimt-{LONG} GR1348941{LONG}", "*** ***"),
        (
            f"https://x:ATCTT3xFf{LONG * 2}=0A@bitbucket.org/ab ATBB{LONG[:32]}",
            "https://***@bitbucket.org/ab ***",
        ),
        (f"api_org_{LONG}", "***"),
        (f"wandb login --relogin {LONG}", "wandb login --relogin ***"),
        (f"local-{LONG}", "***"),
        (f"eyJhcGlfYWRkcmVzcyI6{LONG}==", "***"),
        (f'{{"username":"ada","key":"{LONG[:32]}"}}', '{"username":"ada","key":"***"}'),
        (f"KAGGLE_KEY={LONG[:32]} KGAT_{LONG[:32]}", "KAGGLE_KEY=*** ***"),
        (f"ABSKQmVkcm9ja0FQSUtleS{LONG * 2}=", "***"),
        (f"IQoJb3JpZ2luX2Vj{LONG * 2}==", "***"),
        (f"1//0{LONG}-_ GOCSPX-{LONG}", "*** ***"),
        (f"sk-lf-{LONG} sk_live_{LONG} gsk_{LONG} r8_{LONG}", "*** *** *** ***"),
        (f"pcsk_2ab_{LONG} lsv2_sk_{LONG[:32]}_0123456789 SG.{LONG[:22]}.{LONG}x-_", "*** *** ***"),
        (f"dp.pt.{LONG} dp.st.dev_a.{LONG}", "*** ***"),
        (f'{{"name": "WANDB_API_KEY", "value": "{LONG}"}}', '{"name": "WANDB_API_KEY", "value": "***"}'),
        (f"- name: HF_TOKEN\n  value: {LONG}\n", "- name: HF_TOKEN\n  value: ***\n"),
        (f"      WANDB_API_KEY:       {LONG}", "      WANDB_API_KEY:       ***"),
        (f"machine api.wandb.ai login user password {LONG}", "machine api.wandb.ai login user password ***"),
        (f"['train.py', '--wandb_api_key', '{LONG}']", "['train.py', '--wandb_api_key', '***']"),
        ('["--password", "hunter22"]', '["--password", "***"]'),
        (f'os.environ["WANDB_API_KEY"] = "{LONG}"', 'os.environ["WANDB_API_KEY"] = "***"'),
        (f"os.environ.get('WANDB_API_KEY', '{LONG}')", "os.environ.get('WANDB_API_KEY', '***')"),
        (f"wandb.login(key='{LONG}')", "wandb.login(key='***')"),
        (f"STEP 3: ENV WANDB_API_KEY {LONG}", "STEP 3: ENV WANDB_API_KEY ***"),
        (f"| WANDB_API_KEY | {LONG} |", "| WANDB_API_KEY | *** |"),
        (f"headers={{'Authorization': '{LONG}'}}", "headers={'Authorization': '***'}"),
        (f"AZURE_OPENAI_KEY={LONG}", "AZURE_OPENAI_KEY=***"),
        (f"client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJ{LONG}=", "client-key-data: ***"),
        (f"a tail:\n{LONG[:7]}\n{LONG}\nab=\n{KEY_END}\nend", f"a tail:\n***\n{KEY_END}\nend"),
        (f'"{LONG[:7]}\\n{LONG}==\\n{KEY_END}\\n"', f'"***\n{KEY_END}\\n"'),
        (
            f"10:00Z a tail:\n10:01Z {LONG}\n10:02Z {LONG}\n10:03Z ab=\n10:03Z {KEY_END}\n10:04Z end",
            f"10:00Z a tail:\n10:01Z ***\n{KEY_END}\n10:04Z end",
        ),
        (f"[a]:{LONG}\n[a]:{LONG}\n[a]:ab==\n[a]:=abc\n[a]:{KEY_END}", f"[a]:***\n{KEY_END}"),
        (f"--api-key /{LONG}/a", "--api-key ***"),
        (f"SLACK_TOKEN=/services/T01234567/B01234567/{LONG[:24]}", "SLACK_TOKEN=***"),
        (f"key\n{KEY}\n{LONG}\n{KEY_END}", f"key\n***\n***\n{KEY_END}"),
    ],
)
def test_mask_hides_secrets_only(text, shown):
    mask = Mask(OWN)
    assert mask(text) == shown
    assert mask(shown) == shown


@cases(
    "text",
    [
        "",
        "nothing",
        "git@github.com:acme/digits.git and ssh://git@github.com/acme/digits.git",
        "lr-brave-otter-1,succeeded,s3://digits,llama@v2,0.5",  # a row of CSV
        "https://registry.example/team/image@sha256:" + "0" * 64,
        "tokens=2048, pad_token='<|endoftext|>', eos_token_id: 50256, max_new_tokens=128",
        "Basic configuration, bearer of bad news; Basic Information, App-Level Tokens",
        "may not have a user or a password: trials and people see the address",
        "Missing key: model.layers.0.attention.weight",
        'MountVolume.SetUp failed for volume "registry": secret "registry-login" not found',
        "An administrator names a Secret for this repository (`secret:`).",
        "task-brave-otter-a1b2c3d4 of sk-brave-otter",
        "pull access denied, may require authorization: server message: insufficient_scope",
        f"HEAD is now at {LONG}",
        "--ssh-key /home/ada/.ssh/id_ed25519 --tls-key=~/certs/server-1.pem API_KEY=../secrets/key-0123",
        "INFO done\nINFO expected -----END RSA PRIVATE KEY-----",
        "curl https://x:8443/a -o b: 200; docker login --password-stdin reg",
        "docker login reg; docker run -p 8080:80 a && docker login -u ada reg && docker run -p 8080:80 a",
        "ddp.model.encoder.layers.0.self_attn.in_proj_weight, MSG.conv2d.weight.layer1.block0.running_mean",
        "the password       : must be set; fw_bw_pass_of_layers, disk_usage_of_all_partitions_now",
        f"wrote the file\n{LONG}\n-----END CERTIFICATE-----",
    ],
)
def test_mask_keeps_other_texts(text):
    assert Mask()(text) == text


def test_mask_hides_secrets_escaped_for_slack():
    assert Mask(["a&b<c>d's"])("it is a&amp;b&lt;c&gt;d's") == "it is ***"


def test_mask_hides_a_secret_that_contains_another_one():
    assert Mask(["hunter2", "hunter2-and-more"])("it is hunter2-and-more") == "it is ***"


@cases("written", [repr, json.dumps])
@cases("secret", [OWN[2], "back\\slash", 'a "quote', "it's", "wörter"])
def test_mask_hides_secrets_quoted_in_a_value(secret, written):
    """Error messages show values as Python or JSON writes them."""
    quoted = written(secret)
    assert Mask([secret])(f"got {quoted}!") == f"got {quoted[0]}***{quoted[-1]}!"


def test_mask_hides_each_line_of_a_key():
    assert Mask([KEY])("tail:\nb3BlbnNza\n") == "tail:\n***\n"


def test_mask_hides_variables_by_name_or_url_password():
    environ = {
        "UV_INDEX_ACME_PASSWORD": "index-pw",
        "UV_INDEX": "acme=https://ada:in-url@pypi.acme/simple b=https://toKen@other/simple",
        "https_proxy": "http://ada:p%40oxy@proxy:3128",
        "OPENAI_API_KEY": "api-key",
        "USE_AUTH_TOKEN": "true",
        "IMAGE_REGISTRY_SECRET": "registry",
        "IMAGE_PUSH_SECRET": "registry-push",
        "BUILD_NETWORK_SECRET": "build-network",
        "MLFLOW_SECRET": "mlflow-login",
        "GIT_PASSWORD_GIT_DIGITS": "git-pw",
        "HOME": "/root",
    }
    assert secrets_in_environment(environ) == {
        "index-pw",
        "in-url",
        "toKen",
        "p%40oxy",
        "p@oxy",
        "api-key",
        "git-pw",
    }


@cases(
    "text",
    [
        "\x1b[01;31m\x1b[Kpassword\x1b[m\x1b[K=hunter22",  # grep --color
        "password=\x1b[1mhunt\x1b[22mer22",
        "\x1b[2K\x1b[1Gpassword=\x1b[?25lhunter22\x1b[?25h",
        "\x1b]8;;https://ada:hunter22@index/\x1b\\password\x1b]8;;\x1b\\=hunter22",  # a link
        "\x1b]0;hunter22\x07password=hunter22",  # a title
        "\x1b[1mpassword\x1b(B\x1b[m=hunter22",  # tput bold, tput sgr0
        "password\x1b[m\x0f=hunter22",  # the same in tmux
        "\x1b7password\x1b8=hunter22",
        "\x9b1mpassword\x9b0m=hunter22",
        "password\x1bPq\x1b\\=hunter22",
    ],
)
def test_mask_hides_secrets_split_by_escape_sequences(text):
    assert Mask()(text) == "password=***"


def test_masking_guide_lists_every_form():
    documented = DOCS.read_text()
    assert [form.name for form in FORMS if f"- {form.name}" not in documented] == []


def test_renewed_secrets_are_masked_and_the_oldest_of_many_forgotten():
    mask = Mask(["the-first"])
    for number in range(MAX_RENEWED + 1):
        mask.add([f"renewed-{number:02}"])
    assert mask(f"the-first renewed-00 renewed-01 renewed-{MAX_RENEWED}") == "*** renewed-00 *** ***"
    mask.add(["renewed-01"])  # it is still in use
    mask.add(["one-more"])
    assert mask("renewed-01 renewed-02") == "*** renewed-02"
