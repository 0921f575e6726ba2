"""Are the locked requirement files in step with pyproject.toml? With --write: bring them there.

run.txt is what the image installs, search.txt the image of the search service, dev.txt adds the local world
and the tests. bench*.txt hold only what the benchmarks compare Sweepbot with, jupyter.txt what a test of
environments starts, site.txt what builds the documents. Hashes, no index address.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
UV = Path(sys.executable).parent / "uv"
IMAGE_EXTRAS = [f"--extra={name}" for name in ("server", "aws", "azure", "google", "tracing")]
LOCKS = {
    "dev.txt": ["pyproject.toml", "--all-extras", "--group", "dev"],
    "run.txt": ["pyproject.toml", *IMAGE_EXTRAS, "--constraint", "requirements/dev.txt"],
    "search.txt": ["--group", "pyproject.toml:search", "--constraint", "requirements/dev.txt"],
    "bench.txt": ["--group", "pyproject.toml:bench"],
    "bench-arq.txt": ["--group", "pyproject.toml:bench-arq"],
    "bench-katib.txt": ["--group", "pyproject.toml:bench-katib"],
    "jupyter.txt": ["--group", "pyproject.toml:jupyter"],
    "site.txt": ["--group", "pyproject.toml:site"],
}


def compiled(name: str, options: list[str]) -> str:
    """What uv makes of pyproject.toml, keeping the versions already locked."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / name
        if (HERE / name).exists():
            out.write_text((HERE / name).read_text())
        command = [str(UV), "pip", "compile", "--quiet", "--universal", "--python-version=3.11"]
        command += ["--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate"]
        subprocess.run([*command, *options, "-o", str(out)], cwd=HERE.parent, check=True)
        return out.read_text()


def main() -> int:
    stale = []
    for name, options in LOCKS.items():
        text = compiled(name, options)
        if "--write" in sys.argv:
            (HERE / name).write_text(text)
        elif text != (HERE / name).read_text():
            stale.append(name)
    for name in stale:
        print(f"requirements/{name} is not in step with pyproject.toml: run `make lock`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
