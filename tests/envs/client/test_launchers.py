"""Servers that a client starts: a process, and a container with a fake docker command."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from guerdon import GenericEnvClient
from guerdon.envs.client.launchers import DockerLauncher
from guerdon.errors import ConnectionLostError, InvalidArgumentError, LaunchError, ServerError
from tests.envs.client.servers import SOON, run

pytestmark = pytest.mark.edge  # real servers, in processes of their own

ENVIRONMENT = """
    import json
    import os
    import sys

    from guerdon import Action, Environment, Observation, Rubric, State

    class Say(Action):
        message: str

    class Echoed(Observation):
        echoed: str = ""
        settings: str = ""
        process: int = 0

    class Polite(Rubric):
        def forward(self, action, observation):
            return float("please" in action.message)

    class Echo(Environment[Say, Echoed, State]):
        '''Repeats a text.'''

        def __init__(self):
            super().__init__(rubric=Polite())
            self.episode = State()

        def reset(self, seed=None, episode_id=None, **kwargs):
            self.episode = State(episode_id=episode_id)
            return Echoed(process=os.getpid())

        def step(self, action, timeout_s=None, **kwargs):
            self.episode.step_count += 1
            if action.message == "print":
                print("x" * 200_000, flush=True)
                sys.stderr.write("y" * 200_000)
            return self.score(action, Echoed(echoed=action.message))

        @property
        def state(self):
            return self.episode

    class Configured(Echo):
        '''Shows what it is configured with.'''

        def reset(self, seed=None, episode_id=None, **kwargs):
            path = os.environ.get("GUERDON_CONFIG")
            config = None
            if path is not None:
                with open(path, encoding="utf-8") as file:
                    config = json.load(file)
            settings = {"config": config, "path": path, "colour": os.environ.get("COLOUR")}
            return Echoed(settings=json.dumps(settings), process=os.getpid())

    class Broken(Echo):
        def __init__(self):
            raise ArithmeticError("can't be made")
"""


@pytest.fixture
def file(tmp_path):
    """A file with environments."""
    path = tmp_path / "maze.py"
    path.write_text(textwrap.dedent(ENVIRONMENT))
    return path


def is_there(process):
    """Whether a process runs; a zombie doesn't."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone(process):
    """Wait until a process is gone."""
    deadline = time.monotonic() + SOON
    while is_there(process):
        assert time.monotonic() < deadline, f"process {process} is still there"
        time.sleep(0.005)
    return True


# A process


def test_process_launcher_starts_and_stops_a_server(file):
    client = GenericEnvClient.from_module(f"{file}:Echo", token="secret")
    assert client.environment_id == "(not started)"

    async def play():
        firsts = await asyncio.gather(client.reset(), client.reset())  # they share one server
        assert len({first.observation["process"] for first in firsts}) == 1
        async with client:
            assert client.base_url.startswith("http://127.0.0.1:")
            assert client.environment_id == "Echo"
            process = (await client.reset(episode_id="ep-1")).observation["process"]
            assert process != os.getpid()
            assert (await client.step({"message": "please"})).reward == 1.0
            assert (await client.state())["episode_id"] == "ep-1"
            with pytest.raises(ServerError, match="no token"):
                await GenericEnvClient(client.base_url).connect()
            # More than the buffer of a pipe: the output is read.
            for _ in range(2):
                await client.step({"message": "print"})
            assert is_there(process)
        assert not is_there(process)
        assert client.base_url == ""
        await client.close()

    asyncio.run(play())


def test_process_launcher_starts_a_killed_server_again(tmp_path):
    text = textwrap.dedent(ENVIRONMENT).partition("class Configured")[0]
    (tmp_path / "environment.py").write_text(text)
    client = GenericEnvClient.from_module(str(tmp_path), environment_id="mine").sync()
    with client:
        first = client.reset().observation["process"]
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match=r"reset\(\)"):
            client.step({"message": "hi"})
        assert gone(first)
        second = client.reset().observation["process"]
        assert second != first
        assert client.step({"message": "please"}).reward == 1.0
        assert client.environment_id == "mine"
    assert not is_there(second)


@pytest.mark.parametrize(
    ("spec", "output"),
    [("no_such_module:Echo", "no_such_module"), ("{file}:Broken", "can't be made")],
)
def test_process_launcher_reports_why_a_server_does_not_start(file, spec, output):
    client = GenericEnvClient.from_module(spec.format(file=file)).sync()
    with pytest.raises(LaunchError, match=output) as raised, client:
        raise AssertionError("it is not connected")
    assert output in raised.value.output
    client.close()


