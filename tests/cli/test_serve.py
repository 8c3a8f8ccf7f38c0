"""guerdon serve: a process that prints its address, and ends on a signal."""

import contextlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import textwrap

import httpx
import pytest

import guerdon as package
from examples.tau_chat.scripted_model import ScriptedModel
from guerdon import EnvClient
from guerdon.errors import ServerError
from tests.cli.conftest import COMMAND
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real servers and processes

PATIENCE = 30  # seconds after which what should happen is taken not to happen

WORLDS = """
    import os

    from guerdon import Action, Environment, Observation, RegexMatch, State, as_rubric

    class Say(Action):
        content: str

    class Echo(Environment[Say, Observation, State]):
        state = State()

        def __init__(self):
            super().__init__(rubric=RegexMatch("please"))

        def reset(self, seed=None):
            return Observation()

        def step(self, action):
            if action.content == "wait":
                with open("ready", "wb") as pipe:
                    pipe.write(b"x")
                with open("go", "rb") as pipe:
                    pipe.read(1)
            return self.score(action, Observation())

    class Forgot(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = None

    def down(action, observation):
        raise ConnectionError("no judge")

    class Unjudged(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = as_rubric(down)

    def forgets():
        return Forgot()

    def broken():
        raise OSError("no game")
"""


@pytest.fixture(autouse=True)
def _worlds(tmp_path):
    (tmp_path / "worlds.py").write_text(textwrap.dedent(WORLDS))


@pytest.fixture
def environ(environ):
    return {
        name: value
        for name, value in environ.items()
        if name not in ("GUERDON_TOKEN", "GUERDON_CONFIG")
    }


class Serving:
    """A server's process."""

    def __init__(self, process):
        self.process = process
        self.line = line_of(process.stdout)
        self.url = self.line.split()[-1]

    def ask(self, path="/health", **options):
        with httpx.Client(timeout=PATIENCE) as client:
            return client.get(self.url + path, **options)

    def end(self, signal_=signal.SIGTERM):
        """End the server; return what it printed and logged since."""
        self.process.send_signal(signal_)
        out, err = self.process.communicate(timeout=PATIENCE)
        return out.decode(), err.decode()


def line_of(pipe):
    """A line that a process prints, in time."""
    assert select.select([pipe], [], [], PATIENCE)[0], "nothing was printed"
    return pipe.readline().decode()


@pytest.fixture
def serving(started, environ):
    def serving(*args, target="worlds.py:Echo", variables=(), **options):
        environ.update(variables)
        return Serving(started("serve", target, "--port", "0", *args, **options))

    return serving


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server with a token, for tests that don't change it."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "worlds.py").write_text(textwrap.dedent(WORLDS))
    variables = {**os.environ, "GUERDON_TOKEN": "s3cret"}
    command = [COMMAND, "serve", "worlds.py:Echo", "-p", "0", "--name", "echo", "--log", "json"]
    with subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        yield Serving(process)
        process.kill()


# Serving --------------------------------------------------------------------------------------


def test_serve_prints_its_address_and_serves(serving):
    server = serving("-v", stdin=subprocess.DEVNULL)  # whose end means nothing
    assert re.fullmatch(r"serving worlds\.py:Echo at http://127\.0\.0\.1:\d+\n", server.line)
    assert server.ask().json()["status"] == "healthy"
    with EnvClient(server.url).sync() as client:
        client.reset()
        assert client.step({"content": "please"}).reward == 1.0
    out, err = server.end()
    assert (out, server.process.returncode) == ("", 0)
    assert "Traceback" not in err
    assert " serving  url=" in err
    assert " stopping  url=" in err


