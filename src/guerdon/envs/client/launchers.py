"""Launchers: servers that a client starts and stops itself, as a process or in a container."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, ClassVar

import httpx

from guerdon.config.schema import RewardConfig
from guerdon.errors import InvalidArgumentError, LaunchError

__all__ = ["DockerLauncher", "Launcher", "ProcessLauncher"]

POLL_S = 0.05
STOP_S = 15.0
# Lines of a server's output that are kept for the error if it doesn't start.
KEPT_LINES = 200

TOKEN = "GUERDON_TOKEN"


class Launcher(ABC):
    """Starts a server for a client, and stops it; the base class of further launchers.

    A subclass writes `launch`, `has_ended`, `output` and `stop`.

    Args:
        name: The server's name in errors.
        startup_timeout_s: Seconds to wait until the server is healthy.
    """

    def __init__(self, name: str, *, startup_timeout_s: float) -> None:
        self.name = name
        self.startup_timeout_s = startup_timeout_s

    async def start(self, token: str | None = None) -> str:
        """Start the server, wait until it is healthy, and return its address.

        Args:
            token: The token that the server requires.

        Raises:
            LaunchError: It didn't start, or not in time.
        """
        await self.stop()
        try:
            async with asyncio.timeout(self.startup_timeout_s):
                url = await self.launch(token)
                async with httpx.AsyncClient(timeout=5.0, verify=False, trust_env=False) as http:
                    while not await _is_healthy(http, url):
                        await self.check()
                        await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            output = await self.output()
            await self.stop()
            raise LaunchError(
                f"{self.name} wasn't healthy after {self.startup_timeout_s:g} s:\n{output}",
                output=output,
            ) from error
        except BaseException:
            await self.stop()
            raise
        return url

    @abstractmethod
    async def launch(self, token: str | None) -> str:
        """Start the server, and return its address as soon as it is known.

        Raises:
            LaunchError: It didn't start.
        """

    async def check(self) -> None:
        """Raise if the server has ended.

        Raises:
            LaunchError: It has; the message contains its output.
        """
        if await self.has_ended():
            output = await self.output()
            raise LaunchError(f"{self.name} has ended:\n{output}", output=output)

    @abstractmethod
    async def has_ended(self) -> bool:
        """Return whether the launched server has ended by itself."""

    @abstractmethod
    async def output(self) -> str:
        """Return the end of the server's output."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the server, if it runs."""


async def _is_healthy(http: httpx.AsyncClient, url: str) -> bool:
    try:
        async with http.stream("GET", f"{url}/health") as answer:  # which isn't read
            return answer.is_success
    except httpx.HTTPError:
        return False


class ProcessLauncher(Launcher):
    """Runs ``guerdon serve`` in a process, which ends whenever this one ends.

    Example:
        >>> from guerdon import EnvClient
        >>> client = EnvClient(launcher=ProcessLauncher("my_package:MyEnvironment"))

    Args:
        spec: The argument of ``guerdon serve``: ``module:name``, ``file.py:name``, a folder, or a
            registered name.
        config: The reward, a `RewardConfig`, a dict like it or the path of its file, in place of
            the environment's own.
        startup_timeout_s: Seconds to wait until the server is healthy.
    """

    def __init__(self, spec: str, *, config: Any = None, startup_timeout_s: float = 60.0) -> None:
        super().__init__(f"the server of {spec}", startup_timeout_s=startup_timeout_s)
        self._spec = spec
        self._config = config
        self._files = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader: threading.Thread | None = None

    async def launch(self, token: str | None) -> str:
        """Start the process, and wait until it prints its address."""
        options = ["--port", "0", "--with-parent"]
        if self._config is not None:
            options += ["--reward", str(self._config_file())]
        # The server ends with its standard input, that is, with this process.
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "guerdon", "serve", self._spec, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | ({TOKEN: token} if token is not None else {}),
            start_new_session=True,  # Ctrl-C reaches this process alone
        )
        weakref.finalize(self, _kill, process)
        url: Future[str] = Future()
        self._lines = deque(maxlen=KEPT_LINES)
        self._reader = threading.Thread(
            target=_read_output,
            args=(process.stdout, self._lines, url),
            daemon=True,
            name="guerdon-server-output",
        )
        self._reader.start()
        while not url.done():
            await self.check()
            await asyncio.sleep(POLL_S)
        return url.result()

    def _config_file(self) -> Path:
        """Return the file of the reward; one that is written here has absolute paths in it."""
        config = self._config
        if isinstance(config, (str, Path)):
            RewardConfig.from_file(config)  # an invalid one raises here, not in the process
            return Path(config)
        if not isinstance(config, RewardConfig):
            config = RewardConfig.from_dict(config)
        folder = (config.folder or Path()).resolve()
        content = config.to_dict()
        for entry in content["per_turn"] + content["episode_end"]:
            if ".py:" in entry["rubric"]:
                entry["rubric"] = str(folder / entry["rubric"])
        return _write_config(content, self._files)

    async def output(self) -> str:
        """Return the end of the process's output."""
        if self._reader is not None:
            self._reader.join(0.5)  # a process that has ended may have printed more
        return "\n".join(self._lines.copy())

    async def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process is not None and self._process.poll() is not None

    async def stop(self) -> None:
        """Terminate the process, and kill it if that takes too long."""
        self._files.close()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it is killed below
                await asyncio.to_thread(process.wait, STOP_S)
        finally:
            _kill(process)
            if self._reader is not None:
                self._reader.join(1.0)


