"""`Link`: two processes that call each other's objects over a stream.

Messages are JSON, each with its size before it. Each process asks and answers in turn. While one
waits for its answer it answers what the other asks, so that a function may call a function that it
received. A question has a random ID that its answer must repeat.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from _thread import RLock
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import read, urandom, write
from types import MethodType, SimpleNamespace
from typing import Any, NoReturn

from . import codec, containers, plain, raised, remote, shared

LARGEST = 32 << 20  # bytes of a message
GONE = "its process ended by itself"
DEEPEST = 800  # nested calls
FRAMES = 16  # that a nested call takes here: the limits of the program and the tests stay the same
AT_ONCE = 50  # turns of the event loop without a pause
TURN = 0.001  # seconds of a pause
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
        common: The containers that both sides have.
    """

    copies = False  # whether values of the standard library that can be changed travel as copies
    first = 0  # the first number that this side gives to a container; the other side's differs by 1

    def __init__(self, descriptor: int) -> None:
        self.broken = ""
        self.shared = shared.Shared()
        self._descriptor = descriptor
        self._lock = RLock()
        self._depth = 0
        self._loop: Any = None  # of asyncio; made when something is awaited
        self._tasks: dict[int, Any] = {}  # those that the other process waits for
        self._exported: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._remotes: dict[int, remote.Remote] = {}
        self._errors = raised.Errors(self)
        self.common = containers.Containers(self.first)

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
        target: remote.Remote | None,
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
            message["on"] = -1 if target is None else target._guerdon_number
            message["args"] = [encoder.value(arg) for arg in args]
            message["named"] = {key: encoder.value(arg) for key, arg in (kwargs or {}).items()}
            frame = _frame(message, "arguments")
            encoder.sent()
            with self._deeper():
                self._write(frame)
                return self._result(self._answer(message["ask"]))

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

    def _result(self, answer: dict[str, Any]) -> Any:
        with self._valid("its answer is invalid", "its answer is too large"):
            decoder = self._decoder(answer)
            if "no" not in answer:
                result = decoder.value(answer.get("ok"))
            else:
                error = decoder.value(answer["no"])
                plain.expect(isinstance(error, BaseException), "an invalid error")
        self.received(answer, decoder)
        if "no" in answer:
            raise error
        return result

    @contextlib.contextmanager
    def _valid(self, invalid: str, too_large: str) -> Iterator[None]:
        """Give up if a message turns out to be invalid."""
        try:
            yield
        except (plain.CodecError, TypeError, ValueError, LookupError, AttributeError) as fault:
            self.lose(f"{invalid}: {str(fault)[:100]}")
        except (MemoryError, RecursionError):
            self.lose(too_large)

    # Answering -----------------------------------------------------------------------------------

    def serve(self, message: dict[str, Any]) -> None:
        """Answer a question."""
        perform, decoder = self._question(message)
        result, error = None, None
        try:
            self.received(message, decoder)
            with self._deeper():
                result = perform()
        except LinkLost:
            raise
        except BaseException as fault:
            error = fault
            self.failed(fault)
        try:
            frame, encoder = self._reply(message["ask"], result, error)
        except Exception as fault:
            frame, encoder = self._reply(message["ask"], None, fault)
        encoder.sent()
        self._write(frame)

    def failed(self, error: BaseException) -> None:
        """Take note of an error that is sent as an answer."""

    def _question(self, message: dict[str, Any]) -> tuple[Callable[[], Any], codec.Decoder]:
        """Return the function that does what a question asks for, and the question's values."""
        with self._valid("it sent an invalid question", "it asked for too much"):
            decoder = self._decoder(message)
            texts = [message.get(key) for key in ("ask", "what", "name")]
            are_texts = all(type(text) is str and len(text) <= 1000 for text in texts)
            plain.expect(are_texts, "a question without an ID, a kind or a name")
            on = message.get("on")
            target = None if on == -1 else self._exported[codec.index_of(on, self._exported)]
            args = decoder.values(message.get("args"))
            named = message.get("named")
            plain.expect(type(named) is dict, "a question without arguments")
            kwargs = {key: decoder.value(value) for key, value in message["named"].items()}
        what, name = message["what"], message["name"]
        return (lambda: self.perform(what, target, name, args, kwargs)), decoder

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what was asked."""
        if what == "call":
            return target(*args, **kwargs)
        if what == "get" and name in remote.SIGNATURE:
            return self.signature(target, name)
        if what in _ACTIONS:
            return _ACTIONS[what](target, name, args, kwargs)
        if name == "__await__":
            return self._begin(target)
        if what == "turn":
            return self._turn(*args)
        if name not in remote.FORWARDED:
            raise TypeError(f"{name!r:.40} can't be called from another process")
        result = _special(target, name)(*args)
        return self._begin(result) if name in remote.AWAITED else result

    def signature(self, function: Any, name: str) -> Any:
        """Return what `inspect` reads of a function, by the name of the attribute."""
        found = getattr(function, name)
        if name != "__code__":
            return found
        return SimpleNamespace(**{f"co_{each}": getattr(found, f"co_{each}") for each in _CODE})

    # Waiting -------------------------------------------------------------------------------------

    # Each process has an event loop of its own. Whoever awaits an object of the other process asks
    # it to begin, and then to run its loop once, again and again: so the tasks of both proceed.

    async def wait(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:
        """Await an object of the other process, or what its special method returns."""
        from asyncio import CancelledError, sleep

        answer = self.operate(target, name, args)
        turns, cancel = 0, False
        while type(answer) is tuple:
            is_done, result = answer
            if is_done:
                return result
            try:
                await sleep(0 if turns < AT_ONCE else TURN)
            except CancelledError:
                cancel = True
            turns += 1
            answer = self.ask("turn", None, "", (result, cancel))
        return answer

    def _begin(self, value: Any) -> Any:
        """Begin to await a value."""
        loop = self._event_loop()
        token = max(self._tasks, default=0) + 1
        self._tasks[token] = loop.create_task(awaiting(value))
        return self._turn(token, False)

    def _turn(self, token: int, cancel: bool) -> Any:
        """Return whether a task is done, and its result or number."""
        loop, task = self._event_loop(), self._tasks[token]
        if cancel:
            task.cancel()
        if not loop.is_running():
            loop.call_soon(loop.stop)
            loop.run_forever()
        if not task.done():
            return False, token
        del self._tasks[token]
        return True, task.result()

    def _event_loop(self) -> Any:
        from asyncio import events

        running = events._get_running_loop()
        if running is None and self._loop is None:
            self._loop = events.new_event_loop()
        return running or self._loop

    def _reply(
        self, token: str, result: Any, error: BaseException | None
    ) -> tuple[bytes, codec.Encoder]:
        message, encoder = self._message()
        message["re"] = token
        message["ok" if error is None else "no"] = encoder.value(result if error is None else error)
        return _frame(message, "a result"), encoder

    # Objects -------------------------------------------------------------------------------------

    def _message(self) -> tuple[dict[str, Any], codec.Encoder]:
        """Return a message with what has changed on this side since the last one."""
        encoder = codec.Encoder(self)
        message: dict[str, Any] = {"nodes": encoder.nodes, "kinds": encoder.kinds}
        message["derived"] = encoder.derived
        if gone := self.common.gone():
            message["gone"] = gone
        encoder.changed(self.common.changed())
        self.sending(message, encoder)
        return message, encoder

    def sending(self, message: dict[str, Any], encoder: codec.Encoder) -> None:
        """Add to a message what else has changed on this side."""

    def received(self, message: dict[str, Any], decoder: codec.Decoder) -> None:
        """Change on this side what else has changed on the other one."""

    def export(self, encoder: codec.Encoder, value: Any) -> list[Any]:
        """Return the node of a value that isn't plain."""
        handle = remote.handle_of(value)
        if handle is not None:
            return ["yours", handle._guerdon_number]
        if (node := self._errors.node(encoder, value)) is not None:
            return node
        kind = self.kind_of(value)
        if kind not in encoder.kinds:
            encoder.kinds.append(kind)
        return ["mine", self.number(value), encoder.kinds.index(kind)]

    def own(self, kind: type) -> bool:
        """Return whether objects of a class have more than the plain value that they derive from.

        Such as attributes and methods; they are asked for when they are used.
        """
        return remote.is_derived(kind)

    def kind_of(self, value: Any) -> list[Any]:
        """Return what the other side receives about an object's class."""
        return remote.kind_of(value)

    def without_folder(self, text: str) -> str:
        """Return a text without the path of the folder, which differs from run to run."""
        return text

    def guard(self, table: Any) -> None:
        """Raise for a dictionary that the other side may not receive."""

    def refill(self, value: Any, new: Any) -> None:
        """Change a container as the other side did."""
        containers.refill(value, new)

    def named(self, module: str, name: str) -> Any:
        """Return an object of the standard library that the other side names."""
        raise plain.CodecError("a name of the standard library")

    def number(self, value: Any) -> int:
        """Return the number of an object of this side, by which the other side refers to it."""
        key: Any = id(value)
        if type(value) is MethodType:  # each access makes another one
            key = id(value.__self__), id(value.__func__)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._exported)
            self._exported.append(value)
        return number

    def _decoder(self, message: dict[str, Any]) -> codec.Decoder:
        decoder = codec.Decoder(self, message)
        self.common.forget(message.get("gone", ()))
        return decoder

    def accept(self, decoder: codec.Decoder, node: list[Any]) -> Any:
        """Return the value of a node that isn't plain."""
        tag, *data = node
        if tag == "yours":
            return self._exported[codec.index_of(data[0], self._exported)]
        if tag == "global":
            return self.named(*data)
        if tag in ("error", "errors"):
            return self._errors.accept(decoder, *node)
        plain.expect(tag == "mine", "an unknown tag")
        found = self.remote(data[0], decoder.kinds[codec.index_of(data[1], decoder.kinds)])
        return awaiting(found) if type(found).__name__ == "coroutine" else found

    def remote(self, number: Any, kind: Any) -> remote.Remote:
        """Return the object of a number of the other side."""
        found = self._remotes.get(number)
        if found is None:
            name, methods, *_ = kind
            is_kind = type(number) is int and type(name) is str and len(name) <= 100
            plain.expect(is_kind, "an object without a class")
            plain.expect(remote.FORWARDED.issuperset(methods), "an object with unknown methods")
            found = self._remotes[number] = remote.class_of(kind)(self, number)
        return found


_ACTIONS: dict[str, Callable[[Any, str, Any, Any], Any]] = {
    "get": lambda target, name, args, kwargs: getattr(target, name),
    "set": lambda target, name, args, kwargs: setattr(target, name, *args),
    "del": lambda target, name, args, kwargs: delattr(target, name),
    "copy": lambda target, name, args, kwargs: getattr(copy, name)(target),
}
_CODE = (
    *("argcount", "cellvars", "firstlineno", "flags", "kwonlyargcount", "name", "nlocals"),
    *("posonlyargcount", "varnames"),
)


def _special(target: Any, name: str) -> Any:
    """Return a special method of an object, bound to it as the interpreter does."""
    kind = type(target)
    for each in plain.mro_of(kind):
        own = type.__dict__["__dict__"].__get__(each)
        if name in own:
            found = own[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, target, kind)
    raise TypeError(f"{kind.__name__!r} object has no {name}")


async def awaiting(value: Any) -> Any:
    """Await a value, as a coroutine of this process: event loops accept no other."""
    return await value
