"""The worlds of the arena, each with one difficulty of credit assignment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon._loading import load_object
from guerdon._registry import Registry
from guerdon._validation import check_integer, check_number, shown
from guerdon.arena.world import Outcome, World
from guerdon.errors import InvalidArgumentError, MissingExtraError

__all__ = [
    "BanditTree",
    "Corridor",
    "Crossroads",
    "FrozenLake",
    "KeyMaze",
    "Lock",
    "StampedMaze",
    "ToolUse",
    "Umbrella",
    "WORLDS",
    "available_worlds",
    "find_world",
]

logger = logging.getLogger(__name__)

WORLDS: Registry[Callable[[], World]] = Registry(
    "world", "guerdon.worlds", error=InvalidArgumentError
)
"""Every world by its name; other packages add theirs as entry points."""


def find_world(name: str) -> World:
    """Return a new world.

    Args:
        name: A name of `WORLDS`, or ``file.py:name`` of a class or a function that returns a world.

    Raises:
        InvalidArgumentError: There is no such world, or it is something else.
        LoadError: The file can't be imported, or has no such name.
    """
    made = load_object(name)() if ":" in name else WORLDS[name]()
    if not isinstance(made, World):
        raise InvalidArgumentError(f"{name!r} must be a World, got {shown(made)}")
    return made


def available_worlds() -> list[str]:
    """Return the names of `WORLDS` whose packages are installed; logs a warning for the others."""
    names = []
    for name in WORLDS.names():
        try:
            find_world(name)
        except MissingExtraError as error:
            logger.warning("left out: %s", error)
        else:
            names.append(name)
    return names


MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def sure(state: Any, *events: str, done: bool = False) -> list[Outcome]:
    """Return the only outcome of an action."""
    return [Outcome(1.0, state, events, done)]


class _Maze(World):
    """A maze of cells; a move against a wall does nothing."""

    plan: Sequence[str] = ()
    actions = tuple(MOVES)

    def _find(self, letter: str) -> tuple[int, int]:
        for row, line in enumerate(self.plan):
            if letter in line:
                return row, line.index(letter)
        raise InvalidArgumentError(f"the plan of {self.name!r} must contain {letter!r}")

    def _moved(self, cell: tuple[int, int], action: int) -> tuple[int, int]:
        down, right = MOVES[self.actions[action]]
        row, column = cell[0] + down, cell[1] + right
        is_inside = 0 <= row < len(self.plan) and 0 <= column < len(self.plan[row])
        return (row, column) if is_inside and self.plan[row][column] != "#" else cell

    def _drawn(self, cell: tuple[int, int], hidden: str = "") -> str:
        rows = [[" " if each in hidden else each for each in line] for line in self.plan]
        rows[cell[0]][cell[1]] = "@"
        return "\n".join("".join(row) for row in rows)


class KeyMaze(_Maze):
    """A maze whose door opens with a key: episodes wander, and meet in the same states.

    Its states are (cell, whether the key was found).
    """

    name = "key-maze"
    about = "find a key, then a door: episodes wander through the same states"
    plan = ("S..K.", ".##..", "...#.", "D....")
    max_steps = 40
    weights: Mapping[str, float] = {"opened": 1.0}

    def initial(self) -> Any:
        """Return the start, without the key."""
        return self._find("S"), False

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Move; the key is taken by walking over it."""
        cell, has_key = state
        cell = self._moved(cell, action)
        has_key = has_key or cell == self._find("K")
        if has_key and cell == self._find("D"):
            return sure((cell, True), "opened", done=True)
        return sure((cell, has_key))

    def describe(self, state: Any) -> str:
        """Draw the maze: ``@`` is the agent, ``K`` the key, ``D`` the door."""
        cell, has_key = state
        return (
            self._drawn(cell, "SK." if has_key else "S.") + f"\nkey: {'yes' if has_key else 'no'}"
        )


