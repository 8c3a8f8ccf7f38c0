import doctest
import importlib
import inspect
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from examples.connect4.board import COLUMNS, ROWS, SIDES, Board, other
from examples.connect4.environment import Connect4Environment
from examples.connect4.models import Connect4Action, Connect4Observation, Connect4State
from examples.connect4.opponent import scripted
from examples.connect4.play import play
from examples.connect4.rubrics import Won
from guerdon.errors import EpisodeError, InvalidArgumentError, TrajectoryError

ROOT = Path(__file__).parents[2]
MODULES = ["board", "environment", "models", "opponent", "play", "rubrics"]

EMPTY_ROW = "." * COLUMNS
X_WINS = [0, 1, 0, 1, 0, 1, 0]  # X's fourth piece is in column 0
# Found by search: 42 moves without four in a row.
DRAW = [
    4, 5, 1, 4, 3, 3, 5, 2, 0, 6, 4, 0, 0, 5, 6, 3, 5, 6, 6, 5, 5,
    0, 4, 3, 2, 1, 6, 2, 6, 0, 1, 0, 2, 2, 4, 2, 1, 4, 3, 1, 3, 1,
]  # fmt: skip


def board_of(*rows):
    """Return a board with these lowest rows; the rows above are empty."""
    return Board.from_rows([EMPTY_ROW] * (ROWS - len(rows)) + list(rows))


def replies(*columns):
    """Return an opponent that plays these columns in order."""
    rest = iter(columns)
    return lambda board, side, rng: next(rest)


def played(environment, columns, **kwargs):
    """Begin a game, play these columns, and return the observations."""
    environment.reset(**kwargs)
    return [environment.step(Connect4Action(column=column)) for column in columns]


def winners_by_brute_force(rows):
    found = set()
    for row in range(ROWS):
        for column in range(COLUMNS):
            for down, right in (0, 1), (1, 0), (1, 1), (1, -1):
                cells = [(row + n * down, column + n * right) for n in range(4)]
                if all(r < ROWS and 0 <= c < COLUMNS for r, c in cells):
                    pieces = {rows[r][c] for r, c in cells}
                    if len(pieces) == 1:
                        found |= pieces
    return found - {"."}


# The board -------------------------------------------------------------------------------------


def test_board_drop_places_a_piece_on_its_column():
    board = Board().drop(3, "X").drop(3, "O").drop(6, "X")
    assert board.rows == [EMPTY_ROW] * 4 + ["...O...", "...X..X"]
    assert board.turn == "O"
    assert Board().turn == "X"


def test_board_drop_does_not_change_the_board():
    board = Board()
    board.drop(0, "X")
    assert board == Board()


@pytest.mark.parametrize(
    ("rows", "winner"),
    [
        (["XX.OOOO", "XO.XXOX"], "O"),
        (["X......", "XO.....", "XO.....", "XO....."], "X"),
        (["...O...", "..OX...", ".OXX...", "OXXO..X"], "O"),  # rising
        (["..X....", "..OX...", "..XOX..", "O.OOXX."], "X"),  # falling
        (["XX.XX..", "OO.OO.."], None),
        (["XXXO...", "OOOXOOO"], None),
        (["O......", "X......", "X......", "X......"], None),
        ([], None),
    ],
    ids=["across", "upright", "rising", "falling", "with a gap", "three", "three up", "empty"],
)
def test_board_winner_has_four_in_a_row(rows, winner):
    board = board_of(*rows)
    assert board.winner == winner
    assert board.over == (winner is not None)


def test_board_winner_ignores_rows_across_an_edge():
    assert board_of("X......", "O...XXX").winner is None
    assert board_of("XX.....", "OO...XX").winner is None


@given(st.lists(st.text("XO", max_size=ROWS), min_size=COLUMNS, max_size=COLUMNS))
def test_board_winner_equals_brute_force(columns):
    board = Board(tuple(columns))
    found = winners_by_brute_force(board.rows)
    assert board.winner in (found or {None})
    assert Board.from_rows(board.rows) == board


@given(st.lists(st.integers(0, COLUMNS - 1), max_size=80))
def test_board_over_after_the_first_four_in_a_row_or_when_full(columns):
    board = Board()
    for column in columns:
        if column not in board.legal_columns:
            with pytest.raises(InvalidArgumentError):
                board.drop(column, board.turn)
            continue
        before, board = board, board.drop(column, board.turn)
        assert not before.over
        assert winners_by_brute_force(board.rows) <= {before.turn}
    assert board.over == (not board.legal_columns)
    assert board.over == (board.full or bool(winners_by_brute_force(board.rows)))


