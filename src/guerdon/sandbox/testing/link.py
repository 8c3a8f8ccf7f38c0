"""`Link`: two processes that call each other's objects over a stream.

Messages are JSON, each with its size before it. Each process asks and answers in turn. While one
waits for its answer it answers what the other asks, so that a function may call a function that it
received. A question has a random ID that its answer must repeat.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import json
import operator
import sys
from _thread import RLock
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import read, urandom, write
from typing import Any, NoReturn

from . import codec, plain, raised, remote, shared

__all__ = ["GONE", "LARGEST", "Link", "LinkLost"]

LARGEST = 32 << 20  # bytes of a message
GONE = "its process ended by itself"
DEEPEST = 800  # nested calls
FRAMES = 16  # that a nested call takes here: the limits of the program and the tests stay the same
HEADROOM = 60  # frames that a question needs: one that runs out of them isn't asked at all

_dumps = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_loads = json.JSONDecoder().decode


class LinkLost(BaseException):
    """The other process has ended or sent an invalid message; a test that catches it fails."""


def _frame(message: dict[str, Any], what: str = "a message") -> bytes:
    """Return a message as it is sent.

    Raises:
        ValueError: It is too large.
    """
    body = _dumps(message).encode("ascii")
    if len(body) > LARGEST:
        raise ValueError(f"{what} of more than {LARGEST >> 20} MiB")
    return len(body).to_bytes(4, "big") + body


def _headroom(frames: int) -> None:
    if frames:
        _headroom(frames - 1)


class Link:
    """One end.

    Args:
        descriptor: Of the stream.

    Attributes:
        broken: Why nothing can be asked any more; empty while it can.
        shared: The classes that both sides have.
        stays: The class under test, whose objects don't travel.
    """

    copies = False  # whether values of the standard library that can be changed travel as copies
    keeps_errors = False  # whether an error that comes back is raised as the same object

    def __init__(self, descriptor: int) -> None:
        self.broken = ""
        self.shared = shared.Shared()
        self.stays: type | None = None
        self._descriptor = descriptor
        self._lock = RLock()
        self._depth = 0
        self._loop: Any = None  # of asyncio; made when something is awaited
        self._exported: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, remote.Remote] = {}
        self._origins: dict[int, tuple[BaseException, int]] = {}

    # Messages ------------------------------------------------------------------------------------

    def receive(self, largest: int = LARGEST) -> dict[str, Any]:
        """Return the next message."""
        size = int.from_bytes(self._read(4), "big")
        if size > largest:
            self.lose(f"it sent more than {largest >> 10} KiB at once")
        try:
            message = _loads(self._read(size).decode("ascii"))
        except (MemoryError, RecursionError):
            self.lose("it sent too much")
        except ValueError:
            message = None
        if type(message) is not dict:
            self.lose("it sent an invalid message")
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that has no answer."""
        self._write(_frame(message))

    def lose(self, why: str) -> NoReturn:
        """Give up.

        Raises:
            LinkLost: Always.
        """
        self.broken = self.broken or why
        raise LinkLost(self.broken)

    def _read(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            try:
                chunk = read(self._descriptor, min(size - len(got), 1 << 20))
            except OSError:
                chunk = b""
            if not chunk:
                self.lose(GONE)
            got += chunk
        return bytes(got)

    def _write(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            try:
                left = left[write(self._descriptor, left) :]
            except OSError:
                self.lose(GONE)

    # Asking --------------------------------------------------------------------------------------

    def call(self, target: remote.Remote, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an object of the other process."""
        return self.ask("call", target, "", args, kwargs)

    def attribute(self, target: remote.Remote, name: str) -> Any:
        """Read an attribute of an object of the other process."""
        return self.ask("get", target, name)

    def operate(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:
        """Call a special method of an object of the other process."""
        return self.ask("do", target, name, args)

    def contains(self, target: remote.Remote, sought: Any) -> bool:
        """Return whether an object of the other process that can only be iterated has a value."""
        return any(each is sought or each == sought for each in iter(target))

    def ask(
        self,
        what: str,
        target: remote.Remote,
        name: str = "",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Ask for something and return the answer.

        Raises:
            LinkLost: There is none, and there will be none.
            BaseException: What the other process raised.
        """
        _headroom(HEADROOM)
        with self._lock:
            if self.broken:
                raise LinkLost(self.broken)
            if self._depth >= DEEPEST:
                raise RecursionError(f"more than {DEEPEST} nested calls")
            message, encoder = self._message()
            message |= {"ask": urandom(8).hex(), "what": what, "name": name}
            message["on"] = target._guerdon_number
            message["args"] = [encoder.value(arg) for arg in args]
            message["named"] = {key: encoder.value(arg) for key, arg in (kwargs or {}).items()}
            frame = _frame(message, "arguments")
            with self._deeper():
                self._write(frame)
                return self._result(self._answer(message["ask"]), encoder.objects)

    @contextlib.contextmanager
    def _deeper(self) -> Iterator[None]:
        self._extend(1)
        try:
            yield
        finally:
            self._extend(-1)

    def _extend(self, by: int) -> None:
        self._depth += by
        # It fails if the program has set a limit of its own.
        with contextlib.suppress(RecursionError, OverflowError):
            sys.setrecursionlimit(sys.getrecursionlimit() + by * FRAMES)

    def _answer(self, token: str) -> dict[str, Any]:
        while True:
            message = self.receive()
            if "ask" in message:
                self.serve(message)
            elif message.get("re") == token:
                return message
            else:
                self.lose("it answered without being asked")

    def _result(self, answer: dict[str, Any], sent: list[Any]) -> Any:
        with self._valid("its answer is invalid", "its answer is too large"):
            decoder = self._decoder(answer, sent)
            changed = []
            for number, node in _list(answer, "back"):
                value = sent[codec.index_of(number, sent)]
                is_object = self.shared.kinds.get(type(value)) == "object"
                can_change = is_object or isinstance(value, plain.CHANGEABLE)
                plain.expect(can_change, "an argument that can't be changed")
                changed.append((value, decoder.contents(node)))
            for value, new in changed:
                self.refill(value, new)
            if "no" not in answer:
                return decoder.value(answer.get("ok"))
            error = self._error(answer["no"], decoder)
        raise error

    @contextlib.contextmanager
    def _valid(self, invalid: str, too_large: str) -> Iterator[None]:
        """Give up if a message turns out to be invalid."""
        try:
            yield
        except (plain.CodecError, TypeError, ValueError, LookupError) as fault:
            self.lose(f"{invalid}: {str(fault)[:100]}")
        except (MemoryError, RecursionError):
            self.lose(too_large)

    def refill(self, value: Any, new: Any) -> None:
        """Change an argument as the other side did."""
        plain.refill(value, new)

    # Answering -----------------------------------------------------------------------------------

    def serve(self, message: dict[str, Any]) -> None:
        """Answer a question."""
        decoder, perform = self._question(message)
        before = [
            (number, value, plain.contents(value))
            for number, value in enumerate(decoder.objects)
            if codec.is_changing(message["nodes"][number][0])
        ]
        result, error = None, None
        try:
            with self._deeper():
                result = perform()
        except LinkLost:
            raise
        except BaseException as fault:
            error = fault
        known = {id(value): number for number, value in enumerate(decoder.objects)}
        try:
            frame = self._reply(message["ask"], known, before, result, error)
        except Exception as fault:
            frame = self._reply(message["ask"], {}, [], None, fault)
        self._write(frame)

    def _question(self, message: dict[str, Any]) -> tuple[codec.Decoder, Callable[[], Any]]:
        """Return the values of a question, and the function that does what it asks for."""
        with self._valid("it sent an invalid question", "it asked for too much"):
            decoder = self._decoder(message, ())
            texts = [message.get(key) for key in ("ask", "what", "name")]
            are_texts = all(type(text) is str and len(text) <= 1000 for text in texts)
            plain.expect(are_texts, "a question without an ID, a kind or a name")
            target = self._exported[codec.index_of(message.get("on"), self._exported)]
            args = decoder.values(message.get("args"))
            named = message.get("named")
            plain.expect(type(named) is dict, "a question without arguments")
            kwargs = {key: decoder.value(value) for key, value in message["named"].items()}
        return decoder, lambda: self.perform(message["what"], target, message["name"], args, kwargs)

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what was asked."""
        if what == "call":
            return target(*args, **kwargs)
        if what in _ACCESS:
            return _ACCESS[what](target, name, *args)
        if name == "__await__":
            return self._wait(target)
        if name not in remote.FORWARDED:
            raise TypeError(f"{name!r:.40} can't be called from another process")
        result = getattr(type(target), name)(target, *args)
        return self._wait(result) if name in remote.AWAITED else result

    def _wait(self, value: Any) -> Any:
        """Return the result of an awaitable, in a loop that continues where it was."""
        from asyncio import events

        running = events._get_running_loop()
        if self._loop is None:
            self._loop = events.new_event_loop()
        nested = running is not None or self._loop.is_running()
        loop = events.new_event_loop() if nested else self._loop
        events._set_running_loop(None)
        try:
            return loop.run_until_complete(_awaiting(value))
        finally:
            events._set_running_loop(running)
            if nested:
                loop.close()

    def _reply(
        self,
        token: str,
        known: dict[int, int],
        before: list[tuple[int, Any, Any]],
        result: Any,
        error: BaseException | None,
    ) -> bytes:
        message, encoder = self._message(known)
        message["re"] = token
        if error is None:
            message["ok"] = encoder.value(result)
        else:
            state = encoder.value(raised.state_of(error))
            message["no"] = self._report(error) | {"state": state}
        message["back"] = [
            [number, encoder.node(value)]
            for number, value, old in before
            if not _same(old, plain.contents(value))
        ]
        return _frame(message, "a result")

    # Errors --------------------------------------------------------------------------------------

    def _report(self, error: BaseException) -> dict[str, Any]:
        """Return what the other side receives about an error."""
        origin = self._origins.get(id(error))
        return raised.report(error) | {
            "yours": -1 if origin is None else origin[1],
            "mine": self._number(error) if self.keeps_errors else -1,
        }

    def _error(self, report: Any, decoder: codec.Decoder) -> BaseException:
        """Return an error of the other side, to be raised here."""
        plain.expect(type(report) is dict, "an invalid error")
        yours = report.get("yours")
        if type(yours) is int and 0 <= yours < len(self._exported):
            own = self._exported[yours]
            if isinstance(own, BaseException):
                return own  # raised here, it has passed through the other process
        state = decoder.value(report.get("state")) or {}
        plain.expect(type(state) is dict, "an error with invalid attributes")
        error = raised.rebuild(report, self._class_of, state)
        mine = report.get("mine")
        if type(mine) is int and mine >= 0:
            self._origins[id(error)] = (error, mine)
        return error

    def _class_of(self, module: Any, name: Any) -> type | None:
        """Return the class here of errors, by module and name of the class there."""
        if module in ("program", "tests"):
            found: type | None = self.shared.get(name, "error")
            return found
        return raised.library_error(module, name)

    # Objects -------------------------------------------------------------------------------------

    def _message(self, known: dict[int, int] | None = None) -> tuple[dict[str, Any], codec.Encoder]:
        kinds: list[Any] = []
        encoder = codec.Encoder(
            lambda value: self._export(value, kinds),
            guard=self.guard,
            shared=self.shared,
            stays=self.stays,
            copies=self.copies,
            known=known,
        )
        return {"kinds": kinds, "nodes": encoder.nodes}, encoder

    def _export(self, value: Any, kinds: list[Any]) -> list[Any]:
        if remote.Remote in plain.mro_of(type(value)):
            return ["yours", value._guerdon_number]
        kind = self.kind_of(value)
        if kind not in kinds:
            kinds.append(kind)
        return ["mine", self._number(value), kinds.index(kind)]

    def kind_of(self, value: Any) -> list[Any]:
        """Return what the other side receives about an object's class."""
        return remote.kind_of(value)

    def guard(self, table: Any) -> None:
        """Raise for a dictionary that the other side may not receive."""

    def imported(self, module: str, name: str) -> Any:
        """Return an object of the standard library that the other side names."""
        raise plain.CodecError("a name of the standard library")

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._exported)
            self._exported.append(value)
        return number

    def _decoder(self, message: dict[str, Any], known: Sequence[Any]) -> codec.Decoder:
        kinds = _list(message, "kinds")

        def accept(node: list[Any]) -> Any:
            if node[0] == "yours":
                return self._exported[codec.index_of(node[1], self._exported)]
            if node[0] == "global":
                return self.imported(*node[1:])
            return self._remote(node[1], kinds[codec.index_of(node[2], kinds)])

        return codec.Decoder(message.get("nodes"), accept, known, shared=self.shared)

    def _remote(self, number: Any, kind: Any) -> remote.Remote:
        found = self._remotes.get(number)
        if found is None:
            name, methods = kind
            is_kind = type(number) is int and type(name) is str and len(name) <= 100
            plain.expect(is_kind, "an object without a class")
            plain.expect(remote.FORWARDED.issuperset(methods), "an object with unknown methods")
            made = remote.remote_class(name, frozenset(methods))
            found = self._remotes[number] = made(self, number)
        return found


_ACCESS: dict[str, Callable[..., Any]] = {"get": getattr, "set": setattr, "del": delattr}


async def _awaiting(value: Any) -> Any:
    return await value


def _list(message: dict[str, Any], key: str) -> list[Any]:
    value: Any = message.get(key)
    plain.expect(type(value) is list, f"a message without {key}")
    return list(value)


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, bytes):
        return bool(old == new)
    return len(old) == len(new) and all(map(operator.is_, old, new))