class StampedMaze(_Maze):
    """A maze whose observations contain a time: no two steps are in the same state.

    Methods that compare steps in the same state have nothing to compare.
    """

    name = "stamped-maze"
    about = "a maze whose observations never repeat, because each has a time stamp"
    plan = ("S....", ".##.#", "...#.", "#....", "..#.D")
    max_steps = 32
    weights: Mapping[str, float] = {"opened": 1.0}
    stamped = True

    def initial(self) -> Any:
        """Return the start."""
        return self._find("S")

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Move."""
        cell = self._moved(state, action)
        is_out = cell == self._find("D")
        return sure(cell, *["opened"] * is_out, done=is_out)

    def describe(self, state: Any) -> str:
        """Draw the maze: ``@`` is the agent, ``D`` the door."""
        return self._drawn(state, "S.")


class Lock(World):
    """A lock of dials that must be set in order, which the agent may leave at any time.

    A wrong digit costs a little, leaving is paid a little, and the lock pays when it opens. The
    policy decides who reaches a late turn, which biases baselines per turn.

    Args:
        dials: How many digits, at least 1.
        digits: How many positions a dial has, at least 2.
    """

    name = "lock"
    about = "set dials in order, or leave early: the policy decides who reaches a late turn"
    weights: Mapping[str, float] = {"click": 0.1, "slip": -0.1, "opened": 1.0, "left": 0.2}

    def __init__(self, dials: int = 6, digits: int = 4) -> None:
        self.dials = check_integer("dials", dials, low=1)
        self.digits = check_integer("digits", digits, low=2)
        self.actions = (*(f"set {digit}" for digit in range(digits)), "leave")
        self.max_steps = 3 * dials

    def initial(self) -> Any:
        """Return the number of dials that are set: 0."""
        return 0

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Set a dial, or leave."""
        if action == self.digits:
            return sure("outside", "left", done=True)
        if action != (2 * state + 1) % self.digits:
            return sure(state, "slip")
        is_open = state + 1 == self.dials
        return sure(state + 1, "click", *["opened"] * is_open, done=is_open)

    def describe(self, state: Any) -> str:
        """Show the dials that are set."""
        if state == "outside":
            return "You have left the lock."
        return f"[{'x' * state:?<{self.dials}}]"


class Corridor(World):
    """A corridor with a small prize near the start at one end, and a large one far away.

    Args:
        length: The number of places between its ends, at least 3.
    """

    name = "corridor"
    about = "a small prize near the start, and a large one at the end of a long way"
    actions = ("back", "on")
    weights: Mapping[str, float] = {"crumb": 0.2, "feast": 1.0}

    def __init__(self, length: int = 14) -> None:
        self.length = check_integer("length", length, low=3)
        self.max_steps = 4 * length

    def initial(self) -> Any:
        """Return the place: the third one from the small prize."""
        return 3

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Walk."""
        place = state + (1 if action else -1)
        if place == 0:
            return sure(place, "crumb", done=True)
        is_end = place == self.length
        return sure(place, *["feast"] * is_end, done=is_end)

    def describe(self, state: Any) -> str:
        """Draw the corridor: ``@`` is the agent, ``c`` the crumb, ``F`` the feast."""
        cells = "c" + "." * (self.length - 1) + "F"
        place = int(state)
        return f"{cells[:place]}@{cells[place + 1 :]}"


class BanditTree(World):
    """Choices, each followed by luck that is larger than what the choices are worth.

    Args:
        depth: The number of choices, at least 1.
        luck: How much each toss of a coin wins or loses, 0 or more.
    """

    name = "bandit-tree"
    about = "choices, each followed by luck that hides what the choice was worth"
    actions = ("a", "b", "c")

    def __init__(self, depth: int = 4, luck: float = 0.5) -> None:
        self.depth = self.max_steps = check_integer("depth", depth, low=1)
        luck = check_number("luck", luck, low=0)
        self.weights = {"good": 0.3, "fair": 0.15, "heads": luck, "tails": -luck}

    def initial(self) -> Any:
        """Return the choices that were made: none."""
        return ""

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Choose. Which choice is good depends on those before."""
        rank = (action + sum(map(ord, state)) + len(state)) % 3
        earned = ([], ["fair"], ["good"])[rank]
        after = state + self.actions[action]
        done = len(after) == self.depth
        return [Outcome(0.5, after, [*earned, side], done) for side in ("heads", "tails")]

    def describe(self, state: Any) -> str:
        """Name the choices that were made."""
        return f"choices so far: {state or 'none'}"