@pytest.mark.parametrize("column", [-1, 7, 2])
def test_board_drop_rejects_an_unknown_or_full_column(column):
    board = Board(("", "", "XOXOXO", "", "", "", ""))
    with pytest.raises(InvalidArgumentError, match=f"X .* column {column}; .*: 0, 1, 3, 4, 5, 6"):
        board.drop(column, "X")


def test_board_drop_rejects_a_move_after_a_win():
    with pytest.raises(InvalidArgumentError, match="the game is over"):
        board_of("XXXX...").drop(5, "O")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([EMPTY_ROW], "6 rows of 7"),
        ([EMPTY_ROW] * 5 + ["X"], "6 rows of 7"),
        ([EMPTY_ROW] * 4 + ["...X...", EMPTY_ROW], "column 3 .* got '.X'"),
        ([EMPTY_ROW] * 5 + ["x......"], "column 0 .* got 'x'"),
    ],
)
def test_board_from_rows_rejects_an_invalid_position(rows, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Board.from_rows(rows)


def test_board_draw_has_the_column_numbers_below():
    assert board_of("XO.....").draw().splitlines()[-2:] == ["X O . . . . .", "0 1 2 3 4 5 6"]


# The opponent ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (["OOO.XXX"], 3),  # it wins and blocks with one piece
        (["X......", "X.....O", "X.....O", "OXX...O"], 6),  # it wins rather than blocks
        (["X......", "X......", "XO....O"], 0),  # it blocks
        (["OO.....", "XXX...."], 3),
    ],
)
def test_scripted_wins_or_blocks(rows, column, seed):
    assert scripted(board_of(*rows), "O", random.Random(seed)) == column


def test_scripted_prefers_the_middle():
    rng = random.Random(0)
    chosen = [scripted(Board(), "O", rng) for _ in range(800)]
    counts = [chosen.count(column) for column in range(COLUMNS)]
    assert min(counts) > 0
    assert max(counts) == counts[3]
    assert counts[3] > 2 * max(counts[0], counts[6])


@given(st.lists(st.integers(0, COLUMNS - 1), max_size=41), st.integers(0, 2**32))
def test_scripted_returns_a_legal_column(columns, seed):
    board = Board()
    for column in columns:
        after = board.drop(column, board.turn) if column in board.legal_columns else board
        if not after.over:
            board = after
    assert scripted(board, board.turn, random.Random(seed)) in board.legal_columns


# The environment -------------------------------------------------------------------------------


def test_step_plays_the_agents_move_and_the_opponents_reply():
    environment = Connect4Environment(replies(3, 6))
    first = environment.reset(episode_id="game-1")
    assert (first.turn, first.mover, first.last_moves, first.reward) == ("X", None, [], None)
    observation = environment.step(Connect4Action(column=3))
    assert observation.board[-2:] == ["...O...", "...X..."]
    assert (observation.turn, observation.mover, observation.last_moves) == ("X", "X", [3, 3])
    assert (observation.done, observation.reward, observation.winner) == (False, 0.0, None)
    environment.step(Connect4Action(column=0))
    assert environment.state == Connect4State(
        episode_id="game-1", step_count=2, agent="X", moves=[3, 3, 0, 6]
    )


def test_reset_plays_the_opponents_first_move_without_agent_first():
    environment = Connect4Environment(replies(2, 2), agent_first=False)
    first = environment.reset()
    assert (first.turn, first.mover, first.last_moves) == ("O", None, [2])
    observation = environment.step(Connect4Action(column=4))
    assert observation.board[-2:] == ["..X....", "..X.O.."]
    assert (observation.mover, observation.last_moves) == ("O", [4, 2])
    assert environment.state.agent == "O"


def test_connect4_environment_rejects_agent_first_false_without_opponent():
    with pytest.raises(InvalidArgumentError, match="needs an opponent"):
        Connect4Environment(None, agent_first=False)


def test_reset_seed_determines_the_opponents_moves():
    environment = Connect4Environment()
    again = [[step.last_moves for step in play(environment, seed=5)] for _ in range(2)]
    assert again[0] == again[1]
    games = {str([step.last_moves for step in play(environment, seed=n)]) for n in range(5)}
    assert len(games) > 1


def test_connect4_environment_ignores_the_global_random_state():
    state = random.getstate()
    games = []
    for seed in 1, 2:
        random.seed(seed)
        before = random.getstate()
        games.append([step.board for step in play(Connect4Environment(), seed=5)])
        assert random.getstate() == before
    random.setstate(state)
    assert games[0] == games[1]


