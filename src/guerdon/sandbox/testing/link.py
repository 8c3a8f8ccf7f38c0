"""`Link`: two processes that call each other's objects over a stream.

Each asks and answers in turn. While one waits for its answer it answers what the other asks, so
that a function may call a function that it was given. A question has an id that its answer must
carry; the checker's can't be guessed.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from _thread import RLock

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import codec, plain, raised, remote, shared, stream
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_codec as codec
    import guerdon_plain as plain
    import guerdon_raised as raised
    import guerdon_remote as remote
    import guerdon_shared as shared
    import guerdon_stream as stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["Link"]

DEEPEST = 800  # calls that wait for each other
FRAMES = (
    16  # that each of them takes here: the program's and the tests' own limit stays what it was
)
HEADROOM = 60  # frames that asking needs: nothing is asked by what runs out of them half-way


def _headroom(frames: int) -> None:
    if frames:
        _headroom(frames - 1)


class Link(stream.Stream):
    """One end.

    Args:
        descriptor: Of the stream.

    Attributes:
        shared: The classes that both sides have.
        stays: The class under test, whose objects stay where they are.
    """

    keeps_errors = False  # whether an error that comes back is raised as the object that it was

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.shared = shared.Shared()
        self.stays: type | None = None
        self._lock = RLock()
        self._depth = 0
        self._loop: Any = None  # of asyncio; made when something is awaited
        self._count = 0
        self._exported: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, remote.Remote] = {}
        self._origins: dict[int, tuple[BaseException, int]] = {}

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
        """Whether an object of the other process holds a value, which only can be walked."""
        return any(each is sought or each == sought for each in iter(target))

    def ask(
        self,
        what: str,
        target: remote.Remote,
        name: str = "",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Ask for something and wait for the answer.

        Raises:
            stream.LinkLost: There is none, and there will be none.
            BaseException: What the other process raised.
        """
        _headroom(HEADROOM)
        with self._lock:
            if self.broken:
                raise stream.LinkLost(self.broken)
            if self._depth >= DEEPEST:
                raise RecursionError(f"more than {DEEPEST} calls wait for each other")
            message, encoder = self._message()
            message |= {"ask": self._token(), "what": what, "name": name}
            message["on"] = target._guerdon_number
            message["args"] = [encoder.value(arg) for arg in args]
            message["named"] = {key: encoder.value(arg) for key, arg in (kwargs or {}).items()}
            frame = stream.frame(message)
            if frame is None:
                raise ValueError(f"arguments of more than {stream.LARGEST >> 20} MiB")
            self._deeper(1)
            try:
                self._write(frame)
                answer = self._awaited(message["ask"])
                return self._answered(answer, encoder)
            finally:
                self._deeper(-1)

    def _deeper(self, by: int) -> None:
        self._depth += by
        with contextlib.suppress(
            RecursionError, OverflowError
        ):  # the program has set a limit of its own
            sys.setrecursionlimit(sys.getrecursionlimit() + by * FRAMES)

    def _token(self) -> str:
        self._count += 1
        return str(self._count)

    def _awaited(self, token: str) -> dict[str, Any]:
        while True:
            message = self.receive()
            if "ask" in message:
                self.serve(message)
            elif message.get("re") == token:
                return message
            else:
                self.lose("it spoke without being asked")

    def _answered(self, answer: dict[str, Any], encoder: codec.Encoder) -> Any:
        try:
            decoder = self._decoder(answer, encoder.objects)
            changed = []
            for number, node in _list(answer, "back"):
                value = encoder.objects[number] if type(number) is int and number >= 0 else None
                common = self.shared.kinds.get(type(value)) == "object"
                if not (common or isinstance(value, plain.CHANGEABLE)):
                    raise plain.CodecError("no argument that can be changed")
                changed.append((value, decoder.again(node)))
            for value, new in changed:
                self.refill(value, new)
            if "no" not in answer:
                return decoder.value(answer.get("ok"))
            error = self._error(answer["no"], decoder)
        except (plain.CodecError, TypeError, ValueError, LookupError) as fault:
            self.lose(f"its answer is no message: {str(fault)[:100]}")
        except (MemoryError, RecursionError):
            self.lose("its answer is too large")
        raise error

    def refill(self, value: Any, new: Any) -> None:
        """Change an argument as the other side did."""
        plain.refill(value, new)

    # Answering -----------------------------------------------------------------------------------

    def serve(self, message: dict[str, Any]) -> None:
        """Do what was asked, and answer."""
        decoder, target, what, name, args, kwargs = self._question(message)
        before = [
            (number, value, plain.contents(value))
            for number, value in enumerate(decoder.objects)
            if codec.is_changing(message["nodes"][number][0])
        ]
        self._deeper(1)
        try:
            result, error = self.perform(what, target, name, args, kwargs), None
        except stream.LinkLost:
            raise
        except BaseException as raised:
            result, error = None, raised
        finally:
            self._deeper(-1)
        known = {id(value): number for number, value in enumerate(decoder.objects)}
        try:
            frame = self._reply(message["ask"], known, before, result, error)
            if frame is None:
                raise ValueError(f"a result of more than {stream.LARGEST >> 20} MiB")
        except Exception as fault:
            frame = self._reply(message["ask"], {}, [], None, fault)
            assert frame is not None
        self._write(frame)

    def _question(self, message: dict[str, Any]) -> tuple[Any, ...]:
        """What a question asks for."""
        try:
            decoder = self._decoder(message, ())
            token, what, name = (message.get(key) for key in ("ask", "what", "name"))
            if not all(type(each) is str and len(each) <= 1000 for each in (token, what, name)):
                raise plain.CodecError("a question without an id, a kind or a name")
            target = self._exported[codec.index_of(message.get("on"), self._exported)]
            args = decoder.values(message.get("args"))
            named = message.get("named")
            if type(named) is not dict:
                raise plain.CodecError("a question without arguments")
            kwargs = {key: decoder.value(value) for key, value in named.items()}
        except (plain.CodecError, TypeError, ValueError, LookupError) as fault:
            self.lose(f"it asked for what can't be: {str(fault)[:100]}")
        except (MemoryError, RecursionError):
            self.lose("it asked for too much")
        return decoder, target, what, name, args, kwargs

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what was asked."""
        if what == "call":
            return target(*args, **kwargs)
        if what == "get":
            return getattr(target, name)
        if what == "set":
            return setattr(target, name, *args)
        if what == "del":
            return delattr(target, name)
        if name == "__await__":
            return self._wait(target)
        if name not in remote.FORWARDED:
            raise TypeError(f"nothing of the name {name!r:.40} can be done from afar")
        result = getattr(type(target), name)(target, *args)
        return self._wait(result) if name in remote.AWAITED else result

    def _wait(self, value: Any) -> Any:
        """What comes of something that is awaited, in a loop that goes on where it was."""
        from asyncio import events

        running = events._get_running_loop()
        if self._loop is None:
            self._loop = events.new_event_loop()
        nested = running is not None or self._loop.is_running()
        loop = events.new_event_loop() if nested else self._loop
        events._set_running_loop(None)
        try:
            return loop.run_until_complete(_waited(value))
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
    ) -> bytes | None:
        message, encoder = self._message(known)
        message["re"] = token
        if error is None:
            message["ok"] = encoder.value(result)
        else:
            state = raised.state_of(error)
            message["no"] = self._told(error) | {
                "state": {name: encoder.value(value) for name, value in state.items()}
            }
        message["back"] = [
            [number, encoder.again(value)]
            for number, value, old in before
            if not _same(old, plain.contents(value))
        ]
        return stream.frame(message)

    # Errors --------------------------------------------------------------------------------------

    def _told(self, error: BaseException) -> dict[str, Any]:
        """An error, for the other side."""
        origin = self._origins.get(id(error))
        return raised.told_of(error) | {
            "yours": -1 if origin is None else origin[1],
            "mine": self._number(error) if self.keeps_errors else -1,
        }

    def _error(self, told: Any, decoder: codec.Decoder) -> BaseException:
        """An error of the other side, as it is raised here."""
        plain.expect(type(told) is dict, "no error")
        yours = told.get("yours")
        if type(yours) is int and 0 <= yours < len(self._exported):
            own = self._exported[yours]
            if isinstance(own, BaseException):
                return own  # what was raised here, and went through the other process
        state = told.get("state") or {}
        plain.expect(type(state) is dict, "no attributes")
        values = {name: decoder.value(value) for name, value in state.items()}
        error = raised.rebuild(told, self._class_of, values)
        mine = told.get("mine")
        if type(mine) is int and mine >= 0:
            self._origins[id(error)] = (error, mine)
        return error

    def _class_of(self, module: Any, name: Any) -> type | None:
        """The class here of errors whose class there has a name."""
        if module in ("program", "tests"):
            found = self.shared.named.get(name) if type(name) is str else None
            return found if found is not None and self.shared.kinds[found] == "error" else None
        return raised.library_error(module, name)

    # Objects -------------------------------------------------------------------------------------

    def _message(self, known: dict[int, int] | None = None) -> tuple[dict[str, Any], codec.Encoder]:
        kinds: list[Any] = []
        message: dict[str, Any] = {"kinds": kinds}
        encoder = codec.Encoder(
            lambda value: self._export(value, kinds),
            guard=self.guard,
            shared=self.shared,
            stays=self.stays,
            known=known,
        )
        message["nodes"] = encoder.nodes
        return message, encoder

    def _export(self, value: Any, kinds: list[Any]) -> list[Any]:
        if remote.Remote in plain.mro_of(type(value)):
            return ["yours", value._guerdon_number]
        kind = self.kind_of(value)
        if kind not in kinds:
            kinds.append(kind)
        return ["mine", self._number(value), kinds.index(kind)]

    def kind_of(self, value: Any) -> list[Any]:
        """What the other side is told of an object's class."""
        return remote.kind_of(value)

    def guard(self, table: Any) -> None:
        """Refuse to send a dictionary that the other side may not have."""

    def imported(self, module: str, name: str) -> Any:
        """What the other side means by something of the standard library."""
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
            if type(number) is not int or type(name) is not str or len(name) > 100:
                raise plain.CodecError("an object of no kind")
            if not remote.FORWARDED.issuperset(methods):
                raise plain.CodecError("an object of a kind that can't be")
            made = remote.remote_class(name, frozenset(methods))
            found = self._remotes[number] = made(self, number)
        return found


async def _waited(value: Any) -> Any:
    return await value


def _list(message: dict[str, Any], key: str) -> list[Any]:
    value = message.get(key)
    if type(value) is not list:
        raise plain.CodecError(f"a message without {key}")
    return value


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, bytes):
        return bool(old == new)
    return len(old) == len(new) and all(map(operator.is_, old, new))
