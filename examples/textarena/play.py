"""Plays five games by what they say, and prints how each answer of Wordle was rewarded.

Run it, optionally with a seed::

    python -m examples.textarena.play 5
"""

from __future__ import annotations

import random
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from examples.textarena.environment import TextArenaEnvironment
from examples.textarena.models import TextArenaAction, TextArenaObservation
from examples.textarena.offline import WORDS

__all__ = ["act", "main", "play"]

GAMES = ("Wordle-v0", "Mastermind-v0", "Hangman-v0", "FrozenLake-v0", "TowerOfHanoi-v0")

Towers = tuple[tuple[int, ...], ...]
Place = TypeVar("Place")


def act(observation: TextArenaObservation, rng: random.Random) -> TextArenaAction:
    r"""Give an answer that agrees with everything that the game has said.

    Example:
        >>> import random
        >>> from examples.textarena.models import TextArenaObservation
        >>> from examples.textarena.play import act
        >>> text = "A: [2, 1]\nB: []\nC: []\n"
        >>> hanoi = TextArenaObservation(game_id="TowerOfHanoi-v0", text=text, transcript=text)
        >>> act(hanoi, random.Random(1)).message
        '[A B]'
    """
    players = {
        "Wordle": _wordle,
        "Mastermind": _mastermind,
        "Hangman": _hangman,
        "FrozenLake": _frozen_lake,
        "TowerOfHanoi": _tower_of_hanoi,
    }
    player = players[observation.game_id.partition("-")[0]]
    return TextArenaAction(message=f"[{player(observation.transcript, rng)}]")


def _wordle(transcript: str, rng: random.Random) -> str:
    guesses = re.findall(r"^((?:[A-Z] ){4}[A-Z])\n([GYX ]{9})$", transcript, re.MULTILINE)
    feedback = {word.replace(" ", "").lower(): marks.replace(" ", "") for word, marks in guesses}
    return rng.choice(
        [
            word
            for word in WORDS
            if word not in feedback
            and all(_marks(guess, word) == marks for guess, marks in feedback.items())
        ]
    )


def _marks(guess: str, word: str) -> str:
    """Return the feedback for a guess if the secret is this word."""
    rest = [letter for letter, secret in zip(word, guess, strict=True) if letter != secret]
    marks = ""
    for letter, secret in zip(guess, word, strict=True):
        if letter == secret:
            marks += "G"
        elif letter in rest:
            rest.remove(letter)
            marks += "Y"
        else:
            marks += "X"
    return marks


def _mastermind(transcript: str, rng: random.Random) -> str:
    guesses = re.findall(r"Submitted \[([\d ]+)\]. Feedback: (\d) black.*?, (\d)", transcript)
    digits = re.search(r"each digit from 1 to (\d)", transcript)
    assert digits is not None
    codes = [" ".join(code) for code in permutations("123456789"[: int(digits[1])], 4)]
    return rng.choice(
        [
            code
            for code in codes
            if all(_pegs(guess, code) == (int(b), int(w)) for guess, b, w in guesses)
        ]
    )


def _pegs(guess: str, code: str) -> tuple[int, int]:
    """Return the black and white pegs for a guess if this is the code."""
    pairs = list(zip(guess.split(), code.split(), strict=True))
    black = sum(one == other for one, other in pairs)
    return black, len(set(guess.split()) & set(code.split())) - black


def _hangman(transcript: str, rng: random.Random) -> str:
    guessed = set(re.findall(r"^> \[(\w)\]$", transcript, re.MULTILINE))
    board = re.findall(r"C04\n((?: +[A-Z_])+)", transcript)[-1].lower().split()
    hidden = f"[^{''.join(guessed)}]" if guessed else "."
    pattern = re.compile("".join(board).replace("_", hidden))
    fitting = [word for word in WORDS if pattern.fullmatch(word)]
    letters = "".join(sorted(set("".join(fitting)) - guessed))
    return max(letters, key=lambda letter: sum(letter in word for word in fitting))


def _frozen_lake(transcript: str, rng: random.Random) -> str:
    board = transcript.rpartition("Current Board:")[2]
    rows = [line[2:-2].split("  |  ") for line in board.splitlines() if line.startswith("|")]
    cells = {(r, c): cell.strip() for r, row in enumerate(rows) for c, cell in enumerate(row)}

    def moves(place: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        row, column = place
        yield "up", (row - 1, column)
        yield "down", (row + 1, column)
        yield "left", (row, column - 1)
        yield "right", (row, column + 1)

    start = next(place for place, cell in cells.items() if cell == "P")
    safe = {place for place, cell in cells.items() if cell != "H"}
    return _first_move(
        start,
        lambda place: [each for each in moves(place) if each[1] in safe],
        lambda place: cells[place] == "G",
    )


def _tower_of_hanoi(transcript: str, rng: random.Random) -> str:
    disks = re.findall(r"^[ABC]: \[([\d, ]*)\]$", transcript, re.MULTILINE)[-3:]
    start: Towers = tuple(tuple(map(int, re.findall(r"\d", tower))) for tower in disks)

    def moves(towers: Towers) -> Iterator[tuple[str, Towers]]:
        for source, target in permutations(range(3), 2):
            if towers[source] and (not towers[target] or towers[source][-1] < towers[target][-1]):
                moved = list(towers)
                moved[source] = towers[source][:-1]
                moved[target] = (*towers[target], towers[source][-1])
                yield f"{'ABC'[source]} {'ABC'[target]}", tuple(moved)

    return _first_move(start, moves, lambda towers: not towers[0] and not towers[1])


def _first_move(
    start: Place,
    moves: Callable[[Place], Iterable[tuple[str, Place]]],
    is_goal: Callable[[Place], bool],
) -> str:
    """Return the first move of a shortest way from a place to a goal."""
    ways = deque([("", start)])
    seen = {start}
    while True:
        first, place = ways.popleft()
        if is_goal(place):
            return first
        for move, target in moves(place):
            if target not in seen:
                seen.add(target)
                ways.append((first or move, target))


def play(environment: TextArenaEnvironment, *, seed: int) -> list[TextArenaObservation]:
    """Play one game, the environment's default.

    Example:
        >>> from examples.textarena.environment import TextArenaEnvironment
        >>> from examples.textarena.play import play
        >>> def main():
        ...     with TextArenaEnvironment("Mastermind-v0") as environment:
        ...         print(play(environment, seed=1)[-1].outcome)

    Args:
        environment: The environment; its game is one of those that `act` plays.
        seed: The seed of the game and of the answers.

    Returns:
        The observations of all steps.
    """
    rng = random.Random(f"agent {seed}")
    observation = environment.reset(seed=seed)
    observations = []
    while not observation.done:
        observation = environment.step(act(observation, rng))
        observations.append(observation)
    return observations


def main() -> int:
    """Play the games; print a table of all answers with their rewards and components."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    console = Console(highlight=False)
    table = Table("game", "answer", "reward", "hints", "invalid", "outcome")
    for game in GAMES:
        with TextArenaEnvironment(game) as environment:
            observations = play(environment, seed=seed)
        answers = re.findall(r"^> (.*)$", observations[-1].transcript, re.MULTILINE)
        for answer, observation in zip(answers, observations, strict=True):
            components = observation.metadata["reward_components"]
            table.add_row(
                game,
                answer.replace("[", r"\["),
                f"{observation.reward:.3f}",
                *(
                    f"{components[name]:.2f}" if name in components else ""
                    for name in ("hints", "invalid", "outcome")
                ),
            )
        table.add_section()
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