def test_reset_generates_a_unique_episode_id():
    environment = Connect4Environment()
    assert environment.state.episode_id is None
    names = set()
    for _ in range(2):
        environment.reset()
        names.add(environment.state.episode_id)
    assert len(names) == 2
    assert None not in names


def test_step_before_reset_or_after_the_end_raises():
    environment = Connect4Environment(None)
    with pytest.raises(EpisodeError, match=r"call reset\(\) first"):
        environment.step(Connect4Action(column=0))
    played(environment, X_WINS)
    with pytest.raises(EpisodeError, match="the game is over"):
        environment.step(Connect4Action(column=2))
    environment.reset()
    assert environment.step(Connect4Action(column=2)).done is False


def test_step_rejects_a_full_column_and_leaves_the_game_unchanged():
    environment = Connect4Environment(replies(0, 0, 0, 6))
    observations = played(environment, [0, 0, 0])
    assert observations[-1].legal_columns == [1, 2, 3, 4, 5, 6]
    before = environment.state.model_copy(deep=True)
    with pytest.raises(InvalidArgumentError, match=r"column 0; .*: 1, 2, 3, 4, 5, 6"):
        environment.step(Connect4Action(column=0))
    assert environment.state == before
    assert len(environment.rubric.trajectory) == 3
    after = environment.step(Connect4Action(column=1))
    assert after.last_moves == [1, 6]
    assert after.board[-1] == "XX....O"


def test_step_with_a_failing_opponent_leaves_the_game_unchanged():
    environment = Connect4Environment(replies(9, 4))
    environment.reset()
    with pytest.raises(InvalidArgumentError, match="O can't drop a piece in column 9"):
        environment.step(Connect4Action(column=1))
    assert environment.state.moves == []
    assert environment.step(Connect4Action(column=1)).board[-1] == ".X..O.."


def test_reset_with_a_failing_opponent_leaves_no_running_game():
    environment = Connect4Environment(replies(0, 9), agent_first=False)
    environment.reset()
    with pytest.raises(InvalidArgumentError, match="X can't"):
        environment.reset()
    with pytest.raises(EpisodeError):
        environment.step(Connect4Action(column=0))


@pytest.mark.parametrize("column", [-1, 7, "left", None])
def test_connect4_action_rejects_an_unknown_column(column):
    with pytest.raises(ValidationError, match="column"):
        Connect4Action(column=column)


def test_connect4_environment_has_types_and_metadata():
    environment = Connect4Environment()
    assert environment.action_type is Connect4Action
    assert environment.observation_type is Connect4Observation
    assert environment.state_type is Connect4State
    assert environment.get_metadata().description.startswith("Connect four")


def test_connect4_observation_round_trips_through_json():
    for observation in [Connect4Environment().reset(seed=1), *play(Connect4Environment(), seed=1)]:
        assert Connect4Observation.model_validate_json(observation.model_dump_json()) == observation


# The reward ------------------------------------------------------------------------------------


def test_compute_step_rewards_discounts_a_win():
    environment = Connect4Environment(replies(1, 1, 1), gamma=0.5)
    observations = played(environment, [0, 0, 0, 0])
    assert (observations[-1].winner, observations[-1].done) == ("X", True)
    assert observations[-1].last_moves == [0]  # the game is over: no reply
    assert observations[-1].turn is None
    assert observations[-1].legal_columns == []
    assert [each.reward for each in observations] == [0.0, 0.0, 0.0, 1.0]
    assert environment.rubric.compute_step_rewards() == [0.125, 0.25, 0.5, 1.0]


def test_compute_step_rewards_are_0_after_a_loss():
    environment = Connect4Environment(replies(1, 1, 1, 1))
    observations = played(environment, [0, 0, 0, 6])
    assert (observations[-1].winner, observations[-1].mover) == ("O", "X")
    assert [each.reward for each in observations] == [0.0] * 4
    assert environment.rubric.compute_step_rewards() == [0.0] * 4


@pytest.mark.parametrize("agent_first", [True, False])
def test_compute_step_rewards_discounts_a_draw(agent_first):
    agents, opponents = DRAW[not agent_first :: 2], DRAW[agent_first::2]
    environment = Connect4Environment(replies(*opponents), gamma=0.9, agent_first=agent_first)
    last = played(environment, agents)[-1]
    assert (last.done, last.winner, last.reward, last.turn) == (True, None, 0.5, None)
    rewards = environment.rubric.compute_step_rewards()
    assert rewards == pytest.approx([0.5 * 0.9 ** (20 - t) for t in range(21)])


