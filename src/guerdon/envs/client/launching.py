"""Servers that a client starts and stops itself: a process, or a container."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any

import httpx

from guerdon.envs.client.configuring import ConfigFile
from guerdon.errors import LaunchError

__all__ = ["Container", "Launcher", "ServerProcess"]

# Seconds between two looks at whether a server is there.
LOOK_S = 0.05
STOP_S = 15.0
# How much of what a server prints is kept, to be told where it doesn't start.
KEPT_LINES = 200

TOKEN = "GUERDON_TOKEN"


class Launcher(ABC):
    """Starts a server, and stops it."""

    @abstractmethod
    async def start(self) -> str:
        """Start the server, wait until it is healthy, and give its address.

        Raises:
            LaunchError: It didn't start, or not in time.
        """

    @abstractmethod
    def has_ended(self) -> bool:
        """Whether what was started has ended by itself, for all that is known."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop it. Stopping what doesn't run does nothing."""


class ServerProcess(Launcher):
    """A ``guerdon serve`` of one's own; it ends with this process, however that ends.

    Args:
        spec: What to serve.
        timeout_s: Seconds that it may take to be there.
        config: The reward of its environments, in place of their own.
        token: The token that it requires.
    """

    def __init__(
        self, spec: str, timeout_s: float, *, config: Any = None, token: str | None = None
    ) -> None:
        self._spec = spec
        self._config = config
        self._file: ConfigFile | None = None
        self._timeout_s = timeout_s
        self._token = token
        self._process: subprocess.Popen[bytes] | None = None
        self._output = _Output()

    async def start(self) -> str:
        """Start the server process."""
        await self.stop()
        environment = dict(os.environ)
        if self._token is not None:
            environment[TOKEN] = self._token
        options = ["--port", "0", "--with-parent"]
        if self._config is not None:
            self._file = ConfigFile(self._config, here=True)
            options += ["--reward", str(self._file.path)]
        # The server ends when its standard input does, that is, when we do.
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "guerdon", "serve", self._spec, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a ctrl-C is ours to handle
        )
        assert process.stdout is not None
        self._output = _Output()
        self._output.follow(process.stdout)
        weakref.finalize(self, _kill, process)

        async def look() -> None:
            if process.poll() is not None:
                said = self._output.text()
                raise LaunchError(
                    f"the server of {self._spec} ended with {process.returncode}:\n{said}",
                    output=said,
                )

        try:
            async with asyncio.timeout(self._timeout_s):
                while self._output.url is None:
                    await look()
                    await asyncio.sleep(LOOK_S)
                await _healthy(self._output.url, look)
        except TimeoutError as error:
            said = self._output.text()
            await self.stop()
            raise LaunchError(
                f"the server of {self._spec} wasn't there after {self._timeout_s:g} s", output=said
            ) from error
        except BaseException:
            await self.stop()
            raise
        return self._output.url

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is not None and self._process.poll() is not None

    async def stop(self) -> None:
        """Ask the server to stop, and end it where it doesn't."""
        process, self._process = self._process, None
        file, self._file = self._file, None
        if file is not None:
            file.remove()
        if process is None:
            return
        assert process.stdin is not None
        try:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.terminate()
            async with asyncio.timeout(STOP_S):
                while process.poll() is None:
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            pass  # it is killed below
        finally:
            _kill(process)
            self._output.close()


class _Output:
    """What a server prints: its address, and the last lines, read by a thread as they come."""

    def __init__(self) -> None:
        self.url: str | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._thread: threading.Thread | None = None

    def follow(self, stream: IO[bytes]) -> None:
        """Read to the end of the stream, which is then closed."""
        self._thread = threading.Thread(
            target=self._read, args=(stream,), daemon=True, name="guerdon-server-output"
        )
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                text = line.decode(errors="replace").rstrip()
                found = re.match(r"serving .* at (https?://\S+)$", text)
                if found and self.url is None:
                    self.url = found.group(1)
                else:
                    self._lines.append(text[:1000])

    def text(self) -> str:
        """The last lines."""
        if self._thread is not None:
            self._thread.join(timeout=0.5)  # what a process that has ended said last
        return "\n".join(self._lines)

    def close(self) -> None:
        """Wait for the reader, whose stream has ended with the process."""
        if self._thread is not None:
            self._thread.join(timeout=1.0)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        process.kill()
        process.wait()