def test_process_launcher_startup_timeout(tmp_path):
    pipe = tmp_path / "never"
    os.mkfifo(pipe)
    (tmp_path / "slow.py").write_text(f"import os\nprint(os.getpid())\nopen({str(pipe)!r}).read()")
    client = GenericEnvClient.from_module(f"{tmp_path}/slow.py:Echo", startup_timeout_s=0.3).sync()
    with pytest.raises(LaunchError, match=r"wasn't healthy after 0\.3 s"):
        client.connect()
    client.close()


def test_process_launcher_leaves_no_process_if_cancelled(file, tmp_path):
    pipe = tmp_path / "started"
    os.mkfifo(pipe)
    (tmp_path / "slow.py").write_text(
        f"import os\nwith open({str(pipe)!r}, 'w') as file:\n    file.write(str(os.getpid()))\n"
        f"open({str(pipe)!r}).read()"
    )

    async def play():
        client = GenericEnvClient.from_module(f"{tmp_path}/slow.py:Echo")
        starting = asyncio.create_task(client.connect())
        process = int(await asyncio.to_thread(pipe.read_text))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not is_there(process)
        await client.close()

    asyncio.run(play())


def test_process_launcher_server_ends_with_its_parent(file):
    code = f"""
        import os
        from guerdon import GenericEnvClient
        client = GenericEnvClient.from_module({str(file) + ":Echo"!r}).sync().connect()
        print(client.reset().observation["process"], flush=True)
        os._exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert gone(int(output))


def test_process_launcher_leaves_no_process_if_collected(file):
    async def play():
        client = GenericEnvClient.from_module(f"{file}:Echo")
        process = (await client.reset()).observation["process"]
        await client._session.drop()
        return process

    process = asyncio.run(play())
    gc.collect()
    assert gone(process)


# A container


class Docker:
    """The fake docker command, and its calls."""

    def __init__(self, folder):
        self.folder = folder
        self.behave()

    def behave(self, **behaviour):
        """What goes wrong: a text that a command fails with, or ``hangs``."""
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    @property
    def calls(self):
        with (self.folder / "calls.jsonl").open() as file:
            return [json.loads(line) for line in file]

    @property
    def commands(self):
        """What it was asked to do, looks at how it goes left out."""
        return [call[0] for call in self.calls if call[0] != "inspect"]

    @property
    def run(self):
        """The command line of ``docker run``."""
        (call,) = [call for call in self.calls if call[0] == "run"]
        return call

    @property
    def name(self):
        return self.run[self.run.index("--name") + 1]

    def containers(self):
        """Those that were not removed."""
        folder = self.folder / "containers"
        if not folder.exists():
            return []
        return [each.name for each in folder.iterdir() if not each.name.startswith("removed-")]

    def processes(self):
        """The processes of all containers that ever ran."""
        return [int(pid.read_text()) for pid in self.folder.glob("containers/*/pid")]


@pytest.fixture
def docker(tmp_path, file, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "maze.py").write_text(file.read_text())
    script = Path(__file__).with_name("docker_standin.py").read_text()
    command = folder / "docker"
    command.write_text(f"#!{sys.executable}\n{script}")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    docker = Docker(folder)
    yield docker
    left = [each for each in docker.processes() if is_there(each)]
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert not left, "a container still runs"


def light(timeout_s=SOON, **options):
    """A container whose server answers only /health."""
    return DockerLauncher("light", startup_timeout_s=timeout_s, port=8123, **options)


def from_image(**options):
    """A client of a container with a real server."""
    return GenericEnvClient.from_docker_image("maze", port=8123, **options)


def test_docker_launcher_starts_and_removes_a_container(docker):
    entry = {"name": "polite", "rubric": "RegexMatch", "config": {"pattern": "please|bitte schön"}}
    config = {"schema_version": "1.0", "per_turn": [entry]}

    async def play():
        async with from_image(config=config, env={"COLOUR": "red=blue"}) as client:
            settings = json.loads((await client.reset()).observation["settings"])
            assert (settings["config"], settings["colour"]) == (config, "red=blue")
            assert client.base_url.startswith("http://127.0.0.1:")
            assert client.environment_id == "Configured"
            assert (await client.step({"message": "please"})).reward == 1.0
            assert docker.containers() == [docker.name]
            source = Path(settings["path"])
            assert source.stat().st_mode & 0o777 == 0o644
            assert source.parent.stat().st_mode & 0o777 == 0o755
        assert client.base_url == ""
        assert docker.containers() == []
        assert not source.exists()
        return source

    source = run(play())
    name = docker.name
    assert name.startswith("guerdon-")
    assert docker.run == [
        "run", "--detach", "--name", name,
        "--publish", "127.0.0.1::8123",
        "--env", "COLOUR=red=blue",
        "--mount", f"type=bind,source={source},target=/guerdon/config.json,readonly",
        "--env", "GUERDON_CONFIG=/guerdon/config.json",
        "maze",
    ]  # fmt: skip
    assert [call for call in docker.calls if call[0] not in ("run", "inspect")] == [
        ["port", name, "8123/tcp"],
        ["stop", "-t", "10", name],
        ["rm", "--force", "--volumes", name],
    ]


def test_docker_launcher_without_config_mounts_nothing(docker):
    async def play():
        container = light()
        await container.start()
        await container.stop()

    run(play())
    assert docker.run[4:] == ["--publish", "127.0.0.1::8123", "light"]


@pytest.mark.parametrize("config", [{"per_turn": object()}, {"weight": float("nan")}])
def test_docker_launcher_rejects_a_config_that_is_not_json(docker, config):
    with pytest.raises(InvalidArgumentError, match="`config` is not JSON-serializable"):
        run(light(config=config).start())


def test_docker_launcher_containers_have_own_names_and_ports(docker):
    async def play():
        first, second = light(), light()
        urls = await asyncio.gather(first.start(), second.start())
        assert urls[0] != urls[1]
        assert len(docker.containers()) == 2
        await asyncio.gather(first.stop(), second.stop())

    run(play())
    assert docker.containers() == []


def test_docker_launcher_without_docker(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="install Docker"), from_image().sync():
        raise AssertionError("it is not connected")


@pytest.mark.parametrize("command", ["run", "port", "inspect"])
def test_docker_launcher_reports_a_failing_docker_command(docker, command):
    docker.behave(**{command: "Cannot connect to the Docker daemon"})
    with pytest.raises(LaunchError, match=f"docker {command} failed: Cannot connect") as raised:
        run(light(config={"a": 1}).start())
    assert raised.value.output == "Cannot connect to the Docker daemon"
    assert docker.containers() == []
    mount = docker.run[docker.run.index("--mount") + 1]
    source = Path(mount.split("source=")[1].split(",")[0])
    assert not source.parent.exists()


def test_docker_launcher_reports_a_missing_port(docker):
    docker.behave(port={"prints": ""})
    with pytest.raises(LaunchError, match="published no port"):
        run(light().start())
    assert docker.containers() == []


def test_docker_launcher_reports_why_a_container_ended(docker):
    with pytest.raises(LaunchError, match="the container of broken has ended") as raised:
        run(DockerLauncher("broken", startup_timeout_s=SOON, port=8123).start())
    for output in (str(raised.value), raised.value.output):
        assert "a bad config" in output
    assert docker.containers() == []


def test_docker_launcher_removes_a_container_that_never_answers(docker):
    docker.behave(port={"prints": "127.0.0.1:9\n"})
    with pytest.raises(LaunchError, match=r"wasn't healthy after 1 s") as raised:
        run(light(timeout_s=1).start())
    assert "serving light" in raised.value.output
    assert "serving light" in str(raised.value)
    assert docker.containers() == []


def test_docker_launcher_removes_a_container_without_sessions(docker):
    client = GenericEnvClient.from_docker_image("light", port=8123)
    with pytest.raises((ConnectionLostError, ServerError)), client.sync():
        raise AssertionError("it is not connected")
    assert docker.containers() == []


def test_docker_launcher_leaves_no_container_if_cancelled(docker):
    docker.behave(run="hangs after it has started")

    async def play():
        starting = asyncio.create_task(light().start())
        while not (docker.folder / "hanging").exists():
            await asyncio.sleep(0.005)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    run(play())
    assert docker.containers() == []


def test_docker_launcher_stops_a_container_that_has_gone(docker):
    async def play():
        container = light(config={"a": 1})
        await container.start()
        (process,) = docker.processes()
        os.kill(process, signal.SIGKILL)
        folder = docker.folder / "containers" / docker.name
        folder.rename(folder.with_name("removed"))
        await container.stop()

    run(play())


def test_docker_launcher_stop_ignores_a_failing_docker(docker):
    async def play():
        container = light()
        await container.start()
        docker.behave(stop="Cannot connect to the Docker daemon")
        await container.stop()
        await container.stop()

    run(play())
    assert docker.containers() == []