def test_compute_step_rewards_without_opponent_credits_each_side_with_its_outcome():
    environment = Connect4Environment(None, gamma=0.5)
    observations = played(environment, X_WINS)
    assert [each.mover for each in observations] == list("XOXOXOX")
    assert [each.turn for each in observations] == [*"OXOXOX", None]
    assert [each.last_moves for each in observations] == [[column] for column in X_WINS]
    assert (observations[-1].winner, observations[-1].reward) == ("X", 1.0)
    rewards = environment.rubric.compute_step_rewards()
    assert rewards == [0.5**6, 0.0, 0.5**4, 0.0, 0.5**2, 0.0, 1.0]
    assert environment.state.agent is None


def test_compute_step_rewards_without_opponent_credits_a_draw_to_both_sides():
    environment = Connect4Environment(None, gamma=1.0)
    assert played(environment, DRAW)[-1].reward == 0.5
    assert environment.rubric.compute_step_rewards() == [0.5] * 42


def test_only_the_last_observation_has_step_rewards():
    environment = Connect4Environment(None)
    *before, last = played(environment, X_WINS)
    assert not any("step_rewards" in each.metadata for each in before)
    assert last.metadata["step_rewards"] == environment.rubric.compute_step_rewards()
    assert len(last.metadata["step_rewards"]) == len(X_WINS)
    assert "reward_error" not in last.metadata
    sent = Connect4Observation.model_validate_json(last.model_dump_json())
    assert sent.metadata["step_rewards"] == last.metadata["step_rewards"]


def test_reset_clears_the_trajectory():
    environment = Connect4Environment(None)
    played(environment, X_WINS)
    environment.reset()
    assert environment.rubric.trajectory == []
    assert environment.rubric.compute_step_rewards() == []
    last = played(environment, X_WINS)[-1]
    assert len(last.metadata["step_rewards"]) == len(X_WINS)


def test_reset_during_a_game_begins_a_new_one():
    environment = Connect4Environment(None)
    played(environment, [0, 0, 0])
    first = environment.reset()
    assert first.board == Board().rows
    assert environment.state.moves == []
    assert environment.state.step_count == 0
    assert environment.rubric.trajectory == []


def test_compute_step_rewards_of_an_aborted_game_raises():
    environment = Connect4Environment(None)
    played(environment, [0, 1, 2])
    with pytest.raises(TrajectoryError, match="isn't over after 3 steps"):
        environment.rubric.compute_step_rewards()


def test_won_credits_a_game_from_json_like_the_live_one():
    environment = Connect4Environment(gamma=0.9)
    rubric = Won(gamma=0.9)
    for observation in play(environment, seed=3):
        action = Connect4Action(column=observation.last_moves[0])
        rubric(action, Connect4Observation.model_validate_json(observation.model_dump_json()))
    assert rubric.compute_step_rewards() == environment.rubric.compute_step_rewards()


@pytest.mark.parametrize("gamma", [-0.1, 1.5])
def test_connect4_environment_rejects_gamma_outside_0_1(gamma):
    with pytest.raises(InvalidArgumentError, match="gamma"):
        Connect4Environment(gamma=gamma)


def test_won_scores_the_side_that_moved():
    for winner in SIDES:
        rubric = Won()
        assert rubric(None, SimpleNamespace(done=True, winner=winner, mover=winner)) == 1.0
        rubric.reset()
        assert rubric(None, SimpleNamespace(done=True, winner=winner, mover=other(winner))) == 0.0


# Command line ----------------------------------------------------------------------------------


def run(*command):
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.edge
def test_connect4_play_prints_the_board_and_the_step_rewards():
    output = run(sys.executable, "-m", "examples.connect4.play", "3")
    environment = Connect4Environment(gamma=0.9)
    last = play(environment, seed=3)[-1]
    assert output.startswith(Board.from_rows(last.board).draw())
    assert "The agent played X; X won, seed 3." in output
    for reward in environment.rubric.compute_step_rewards():
        assert f"{reward:.3f}" in output
    assert output == run(sys.executable, "-m", "examples.connect4.play")


@pytest.mark.edge
def test_guerdon_tree_prints_the_summary_of_won():
    output = run(
        Path(sys.executable).with_name("guerdon"), "tree", "examples/connect4/rubrics.py:Won"
    )
    assert "A win scores 1" in output
    assert "[0, 1]" in output


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"examples.connect4.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_connect4_public_names_are_sorted_and_have_examples(name):
    module = importlib.import_module(f"examples.connect4.{name}")
    assert module.__all__ == sorted(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or (inspect.isfunction(value) and public != "main"):
            assert ">>>" in inspect.getdoc(value), public