def _read_output(stream: IO[bytes], lines: deque[str], url: Future[str]) -> None:
    """Read a server's output to its end; find its address in it, and keep the last lines."""
    with stream:
        for line in stream:
            text = line.decode(errors="replace").rstrip()
            lines.append(text[:1000])
            found = re.match(r"serving .* at (https?://\S+)$", text)
            if found and not url.done():
                url.set_result(found.group(1))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        process.kill()
        process.wait()


class DockerLauncher(Launcher):
    """Runs a container with the ``docker`` command, on a loopback port that docker chooses.

    Example:
        >>> from guerdon import EnvClient
        >>> client = EnvClient(launcher=DockerLauncher("my-environment"))

    Args:
        image: The image.
        config: The reward, a `RewardConfig`, a dict like it or the path of its file. It is mounted
            read-only as a JSON file whose path in the container is in ``GUERDON_CONFIG``, which
            ``guerdon serve`` reads.
        env: Environment variables of the container.
        port: The port of the server inside the container.
        startup_timeout_s: Seconds to wait until the server is healthy.
    """

    config_path: ClassVar[str] = "/guerdon/config.json"

    def __init__(
        self,
        image: str,
        *,
        config: Any = None,
        env: Mapping[str, str] | None = None,
        port: int = 8000,
        startup_timeout_s: float = 120.0,
    ) -> None:
        super().__init__(f"the container of {image}", startup_timeout_s=startup_timeout_s)
        self._image = image
        self._config = config
        self._env = dict(env or {})
        self._port = port
        self._container: str | None = None
        self._files = contextlib.ExitStack()

    async def launch(self, token: str | None) -> str:
        """Start the container, and ask docker for its port."""
        # A name that is known even if docker is interrupted.
        self._container = f"guerdon-{uuid.uuid4().hex}"
        command = ["run", "--detach", "--name", self._container]
        command += ["--publish", f"127.0.0.1::{self._port}"]
        for name, value in self._env.items():
            command += ["--env", f"{name}={value}"]
        if token is not None:  # only its name: other users can read a command line
            command += ["--env", TOKEN]
        if self._config is not None:
            file = self._config_file()
            mount = f"type=bind,source={file},target={self.config_path},readonly"
            command += ["--mount", mount, "--env", f"GUERDON_CONFIG={self.config_path}"]
        await _docker(*command, self._image, token=token)
        await self.check()
        published = (await _docker("port", self._container, f"{self._port}/tcp")).split()
        if not published:
            raise LaunchError(f"docker published no port of {self._image}")
        return f"http://{published[0]}"

    def _config_file(self) -> Path:
        """Write the reward to a file that the user of the container may read."""
        config = self._config
        if isinstance(config, (str, Path)):
            config = RewardConfig.from_file(config)
        path = _write_config(config, self._files)
        path.chmod(0o644)
        path.parent.chmod(0o755)
        return path

    async def has_ended(self) -> bool:
        """Return whether the container has ended."""
        container = str(self._container)
        state = await _docker("inspect", "--format", "{{.State.Running}}", container)
        return state.strip() == "false"

    async def output(self) -> str:
        """Return the end of the container's log."""
        try:
            return await _docker("logs", "--tail", "50", str(self._container), with_stderr=True)
        except LaunchError as error:
            return str(error)

    async def stop(self) -> None:
        """Stop and remove the container."""
        container, self._container = self._container, None
        try:
            if container is not None:
                with contextlib.suppress(LaunchError):  # it has ended, or never started
                    await _docker("stop", "-t", "10", container)
                with contextlib.suppress(LaunchError):
                    await _docker("rm", "--force", "--volumes", container)
        finally:
            self._files.close()


async def _docker(*arguments: str, with_stderr: bool = False, token: str | None = None) -> str:
    """Run the docker command, and return its output."""
    try:
        process = await asyncio.create_subprocess_exec(
            "docker",
            *arguments,
            env={**os.environ, TOKEN: token} if token is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if with_stderr else subprocess.PIPE,
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
        output = (err or out).decode(errors="replace").strip()
        raise LaunchError(f"docker {arguments[0]} failed: {output}", output=output)
    return out.decode(errors="replace")


def _write_config(config: Any, files: contextlib.ExitStack) -> Path:
    """Write a reward configuration as JSON, in a folder that is removed with `files`."""
    content = config.to_dict() if isinstance(config, RewardConfig) else config
    try:
        text = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"`config` is not JSON-serializable: {error}") from error
    folder = files.enter_context(tempfile.TemporaryDirectory(prefix="guerdon-"))
    path = Path(folder, "config.json")
    path.write_text(text, encoding="utf-8")
    return path
