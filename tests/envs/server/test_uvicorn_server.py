"""`serve`, in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from guerdon import create_app, serve
from guerdon.errors import EnvDefinitionError, LaunchError
from tests.envs.server.worlds import RESET, SOON, Client, Echo, step

pytestmark = pytest.mark.edge  # real servers and processes

PROGRAM = """
    import sys, threading, time
    from pathlib import Path
    from guerdon import Environment, create_app, serve
    from guerdon.envs import ServerLimits
    from tests.envs.server.worlds import Echo

    here = Path(sys.argv[1])

    class Slow(Echo):
        def __init__(self):
            super().__init__()
            if "norubric" in sys.argv:
                self.rubric = None

        def step(self, action, **kwargs):
            if action.text == "wait":
                (here / "inside").touch()
                while not (here / "go").exists():
                    time.sleep(0.01)
            return super().step(action)

        def close(self):
            (here / "closed").touch()

    if __name__ == "__main__":
        grace_s = float(sys.argv[2])
        serve(create_app(Slow), port=0, grace_s=grace_s, ready=lambda url: print(url, flush=True))
        print("served", flush=True)
"""


class Process:
    def __init__(self, folder, *arguments):
        self.folder = folder
        program = folder / "program.py"
        program.write_text(textwrap.dedent(PROGRAM))
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": "1"},
        )
        self.url = self.process.stdout.readline().strip()

    def client(self):
        return Client(self.url.replace("http", "ws") + "/ws")

    def end(self, timeout=SOON):
        """Its exit code and its output."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path):
    processes = []

    def start(*arguments):
        process = Process(tmp_path, *arguments)
        processes.append(process)
        return process

    yield start
    for each in processes:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_serve_lets_a_running_step_end_on_a_signal(start, tmp_path, eventually, how):
    server = start("20")
    client = server.client()
    client.ask(RESET)
    client.say(step("wait"))
    eventually((tmp_path / "inside").exists)
    server.process.send_signal(how)
    (tmp_path / "closed").unlink()  # of the look at the start
    (tmp_path / "go").touch()
    assert client.hear()["data"]["observation"]["text"] == "wait"
    assert client.hear()["data"]["code"] == "SESSION_ERROR"
    assert client.ended() == 1001
    client.close()
    code, _, err = server.end()
    assert (tmp_path / "closed").exists()
    assert code in (0, 128 + how, -how)
    assert "Traceback" not in err
    assert "Exception" not in err


def test_serve_abandons_a_step_after_the_grace_period(start, tmp_path, eventually):
    server = start("0.3")
    client = server.client()
    client.say(step("wait"))
    eventually((tmp_path / "inside").exists)
    server.process.terminate()
    assert client.hear()["data"]["code"] == "SESSION_ERROR"
    assert client.ended() == 1001
    client.close()
    code, _, _ = server.end()
    assert code in (0, 143, -15)


def test_serve_reports_a_missing_rubric_at_startup(start):
    server = start("1", "norubric")
    assert server.url == ""
    code, _, err = server.end()
    assert code == 1
    assert "Slow has no rubric" in err
    assert "EnvDefinitionError" in err


def test_serve_reports_a_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"can't listen on 127\.0\.0\.1:{port}"):
            serve(create_app(Echo), port=port)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70000), ("127.0.0.1", -1), ("no.such.host.invalid", 0)]
)
def test_serve_reports_an_invalid_address(host, port):
    with pytest.raises(LaunchError, match="can't listen on"):
        serve(create_app(Echo), host=host, port=port)


def test_serve_does_not_start_without_a_rubric():
    class NoRubric(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = None

    failures = []

    def run():
        try:
            serve(create_app(NoRubric), port=0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SOON)
    assert [type(each) for each in failures] == [EnvDefinitionError]