def test_serve_requires_the_token_of_the_variable(shared):
    assert shared.ask().status_code == 200
    assert shared.ask("/config").status_code == 401
    assert shared.ask("/config", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert shared.ask("/config", headers={"Authorization": "Bearer s3cret"}).status_code == 200


def test_serve_web_prints_the_address_of_the_page(serving):
    server = serving("--web", "--token", "s3cret/&=", "--processes", "2", "--production")
    line = server.process.stdout.readline().decode()
    assert line == f"play it by hand at {server.url}/web/?token=s3cret%2F%26%3D\n"
    with httpx.Client(timeout=PATIENCE, follow_redirects=True) as client:
        assert client.get(f"{server.url}/web").status_code == 401
        assert "play.js" in client.get(line.split()[-1]).text
        assert client.get(f"{server.url}/config").status_code == 200  # with the cookie
    assert "s3cret" not in "".join(server.end())


SEEING = """
    import json, sys
    from pathlib import Path

    from worlds import Echo, Observation, Say, os

    class Seen(Echo):
        def step(self, action):
            ours = [Path(f"/proc/{pid}/{name}").read_bytes().decode()
                    for pid in ("self", os.getppid()) for name in ("cmdline", "environ")]
            Path("seen").write_text(json.dumps([ours[:2], sys.argv, dict(os.environ)]))
            return self.score(action, Observation())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("given_as", ["option", "option with =", "variable", "both"])
def test_serve_processes_of_environments_dont_have_the_token(serving, tmp_path, given_as):
    (tmp_path / "seeing.py").write_text(textwrap.dedent(SEEING))
    options = {"option": ["--token", "s3cret"], "option with =": ["--token=s3cret"],
               "variable": [], "both": ["--token", "s3cret"]}[given_as]  # fmt: skip
    variables = {"GUERDON_TOKEN": "s3cret"} if given_as in ("variable", "both") else {}
    server = serving("--processes", "2", *options, target="seeing.py:Seen", variables=variables)
    with EnvClient(server.url, token="s3cret").sync() as client:
        client.reset()
        client.step({"content": "please"})
    assert "s3cret" not in (tmp_path / "seen").read_text()


def test_serve_web_without_a_token(serving):
    server = serving("--web")
    line = server.process.stdout.readline().decode()
    assert line == f"play it by hand at {server.url}/web/\n"
    assert "play.js" in server.ask("/web/").text


def test_serve_has_no_page_by_default(shared):
    headers = {"Authorization": "Bearer s3cret"}
    assert shared.ask("/web/", headers=headers).status_code == 404


def test_serve_name_is_in_the_metadata(shared):
    data = shared.ask("/metadata", headers={"Authorization": "Bearer s3cret"}).json()
    assert data["name"] == "echo"


def test_serve_token_option_overrides_the_variable(serving):
    server = serving(
        "--token", "mine", "--host", "0.0.0.0", variables={"GUERDON_TOKEN": "other"}
    )  # fmt: skip
    assert server.ask("/config", headers={"Authorization": "Bearer other"}).status_code == 401
    assert server.ask("/config", headers={"Authorization": "Bearer mine"}).status_code == 200
    printed = "".join([server.line, *server.end()])
    assert "mine" not in printed
    assert "warning: anyone" not in printed


def test_serve_json_log_lines_parse(serving):
    server = serving("--log", "json", "-v", "--token", "s3cret")
    server.ask("/config")
    with EnvClient(server.url, token="s3cret").sync() as client:
        client.reset()
    out, err = server.end()
    assert out == ""
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "logger", "event"} <= set(line) for line in lines)
    events = [line["event"] for line in lines]
    assert events[0] == "serving"
    assert lines[0]["url"] == server.url
    assert "refused" in events
    assert "stopping" in events


def test_serve_warns_of_an_exposed_address_without_a_token(serving):
    server = serving("--host", "0.0.0.0")
    assert re.search(r"at http://0\.0\.0\.0:\d+\n", server.line)
    _, err = server.end()
    assert "warning anyone who can reach this server can use it and change its reward" in err


@pytest.mark.parametrize("options", [("--host", "0.0.0.0", "--token", "secret"), ()])
def test_serve_does_not_warn_of_an_address_with_a_token_or_on_the_loopback(serving, options):
    _, err = serving(*options).end()
    assert "warning" not in err


def test_serve_in_production_mode_has_no_calls_of_a_fresh_environment(serving):
    assert serving("--production").ask("/state").status_code == 404


# Rewards --------------------------------------------------------------------------------------

REWARD = """
    schema_version: "1.0"
    normalize: false
    per_turn:
      - {name: thanks, rubric: RegexMatch, weight: 3.0, config: {pattern: thank}}
"""

WRONG_REWARD = """
    schema_version: "1.0"
    per_turn:
      - {name: thanks, rubric: RegexMach, config: {pattern: thank}}
      - {name: polite, rubric: RegexMatch, wieght: 2.0, config: {pattern: please}}
      - {name: polite, rubric: RegexMatch, weight: .nan, config: {pattern: please}}
"""

SERVED_REWARD = """
    schema_version: "1.0"
    per_turn:
      - {name: thanks, rubric: RegexMatch, config: {pattern: thank}}
    mcp_services:
      style_judge: {type: openai_llm, endpoint: "http://127.0.0.1:9", model: m}
"""


@pytest.mark.parametrize("how", ["option", "variable", "option before variable"])
@pytest.mark.parametrize("target", ["worlds.py:Echo", "worlds.py:Forgot", "worlds.py:forgets"])
def test_serve_reward_file_replaces_the_reward(serving, tmp_path, how, target):
    (tmp_path / "reward.yaml").write_text(textwrap.dedent(REWARD))
    args = () if how == "variable" else ("--reward", "reward.yaml")
    variable = "reward.yaml" if how == "variable" else "no-such.yaml"
    variables = {} if how == "option" else {"GUERDON_CONFIG": variable}
    server = serving(*args, target=target, variables=variables)
    data = server.ask("/config").json()
    assert (data["per_turn"][0]["name"], data["normalize"]) == ("thanks", False)
    with EnvClient(server.url).sync() as client:
        client.reset()
        assert client.step({"content": "please"}).reward == 0.0
        assert client.post("/config", json={"weights": {"thanks": 5.0}})["status"] == "ok"
        assert client.step({"content": "thank you"}).reward == 3.0
        client.reset()
        assert client.step({"content": "thank you"}).reward == 5.0


def test_serve_reports_every_mistake_of_a_reward_file_with_its_line(tmp_path):
    (tmp_path / "reward.yaml").write_text(textwrap.dedent(WRONG_REWARD))
    done = run_inside(tmp_path, "serve", "worlds.py:Echo", "-p", "0", "-r", "reward.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    for line, name in ((5, "weight"), (6, "weight"), (6, "polite")):
        assert re.search(rf"reward\.yaml:{line}: .*{name}", done.stderr), done.stderr


@pytest.mark.parametrize("target", ["worlds.py:Echo", "worlds.py:forgets"])
def test_serve_reports_a_missing_rubric_at_start(tmp_path, target):
    text = textwrap.dedent(REWARD).replace("RegexMatch", "RegexMach")
    (tmp_path / "reward.yaml").write_text(text)
    done = run_inside(tmp_path, "serve", target, "-p", "0", "-r", "reward.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"reward\.yaml:5: .*RegexMatch", done.stderr), done.stderr


def test_serve_reports_a_missing_reward_file(tmp_path):
    done = run_inside(tmp_path, "serve", "worlds.py:Echo", "-p", "0", "-r", "reward.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "reward.yaml" in done.stderr


def test_serve_names_an_unavailable_service_at_start(tmp_path):
    (tmp_path / "reward.yaml").write_text(textwrap.dedent(SERVED_REWARD))
    done = run_inside(tmp_path, "serve", "worlds.py:Echo", "-p", "0", "-r", "reward.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "style_judge" in done.stderr
    assert "Traceback" not in done.stderr


JUDGED = """

    from guerdon import LLMJudge

    class Judged(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = LLMJudge("How is the style? {action.content}", "style_judge")
"""

JUDGED_REWARD = """
    schema_version: "1.0"
    per_turn:
      - name: style
        rubric: LLMJudge
        config: {prompt_template: "Good? {action.content}", endpoint: style_judge}
"""


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("reward", [(), ("--reward", "reward.yaml")], ids=["own", "file"])
def test_serve_services_are_those_of_the_judges(serving, tmp_path, reward, processes):
    (tmp_path / "worlds.py").write_text(textwrap.dedent(WORLDS) + textwrap.dedent(JUDGED))
    (tmp_path / "reward.yaml").write_text(textwrap.dedent(JUDGED_REWARD))
    with ScriptedModel(["Score: 0.75"]) as model:
        (tmp_path / "services.yaml").write_text(
            f"style_judge: {{type: openai_llm, endpoint: '{model.endpoint}', model: m}}"
        )
        options = ("--services", "services.yaml", "--processes", processes, *reward)
        server = serving(*options, target="worlds.py:Judged")
        with EnvClient(server.url).sync() as client:
            client.reset()
            assert client.step({"content": "please"}).reward == 0.75


def test_serve_names_an_unavailable_service_of_services_at_start(tmp_path):
    (tmp_path / "worlds.py").write_text(textwrap.dedent(WORLDS) + textwrap.dedent(JUDGED))
    services = tmp_path / "services.yaml"
    for text, problem in (
        ("style_judge: {type: openai_llm, endpoint: 'http://127.0.0.1:9', model: m}", "9: "),
        ("other: {type: openai_llm, endpoint: 'http://127.0.0.1:9', model: m}", "other"),
        ("style_judge: {type: openai_llm}", r"services.yaml: style_judge\.endpoint: is required"),
        ("# nothing", r"services.yaml: it is empty"),
        ("[style_judge]", "services.yaml.* must contain services by name"),
    ):
        services.write_text(text)
        done = run_inside(
            tmp_path, "serve", "worlds.py:Judged", "-p", "0", "--services", "services.yaml"
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert re.search(problem, done.stderr), done.stderr


# Ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_with_0_on_a_signal(serving, number):
    server = serving()
    out, err = server.end(number)
    assert (server.process.returncode, out) == (0, "")
    assert "Traceback" not in err
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))


@pytest.fixture
def waiting(serving, tmp_path):
    """A server in the middle of a step, which goes on when something is written to the pipe."""
    for name in ("ready", "go"):
        os.mkfifo(tmp_path / name)
    with contextlib.ExitStack() as stack:
        ready, go = (os.open(tmp_path / name, os.O_RDWR) for name in ("ready", "go"))
        stack.callback(os.close, ready)
        stack.callback(os.close, go)
        server = serving("--grace", "60")
        body = json.dumps({"action": {"content": "wait"}}).encode()
        host, port = server.url.removeprefix("http://").split(":")
        caller = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
        head = f"POST /step HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert select.select([ready], [], [], PATIENCE)[0], "the step didn't begin"
        yield server, caller, go
        os.write(go, b"x")


def still_runs_after_its_log_says_stopping(server):
    assert "serving" in line_of(server.process.stderr)
    line = line_of(server.process.stderr)
    assert "stopping" in line
    assert server.process.poll() is None


def test_serve_finishes_a_running_step(waiting):
    server, caller, go = waiting
    server.process.send_signal(signal.SIGTERM)
    still_runs_after_its_log_says_stopping(server)
    os.write(go, b"x")
    assert caller.recv(4096).startswith(b"HTTP/1.1 200")
    assert server.process.wait(PATIENCE) == 0


def test_serve_second_ctrl_c_ends_at_once(waiting):
    server, _, _ = waiting
    server.process.send_signal(signal.SIGINT)
    still_runs_after_its_log_says_stopping(server)
    server.process.send_signal(signal.SIGINT)
    server.process.wait(PATIENCE)


def test_serve_with_parent_ends_with_its_standard_input(serving):
    server = serving("--with-parent", stdin=subprocess.PIPE)
    assert server.ask().status_code == 200
    server.process.stdin.write(b"not yet")
    server.process.stdin.flush()
    assert server.ask().status_code == 200
    server.process.stdin.close()
    server.process.stdin = None
    assert server.process.wait(PATIENCE) == 0


def test_serve_with_parent_without_standard_input_ends(tmp_path, environ):
    command = f"exec {shlex.quote(COMMAND)} serve worlds.py:Echo -p 0 --with-parent <&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environ, timeout=PATIENCE, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in (0, 2, -signal.SIGTERM)
    assert "Traceback" not in done.stderr


# What can't be served -------------------------------------------------------------------------


def test_serve_exits_with_2_if_the_port_is_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run_inside(tmp_path, "serve", "worlds.py:Echo", "--port", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: can't listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("target", ["Forgot", "forgets"])
def test_serve_exits_with_2_on_an_environment_without_a_rubric(guerdon, target):
    done = guerdon("serve", f"worlds.py:{target}", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Forgot has no rubric; set one in __init__" in done.stderr
    assert " serving " not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("kind", ["OSError", "ValueError"])
def test_serve_exits_with_2_on_an_environment_that_can_not_be_made(guerdon, tmp_path, kind):
    worlds = tmp_path / "worlds.py"
    worlds.write_text(worlds.read_text().replace("raise OSError", f"raise {kind}"))
    done = guerdon("serve", "worlds.py:broken", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{kind}: no game" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["worlds.py:Echo", "--step-timeout", "0"], "a number of seconds above 0"),
        (["worlds.py:Echo", "--idle-timeout", "nan"], "a number of seconds above 0"),
        (
            ["worlds.py:Echo", "--grace", "-1"],
            "`--grace` must be a number of seconds above 0, got -1.0",
        ),
        (
            ["worlds.py:Echo", "--max-message-mb", "0"],
            "`--max-message-mb` must be a finite number > 0, got 0.0",
        ),
        (["worlds.py:Echo", "--token", "a b"], "`token` must be printable ASCII"),
        (["worlds.py:Echo", "--token", ""], "`token` must be printable ASCII"),
        (["worlds.py:Echo", "--host", "nowhere.invalid"], "can't listen on nowhere.invalid"),
        (
            ["nothing"],
            "'nothing' is not a folder, not module:name and not a registered environment",
        ),
        (["."], "has no environment.py"),
        (
            ["worlds.py:Say"],
            "must be an Environment class or a function that returns an environment",
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_serve_exits_with_2_and_a_hint_on_invalid_options(tmp_path, args, message):
    done = run_inside(tmp_path, "serve", *args, "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [["--port", "65536"], ["--max-sessions", "0"], ["--log", "xml"]])
def test_serve_exits_with_2_on_unknown_options(tmp_path, args):
    done = run_inside(tmp_path, "serve", "worlds.py:Echo", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert args[0] in done.stderr


def test_serve_rejects_an_empty_token_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("GUERDON_TOKEN", "")
    with socket.socket() as taken:  # should it go on to listen, this ends it
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run_inside(tmp_path, "serve", "worlds.py:Echo", "--port", port)
    assert done.returncode == 2
    assert "token" in done.stderr


# python -m guerdon ----------------------------------------------------------------------------


def test_python_m_guerdon_is_the_command(tmp_path, environ):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "guerdon", "--version"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"guerdon {package.__version__}\n",
        "",
    )


def test_serve_fails_a_step_on_a_reward_error_if_it_is_to(serving):
    serving = serving("--fail-on-reward-error", target="worlds.py:Unjudged")
    with EnvClient(serving.url).sync() as client:
        client.reset()
        with pytest.raises(ServerError, match="the reward failed: ConnectionError: no judge"):
            client.step({"content": "please"})
    serving.end()
