"""Which Dockerfiles are split into code and the layers below it, and which are kept as they are."""

import pytest

from bot.sweep.builds.dockerfile_split import Split, split
from tests.cases import cases

USUAL = """\
# syntax=docker/dockerfile:1
FROM python:3.11-slim
WORKDIR /app
# Before the code.
COPY requirements.txt constraints.txt ./
RUN pip install --no-cache-dir \\
    # quietly
    -r requirements.txt
COPY . .
ENV MODE=train
CMD ["python", "train.py"]
"""


def test_split_separates_the_code_of_a_usual_dockerfile():
    found = split(USUAL)
    assert found.below.splitlines() == [
        "FROM python:3.11-slim",
        "WORKDIR /app",
        "COPY requirements.txt constraints.txt ./",
        "RUN pip install --no-cache-dir      -r requirements.txt",
        "ENV MODE=train",
        'CMD ["python", "train.py"]',
    ]
    assert found.sources == ("requirements.txt", "constraints.txt")
    assert found.code == "FROM scratch\nCOPY . /app\n"


@pytest.mark.parametrize(
    ("before", "copy", "code"),
    [
        ("WORKDIR /srv\nWORKDIR code", "COPY ./ ./src/", "COPY . /srv/code/src"),
        ("", "COPY . /app", "COPY . /app"),
        ("", "copy --chown=1000:1000 . /app", "COPY --chown=1000:1000 . /app"),
        ("ADD requirements.txt /", "ADD . /app", "COPY . /app"),
        ("ARG A=nvidia/cuda:12.8.0-base-ubuntu24.04", "COPY . /workspace/x", "COPY . /workspace/x"),
        ('ARG A=1\nENV B=$A\nSHELL ["bash", "-c"]\nRUN make $B', "COPY . /app", "COPY . /app"),
    ],
)
def test_split_copies_the_code_to_its_original_path(before, copy, code):
    assert split(f"FROM x\n{before}\n{copy}\n").code == f"FROM scratch\n{code}\n"


@pytest.mark.parametrize(
    "command",
    [
        "apt-get install -y ffmpeg sudo vim",
        "apt-get update && apt-get install -y sox && rm -rf /var/lib/apt/lists/*",
        "pip install -U tqdm",
        "mkdir -p /app/data",
        "--mount=type=cache,target=/root/.cache/pip pip install torch",
    ],
)
def test_split_allows_commands_that_give_no_directory_an_owner_or_mode(command):
    assert isinstance(split(f"FROM x\nRUN {command}\nCOPY . /app\n"), Split)


DOUBTFUL = {
    "something runs after the code": "FROM x\nCOPY . /app\nRUN make\n",
    "two stages": "FROM x AS a\nFROM y\nCOPY . /app\n",
    "no code": "FROM x\nRUN make\n",
    "the code twice": "FROM x\nCOPY . /app\nCOPY . /other\n",
    "code of another stage": "FROM x\nCOPY --from=other . /app\n",
    "a folder without a name": "FROM x\nCOPY . .\n",
    "a folder below one without a name": "FROM x\nWORKDIR app\nCOPY . .\n",
    "a folder by a variable": "FROM x\nWORKDIR $HOME\nCOPY . .\n",
    "files by a pattern": "FROM x\nCOPY requirements*.txt /\nCOPY . /app\n",
    "files of a list": 'FROM x\nCOPY ["a", "b"]\nCOPY . /app\n',
    "files of another stage": "FROM x\nCOPY --from=y a b\nCOPY . /app\n",
    "a file above the context": "FROM x\nCOPY ../a b\nCOPY . /app\n",
    "an owner by name": "FROM x\nCOPY --chown=ada . /app\n",
    "another owner of the folder": "FROM x\nRUN mkdir /app && chown ada /app\nCOPY . /app\n",
    "another mode of the folder": "FROM x\nRUN install -d -m 777 /app\nCOPY . /app\n",
    "another mode by a path": "FROM x\nRUN sh -c '/usr/bin/install -v -m 777 -d /app'\nCOPY . /app\n",
    "another mode of a new folder": "FROM x\nRUN mkdir -p -m 777 /app\nCOPY . /app\n",
    "another mode of long options": "FROM x\nRUN mkdir --parents --mode=777 /app\nCOPY . /app\n",
    "another mode after the folder": "FROM x\nRUN mkdir /app -m 777\nCOPY . /app\n",
    "another mode by a long option": "FROM x\nRUN install --directory /app\nCOPY . /app\n",
    "another group of the folder": "FROM x\nRUN chgrp 100 /app\nCOPY . /app\n",
    "a folder in one that all users write": "FROM x\nCOPY . /tmp/code\n",
    "a folder in a home": "FROM jupyter/base-notebook\nWORKDIR /home/jovyan/code\nCOPY . .\n",
    "a folder of the system": "FROM x\nCOPY . /lib/code\n",
    "a folder of the system after two slashes": "FROM x\nCOPY . //tmp/code\n",
    "NVIDIA's folder that all users write": "FROM nvcr.io/nvidia/pytorch:25.01-py3\nCOPY . /workspace\n",
    "a link": "FROM x\nRUN ln -s /data /app/data\nCOPY . /app\n",
    "another user": "FROM x\nUSER 1000\nWORKDIR /app\nCOPY . .\n",
    "the repository in a RUN": "FROM x\nRUN --mount=type=bind,target=/s make\nCOPY . /app\n",
    "a text in a RUN": "FROM x\nRUN <<EOF\nmake\nEOF\nCOPY . /app\n",
    "another escape after another directive": "# syntax=x\n# escape=`\nFROM x\nCOPY . /app\n",
    "another escape": "# escape=`\nFROM x\nCOPY . /app\n",
    "instructions of the base": "FROM python:3-onbuild\nCOPY . /app\n",
    "for those who build on it": "FROM x\nONBUILD RUN make\nCOPY . /app\n",
    "an unknown word": "FROM x\nFOO bar\nCOPY . /app\n",
    "nothing": "",
}


@cases("why", DOUBTFUL)
def test_split_uncertain_dockerfile_is_built_unchanged(why):
    assert isinstance(split(DOUBTFUL[why]), str)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("something runs after the code", "`RUN` follows `COPY .`"),
        ("two stages", "it has several stages"),
        ("no code", "it has no `COPY . DIRECTORY`"),
        ("the code twice", "it has several `COPY . DIRECTORY`"),
        ("files by a pattern", "above `COPY .`, it copies other than files by name"),
        ("another mode of a new folder", "`mkdir -p -m` is above `COPY .`"),
        ("another user", "`USER` is above `COPY .`"),
        ("instructions of the base", "`onbuild` is above `COPY .`"),
    ],
)
def test_reason_names_what_prevents_the_split(why, said):
    assert split(DOUBTFUL[why]) == said
