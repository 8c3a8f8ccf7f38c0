"""Servers that a client starts and stops itself: a process, or a container."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import httpx

from guerdon.errors import LaunchError

__all__ = ["Container", "Launcher", "ServerProcess"]

# Seconds between two looks at whether a server is there.
LOOK_S = 0.05
STOP_S = 15.0


class Launcher(ABC):
    """Starts a server, and stops it."""

    @abstractmethod
    async def start(self) -> str:
        """Start the server, wait until it is healthy, and give its address.

        Raises:
            LaunchError: It didn't start, or not in time.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop it. Stopping what doesn't run does nothing."""


class ServerProcess(Launcher):
    """A ``guerdon serve`` of one's own; it ends with this process, however that ends.

    Args:
        spec: What to serve.
        timeout_s: Seconds that it may take to be there.
        token: The token that it requires.
    """

    def __init__(self, spec: str, timeout_s: float, *, token: str | None = None) -> None:
        self._spec = spec
        self._timeout_s = timeout_s
        self._token = token
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    async def start(self) -> str:
        """Start the server process."""
        environment = dict(os.environ)
        if self._token is not None:
            environment["GUERDON_TOKEN"] = self._token
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        # The server ends when its standard input does, that is, when we do.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "guerdon", "serve", self._spec, "--port", "0", "--with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
            start_new_session=True,  # a ctrl-C is ours to handle
        )
        self._finalizer = weakref.finalize(self, self._process.kill)
        try:
            async with asyncio.timeout(self._timeout_s):
                url = await self._address()
                await _healthy(url, self._ended)
        except TimeoutError as error:
            await self.stop()
            raise LaunchError(
                f"the server of {self._spec} wasn't there after {self._timeout_s:g} s",
                output=self._output(),
            ) from error
        except BaseException:
            await self.stop()
            raise
        return url

    async def stop(self) -> None:
        """Ask the server to stop, and end it where it doesn't."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await _until(lambda: process.poll() is not None, STOP_S)
        except TimeoutError:
            process.kill()
            process.wait()
        finally:
            assert process.stdout is not None
            process.stdout.close()
            if self._finalizer is not None:
                self._finalizer.detach()

    async def _address(self) -> str:
        """The address that the server says on its standard output."""
        assert self._process is not None
        assert self._process.stdout is not None
        stream = self._process.stdout
        os.set_blocking(stream.fileno(), False)
        text = b""
        while True:
            chunk = stream.read(4096)
            text += chunk or b""
            found = re.search(rb"https?://\S+\n", text)
            if found:
                return found.group().decode().strip()
            if chunk == b"":
                self._process.wait()
            self._ended()
            await asyncio.sleep(LOOK_S)

    def _ended(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            output = self._output()
            raise LaunchError(
                f"the server of {self._spec} ended with {self._process.returncode}:\n{output}",
                output=output,
            )

    def _output(self) -> str:
        if self._said is None:
            return ""
        self._said.seek(max(self._said.seek(0, os.SEEK_END) - 4000, 0))
        return self._said.read().decode(errors="replace").strip()


class Container(Launcher):
    """A container that the ``docker`` command starts, with a port of the loopback.

    Args:
        image: The image.
        timeout_s: Seconds that its server may take to be there.
        config: Mounted as a JSON file, read-only.
        env: Environment variables.
        port: The port of the server, inside.
    """

    def __init__(
        self,
        image: str,
        timeout_s: float,
        *,
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        port: int = 8000,
    ) -> None:
        self._image = image
        self._timeout_s = timeout_s
        self._config = config
        self._env = dict(env or {})
        self._port = port
        self._id: str | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> str:
        """Start the container."""
        command = ["run", "--detach", "--rm", "--publish", f"127.0.0.1::{self._port}"]
        for name, value in self._env.items():
            command += ["--env", f"{name}={value}"]
        try:
            async with asyncio.timeout(self._timeout_s):
                command += self._mounted()
                self._id = (await _docker(*command, self._image)).strip()
                published = await _docker("port", self._id, f"{self._port}/tcp")
                url = f"http://{published.split()[0]}"
                await _healthy(url, None)
        except TimeoutError as error:
            output = await self._logs()
            await self.stop()
            raise LaunchError(
                f"the container of {self._image} wasn't there after {self._timeout_s:g} s",
                output=output,
            ) from error
        except BaseException:
            await self.stop()
            raise
        return url

    async def stop(self) -> None:
        """Stop the container, which removes itself."""
        found, self._id = self._id, None
        try:
            if found is not None:
                await _docker("stop", "--time", "10", found)
        except LaunchError:
            await _docker("rm", "--force", str(found))
        finally:
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _mounted(self) -> list[str]:
        if self._config is None:
            return []
        self._folder = tempfile.TemporaryDirectory(prefix="guerdon-")
        path = Path(self._folder.name, "config.json")
        path.write_text(json.dumps(self._config), encoding="utf-8")
        path.chmod(0o644)  # whoever the container runs as
        Path(self._folder.name).chmod(0o755)
        inside = "/guerdon/config.json"
        mount = f"type=bind,source={path},target={inside},readonly"
        return ["--mount", mount, "--env", f"GUERDON_CONFIG={inside}"]

    async def _logs(self) -> str:
        if self._id is None:
            return ""
        try:
            return await _docker("logs", "--tail", "50", self._id)
        except LaunchError as error:
            return str(error)


async def _docker(*arguments: str) -> str:
    """Run the docker command, and give what it prints."""
    try:
        process = await asyncio.create_subprocess_exec(
            "docker", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError as error:
        raise LaunchError("there is no docker command; install Docker, or use from_url") from error
    try:
        out, err = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
        raise
    if process.returncode:
        said = err.decode(errors="replace").strip()
        raise LaunchError(f"docker {arguments[0]} failed: {said}", output=said)
    return out.decode(errors="replace")


async def _healthy(url: str, still_there: Any) -> None:
    """Wait until a server says that it is healthy."""
    async with httpx.AsyncClient(timeout=5.0, verify=False) as http:
        while True:
            if still_there is not None:
                still_there()
            try:
                if (await http.get(f"{url}/health")).is_success:
                    return
            except httpx.HTTPError:
                pass  # not there yet
            await asyncio.sleep(LOOK_S)


async def _until(there: Any, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while not there():
            await asyncio.sleep(LOOK_S)
