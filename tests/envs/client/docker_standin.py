"""A fake ``docker`` command, which tests put on the PATH.

What docker would run in a container it runs as a process here: the image ``maze`` is
``guerdon serve`` of maze.py, the image ``light`` a server that answers only /health, the
image ``broken`` ends at once. It notes every command line, one line of JSON each. The file
``behaviour.json`` beside it configures what fails.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent
LIGHT = """
import http.server
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
    print(f"serving light at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
"""
BROKEN = "raise ArithmeticError('a bad config')"


def main():
    arguments = sys.argv[1:]
    with (HOME / "calls.jsonl").open("a") as file:
        file.write(json.dumps(arguments) + "\n")
    behaviour = json.loads((HOME / "behaviour.json").read_text())
    command = arguments[0]
    action = behaviour.get(command)
    if isinstance(action, str):
        if action.startswith("hangs"):
            after_start = action == "hangs after it has started"
            if after_start:
                run(arguments, behaviour)
            (HOME / "hanging").touch()
            signal.pause()
        print(action, file=sys.stderr)
        return 125
    if isinstance(action, dict):
        print(action["prints"], end="")
        return 0
    return {"run": run, "port": port, "inspect": inspect, "logs": logs, "stop": stop, "rm": rm}[
        command
    ](arguments, behaviour)


def run(arguments, behaviour):
    name = option(arguments, "--name")
    environ = dict(os.environ)
    for each in options(arguments, "--env"):
        key, _, value = each.partition("=")
        environ[key] = value
    for each in options(arguments, "--mount"):
        mount = dict(part.partition("=")[::2] for part in each.split(","))
        # The process sees what a container would see at the target.
        environ = {k: v.replace(mount["target"], mount["source"]) for k, v in environ.items()}
    folder = HOME / "containers" / name
    folder.mkdir(parents=True)
    output = (folder / "output").open("wb")
    command = ["-m", "guerdon", "serve", f"{HOME / 'maze'}.py:Configured", "--port", "0"]
    if arguments[-1] != "maze":
        command = ["-S", "-c", {"light": LIGHT, "broken": BROKEN}[arguments[-1]]]
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environ,
        start_new_session=True,
    )
    (folder / "pid").write_text(str(process.pid))
    while process.poll() is None and b"serving" not in (folder / "output").read_bytes():
        time.sleep(0.005)
    print("0123456789abcdef" * 4)
    return 0


def port(arguments, behaviour):
    assert arguments[2] == "8123/tcp"
    text = (container(arguments) / "output").read_text()
    if " at http://" not in text:
        print("Error: No public port '8123/tcp' published", file=sys.stderr)
        return 1
    print(text.partition(" at http://")[2].split()[0])
    return 0


def inspect(arguments, behaviour):
    print("true" if runs(container(arguments)) else "false")
    return 0


def logs(arguments, behaviour):
    print((container(arguments) / "output").read_text())
    return 0


def stop(arguments, behaviour):
    end(container(arguments), signal.SIGTERM)
    return 0


def rm(arguments, behaviour):
    folder = container(arguments)
    end(folder, signal.SIGKILL)
    folder.rename(folder.with_name(f"removed-{folder.name}"))
    return 0


def container(arguments):
    folders = [HOME / "containers" / each for each in arguments[1:]]
    found = [each for each in folders if each.is_dir() and each != HOME / "containers"]
    if not found:
        print(f"Error: No such container: {arguments[-1]}", file=sys.stderr)
        raise SystemExit(1)
    return found[0]


def runs(folder):
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{(folder / 'pid').read_text()}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def end(folder, number):
    if not runs(folder):
        return
    os.kill(int((folder / "pid").read_text()), number)
    while runs(folder):
        time.sleep(0.005)


def options(arguments, name):
    return [arguments[at + 1] for at, each in enumerate(arguments) if each == name]


def option(arguments, name):
    return options(arguments, name)[0]


if __name__ == "__main__":
    sys.exit(main())