class ToolUse(World):
    """A question that needs three tools in order, each of which costs and may fail.

    The state is the number of tools that have succeeded. An answer before the last one is right
    only now and then.
    """

    name = "tool-use"
    about = "tools that cost, may fail and depend on each other, and an answer at the end"
    actions = ("search", "read", "compute", "answer")
    max_steps = 12
    weights: Mapping[str, float] = {"call": -0.04, "right": 1.0}

    def initial(self) -> Any:
        """Return the number of tools that have succeeded: 0."""
        return 0

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Call a tool, which succeeds in 4 of 5 cases if it is the next one, or answer."""
        tools = len(self.actions) - 1
        if action == tools:
            chance = 1.0 if state == tools else 0.1
            right = Outcome(chance, "end", ["right"], done=True)
            return [right] if chance == 1 else [right, Outcome(1 - chance, "end", done=True)]
        if action != state:
            return sure(state, "call")
        return [Outcome(0.8, state + 1, ["call"]), Outcome(0.2, state, ["call"])]

    def describe(self, state: Any) -> str:
        """Name the tools that have succeeded."""
        if state == "end":
            return "answered"
        return "done: " + (", ".join(self.actions[:state]) or "nothing")


class Umbrella(World):
    """Take an umbrella in the morning or not; whether that was right shows days later.

    In between, gifts and bills come by chance, whatever the agent does.

    Args:
        days: The number of steps between the decision and its consequence, at least 1.
    """

    name = "umbrella"
    about = "one early action decides the last reward, with noise in between"
    actions = ("take", "leave")
    weights: Mapping[str, float] = {"dry": 1.0, "gift": 0.5, "bill": -0.5}

    def __init__(self, days: int = 12) -> None:
        self.days = check_integer("days", days, low=1)
        self.max_steps = days + 1

    def initial(self) -> Any:
        """Return whether the umbrella was taken, which is unknown, and the day."""
        return None, 0

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Decide on the first day; later days pass whatever the action is."""
        taken, day = state
        taken = action == 0 if taken is None else taken
        if day == self.days:
            return sure((taken, day + 1), *["dry"] * taken, done=True)
        return [Outcome(0.5, (taken, day + 1), [event]) for event in ("gift", "bill")]

    def describe(self, state: Any) -> str:
        """Name the day, and whether there is an umbrella."""
        taken, day = state
        return f"day {day}, umbrella: {'undecided' if taken is None else 'yes' if taken else 'no'}"


class FrozenLake(World):
    """Gymnasium's FrozenLake-v1 on the map of 4 × 4 cells, with its slippery ice.

    Its transitions are read from the installed Gymnasium.

    Raises:
        MissingExtraError: Gymnasium is not installed.
    """

    name = "frozen-lake"
    about = "Gymnasium's FrozenLake-v1, slippery, on the small map"
    actions = ("left", "down", "right", "up")
    max_steps = 50
    weights: Mapping[str, float] = {"goal": 1.0}

    def __init__(self) -> None:
        try:
            from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
        except ImportError as error:
            raise MissingExtraError(
                "the world 'frozen-lake' requires Gymnasium: pip install 'guerdon[gymnasium]'",
                extra="gymnasium",
            ) from error
        lake = FrozenLakeEnv(map_name="4x4", is_slippery=True)
        self._rows = [bytes(row).decode() for row in lake.desc]
        self._transitions = lake.P

    def initial(self) -> Any:
        """Return the number of the cell."""
        return 0

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Return Gymnasium's transitions."""
        return [
            Outcome(probability, int(after), ["goal"] * int(reward), bool(done))
            for probability, after, reward, done in self._transitions[state][action]
        ]

    def describe(self, state: Any) -> str:
        """Draw the lake: ``@`` is the agent, ``H`` a hole, ``G`` the goal."""
        rows = list(map(list, self._rows))
        rows[state // 4][state % 4] = "@"
        return "\n".join(map("".join, rows))


class Crossroads(World):
    """A world of four states, small enough to be solved by hand.

    From the crossroads a road leads to the hill and one to the lake. ``left`` on the hill pays 1,
    and so does ``right``, half of the time; at the lake, ``left`` pays ½ and ``right`` nothing.
    """

    name = "crossroads"
    about = "four states, solved by hand on the page"
    actions = ("left", "right")
    max_steps = 2
    weights: Mapping[str, float] = {"view": 1.0, "fish": 0.5}

    def initial(self) -> Any:
        """Return the crossroads."""
        return "crossroads"

    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Walk, then look or fish."""
        if state == "crossroads":
            return sure("hill" if action == 0 else "lake")
        if state == "lake":
            return sure("home", *["fish"] * (action == 0), done=True)
        if action == 0:
            return sure("home", "view", done=True)
        return [Outcome(0.5, "home", ["view"], done=True), Outcome(0.5, "home", done=True)]


for _world in (
    KeyMaze,
    StampedMaze,
    Lock,
    Corridor,
    BanditTree,
    ToolUse,
    Umbrella,
    FrozenLake,
    Crossroads,
):
    WORLDS.register(_world.name, _world)