class Container(Launcher):
    """A container that the ``docker`` command starts, with a port of the loopback.

    Args:
        image: The image.
        timeout_s: Seconds that its server may take to be there.
        config: Mounted as a JSON file, read-only.
        env: Environment variables.
        port: The port of the server, inside.
        token: Handed over as the environment variable ``GUERDON_TOKEN``.
    """

    def __init__(
        self,
        image: str,
        timeout_s: float,
        *,
        config: Any = None,
        env: Mapping[str, str] | None = None,
        port: int = 8000,
        token: str | None = None,
    ) -> None:
        self._image = image
        self._token = token
        self._timeout_s = timeout_s
        self._config = config
        self._env = dict(env or {})
        self._port = port
        self._name: str | None = None
        self._file: ConfigFile | None = None

    async def start(self) -> str:
        """Start the container."""
        # A name of our own: it is known also where docker is interrupted.
        self._name = f"guerdon-{uuid.uuid4().hex}"
        command = ["run", "--detach", "--name", self._name]
        command += ["--publish", f"127.0.0.1::{self._port}"]
        for name, value in self._env.items():
            command += ["--env", f"{name}={value}"]
        if self._token is not None:  # by its name alone: a command line can be seen by others
            command += ["--env", TOKEN]
        try:
            async with asyncio.timeout(self._timeout_s):
                await _docker(*command, *self._mounted(), self._image, token=self._token)
                await self._look()
                published = (await _docker("port", self._name, f"{self._port}/tcp")).split()
                if not published:
                    raise LaunchError(f"docker published no port of {self._image}")
                url = f"http://{published[0]}"
                await _healthy(url, self._look)
        except TimeoutError as error:
            said = await self._logs()
            await self.stop()
            raise LaunchError(
                f"the container of {self._image} wasn't there after {self._timeout_s:g} s:\n{said}",
                output=said,
            ) from error
        except BaseException:
            await self.stop()
            raise
        return url

    def has_ended(self) -> bool:
        """Not known: docker would have to be asked."""
        return False

    async def stop(self) -> None:
        """Stop the container, and remove it."""
        name, self._name = self._name, None
        try:
            if name is not None:
                with contextlib.suppress(LaunchError):  # it has ended, or never began
                    await _docker("stop", "-t", "10", name)
                with contextlib.suppress(LaunchError):
                    await _docker("rm", "--force", "--volumes", name)
        finally:
            if self._file is not None:
                self._file.remove()
                self._file = None

    async def _look(self) -> None:
        """Raise where the container has ended."""
        assert self._name is not None
        state = await _docker("inspect", "--format", "{{.State.Running}}", self._name)
        if state.strip() == "false":
            said = await self._logs()
            raise LaunchError(f"the container of {self._image} has ended:\n{said}", output=said)

    def _mounted(self) -> list[str]:
        if self._config is None:
            return []
        self._file = ConfigFile(self._config)
        self._file.share()
        inside = "/guerdon/config.json"
        mount = f"type=bind,source={self._file.path},target={inside},readonly"
        return ["--mount", mount, "--env", f"GUERDON_CONFIG={inside}"]

    async def _logs(self) -> str:
        try:
            return await _docker("logs", "--tail", "50", str(self._name), both=True)
        except LaunchError as error:
            return str(error)


async def _docker(*arguments: str, both: bool = False, token: str | None = None) -> str:
    """Run the docker command, and give what it prints, on standard error too where `both`."""
    environment = {**os.environ, TOKEN: token} if token is not None else None
    try:
        process = await asyncio.create_subprocess_exec(
            "docker",
            *arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if both else subprocess.PIPE,
        )
    except OSError as error:
        raise LaunchError(
            f"the docker command can't be run ({error.strerror}); install Docker, or use from_url"
        ) from error
    try:
        out, err = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    if process.returncode:
        said = (err or out).decode(errors="replace").strip()
        raise LaunchError(f"docker {arguments[0]} failed: {said}", output=said)
    return out.decode(errors="replace")


async def _healthy(url: str, look: Callable[[], Awaitable[None]]) -> None:
    """Wait until a server says that it is healthy; `look` raises where there is no hope."""
    async with httpx.AsyncClient(timeout=5.0, verify=False, trust_env=False) as http:
        while True:
            try:
                if (await http.get(f"{url}/health")).is_success:
                    return
            except httpx.HTTPError:
                pass  # not there yet
            await look()
            await asyncio.sleep(LOOK_S)
