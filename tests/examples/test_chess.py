"""Chess: rules, notation, opponents, the environment, its reward, and games from PGN."""

import asyncio
import contextlib
import doctest
import importlib
import itertools
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from examples.chess import evaluation, game, opponents
from examples.chess.environment import CHANCES, ChessEnvironment
from examples.chess.evaluation import king_safety, material, mobility
from examples.chess.game import Game, other
from examples.chess.models import ChessAction, ChessObservation
from examples.chess.notation import find_move, read_move
from examples.chess.opponents import OPPONENTS
from examples.chess.pgn import read_pgn, replay, rollouts, to_rollout
from examples.chess.play import REWARD, act, main, play
from examples.chess.rubrics import chess_reward
from guerdon import (
    EnvClient,
    EnvPool,
    RewardPipeline,
    RLRolloutWorker,
    Rollout,
    check_environment,
    create_app,
    score_rollouts,
)
from guerdon.envs import ConfiguredEnv
from guerdon.errors import EpisodeError, InvalidArgumentError, MissingExtraError, ServerError
from guerdon.rollouts import PolicyOutput
from tests.envs.client.servers import Served

ROOT = Path(__file__).parents[2]
GAMES = ROOT / "examples" / "chess" / "games.pgn"
MODULES = ["environment", "evaluation", "game", "models", "notation", "opponents", "pgn", "play",
           "rubrics"]  # fmt: skip

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
# Both knights can move to d2; the pawn on e7 promotes; White may castle on both sides.
MANY = "8/4P1k1/8/8/8/1N3N2/8/R3K2R w KQ - 0 1"


def played(*moves, fen=None):
    """Return a game after some moves."""
    found = Game(fen)
    for san in moves:
        found.play(san)
    return found


@pytest.fixture
def against(monkeypatch):
    """Return a function that makes an environment whose opponent plays given moves."""

    def against(*moves, side="white", rubric=None):
        replies = iter(moves)
        monkeypatch.setitem(OPPONENTS, "random", lambda board, rng: next(replies))
        environment = ChessEnvironment()
        environment.rubric = rubric or environment.rubric
        environment.reset(opponent="random", side=side)
        return environment

    return against


def step(environment, answer):
    return environment.step(ChessAction(content=answer))


# The game --------------------------------------------------------------------------------------


def perft(fen, depth):
    """Count the games of a length, through the legal moves of observations."""
    now = ChessObservation.of(Game(fen), "white", last_moves=[])
    if depth == 1:
        return len(now.legal_moves)
    return sum(perft(Game(fen).after(san), depth - 1) for san in now.legal_moves)


@pytest.mark.parametrize(
    ("fen", "counts"),
    [
        (START, [20, 400, 8902]),
        ("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", [48, 2039]),
        ("8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", [14, 191, 2812]),
        ("r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1", [6, 264, 9467]),
        ("rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8", [44, 1486]),
    ],
)
def test_legal_moves_have_the_published_perft(fen, counts):
    assert [perft(fen, depth + 1) for depth in range(len(counts))] == counts


def test_legal_moves_have_castling_promotions_and_en_passant():
    legal = Game(MANY).legal_moves
    assert {legal[san] for san in ("O-O", "O-O-O", "e8=Q", "e8=N+")} == {
        "e1g1", "e1c1", "e7e8q", "e7e8n"
    }  # fmt: skip
    assert played("e4", "a6", "e5", "d5").legal_moves["exd6"] == "e5d6"


@pytest.mark.parametrize(
    ("fen", "moves", "result", "ended_by"),
    [
        (None, "f3 e5 g4 Qh4#", "0-1", "checkmate"),
        ("k7/8/K7/8/8/8/8/7R w - - 0 1", "Rh8#", "1-0", "checkmate"),
        ("k7/8/K7/8/8/8/8/1R6 w - - 0 1", "Rb7", "1/2-1/2", "stalemate"),
        ("k7/8/8/8/8/8/1r6/K7 w - - 0 1", "Kxb2", "1/2-1/2", "insufficient material"),
        ("k7/8/8/8/8/8/7R/K7 w - - 99 80", "Rh3", "1/2-1/2", "50 moves"),
        (None, "Nf3 Nf6 Ng1 Ng8 Nf3 Nf6 Ng1 Ng8", "1/2-1/2", "repetition"),
    ],
)
def test_game_result_and_ended_by(fen, moves, result, ended_by):
    *moves, last = moves.split()
    before = played(*moves, fen=fen)
    assert (before.result, before.ended_by) == (None, None)
    before.play(last)
    assert (before.result, before.ended_by, before.turn) == (result, ended_by, None)
    assert before.legal_moves == {}


def test_game_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    game._spiel.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"pip install 'guerdon\[chess\]'") as raised:
            ChessEnvironment().reset()
    finally:
        game._spiel.cache_clear()
    assert raised.value.extra == "chess"


# Notation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "move"),
    [
        ("e4", "e4"), (" Nf3\n", "Nf3"), ("e7e8q", "e7e8q"), ("O-O-O+", "O-O-O+"), ("0-0", "0-0"),
        ("exd8=Q#", "exd8=Q#"), ("Nb1d2", "Nb1d2"), ("<move> e4 </move>", "e4"),
        ("1. e4 or 1. d4?\n<move>d4</move> it is", "d4"),
    ],
)  # fmt: skip
def test_read_move_reads_san_and_uci_alone_or_in_a_tag(answer, move):
    assert read_move(answer) == move


@pytest.mark.parametrize(
    "answer",
    [
        "", "I resign", "e9", "1. e4", "e2-e4", "Pe4!", "e4 e5", "E4", "nf3", "e2e4Q", "O-0", "--",
        "<move>e4", "<move></move>", "<move>my king</move>", "<move>e4</move><move>e4</move>",
        "<move>" * 5000,
    ],
)  # fmt: skip
def test_read_move_rejects_other_answers(answer):
    with pytest.raises(InvalidArgumentError, match=r"such as Nf3, or UCI, .* <move>Nf3</move>"):
        read_move(answer)


@given(st.text("abcdefgh12345678KQRBNOx=+#-<>/move ") | st.text())
def test_read_move_and_find_move_reject_any_other_text(text):
    legal = Game(MANY).legal_moves
    with contextlib.suppress(InvalidArgumentError):
        assert find_move(read_move(text), legal, "white") in legal


@pytest.mark.parametrize(
    ("move", "san"),
    [
        ("Nbd2", "Nbd2"), ("f3d2", "Nfd2"), ("Nf3d2", "Nfd2"), ("Nb3d4", "Nbd4"),
        ("Nfe5+", "Ne5"), ("0-0", "O-O"),
        ("O-O-O", "O-O-O"), ("e8=Q", "e8=Q"), ("e7e8r", "e8=R"), ("e1c1", "O-O-O"),
    ],
)  # fmt: skip
def test_find_move_finds_the_legal_move(move, san):
    assert find_move(move, Game(MANY).legal_moves, "white") == san


def test_find_move_finds_every_legal_move_of_played_games():
    rng = random.Random(1)
    for _ in range(3):
        found = Game()
        while found.turn and len(found.moves) < 60:
            legal = found.legal_moves
            for san, uci in legal.items():
                assert find_move(san, legal, found.turn) == san
                assert find_move(uci, legal, found.turn) == san
                assert read_move(san) == san
            found.play(rng.choice(list(legal)))


@pytest.mark.parametrize(
    ("move", "message"),
    [
        ("Nd2", "'Nd2' is ambiguous: it may be Nbd2 or Nfd2|Nfd2 or Nbd2"),
        ("Ke3", "'Ke3' is not a legal move of white"),
        ("Nxd2", "not a legal move"),  # it takes nothing
        ("e8", "not a legal move"),  # to what does it promote?
        ("g7g6", "'g7g6' is not a legal move of white, whose turn it is"),  # Black's king
    ],
)
def test_find_move_rejects_illegal_and_ambiguous_moves(move, message):
    with pytest.raises(InvalidArgumentError, match=message):
        find_move(move, Game(MANY).legal_moves, "white")


# Positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", [material, mobility])
def test_material_and_mobility_are_shares_of_both_sides(measure):
    found, rng = Game(), random.Random(2)
    assert measure(found.fen, "white") == 0.5
    while found.turn:
        shares = [measure(found.fen, side) for side in ("white", "black")]
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(1)
        found.play(rng.choice(list(found.legal_moves)))


def test_material_counts_pawns_knights_bishops_rooks_and_queens():
    assert material("4k3/8/8/8/8/8/8/QRBNPK2 w - - 0 1", "white") == 1.0
    assert material("4kq2/8/8/8/8/8/8/R2BK3 w - - 0 1", "black") == 9 / 17
    assert material("4k3/8/8/8/8/8/8/4K3 w - - 0 1", "black") == 0.5


def test_king_safety_is_the_share_of_squares_that_are_not_attacked():
    assert king_safety(START, "white") == king_safety(START, "black") == 1.0
    # Of e2 and the 8 squares around it, a queen on e1 attacks d1, f1, d2, e2 and f2.
    assert king_safety("7k/8/8/8/8/8/4K3/4q3 w - - 0 1", "white") == pytest.approx(4 / 9)


def test_evaluation_attacks_are_those_of_openspiel():
    """A move gives check if it leads to an attack on the king: two sources of that."""
    rng, checks = random.Random(3), 0
    for _ in range(4):
        found = Game()
        while found.turn:
            for san in found.legal_moves:
                pieces = evaluation._pieces(found.after(san))
                king = "k" if found.turn == "white" else "K"
                (square,) = (at for at, piece in pieces.items() if piece == king)
                attacked = square in evaluation._attacks(pieces, found.turn)
                assert attacked == san.endswith(("+", "#")), (found.fen, san)
                checks += attacked
            found.play(rng.choice(list(found.legal_moves)))
    assert checks > 100


# Opponents -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("better", "worse"), [("greedy", "random"), ("search", "greedy")])
def test_opponents_have_three_strengths(better, worse):
    points = 0.0
    for seed in range(6):
        side = ("white", "black")[seed % 2]
        rng, found = random.Random(seed), Game()
        while found.turn:
            found.play(OPPONENTS[better if found.turn == side else worse](found, rng))
        points += 0.5 if found.result == "1/2-1/2" else found.result == game.WON_BY[side]
    assert points >= 4


@pytest.mark.parametrize("name", OPPONENTS)
def test_opponents_depend_on_the_random_generator_alone(name):
    def moves(seed):
        rng, found = random.Random(seed), Game()
        while len(found.moves) < 8:
            found.play(OPPONENTS[name](found, rng))
        return found.moves

    state = random.getstate()
    assert moves(1) == moves(1)
    assert len({tuple(moves(seed)) for seed in range(4)}) > 1
    assert random.getstate() == state


@pytest.mark.parametrize("name", ["greedy", "search"])
def test_opponents_give_mate_and_take_pieces(name):
    choose = OPPONENTS[name]
    for seed in range(3):
        rng = random.Random(seed)
        assert choose(Game("k7/8/K7/8/8/8/3n3R/8 w - - 0 1"), rng) == "Rh8#"
        assert choose(Game("3q3k/8/8/8/8/8/8/K2R4 w - - 0 1"), rng) == "Rxd8+"
        assert choose(Game("k6q/8/8/8/8/8/K7/7R b - - 0 1"), rng) == "Qxh1"


def test_search_does_not_lose_a_piece_to_the_next_move():
    position = "4k3/8/2p5/3p4/8/8/3R4/4K3 w - - 0 1"
    assert {opponents.greedy(Game(position), random.Random(n)) for n in range(4)} == {"Rxd5"}
    assert opponents.search(Game(position), random.Random(0)) != "Rxd5"


# The environment -------------------------------------------------------------------------------


def test_step_plays_the_move_and_the_reply(against):
    environment = against("e5", "Nc6")
    observation = step(environment, "I open with <move>e2e4</move>")
    assert observation.last_moves == ["e4", "e5"]
    assert (observation.turn, observation.ply, observation.done) == ("white", 2, False)
    assert (observation.result, observation.ended_by, observation.refused) == (None, None, None)
    assert observation.previous_fen == START
    assert observation.fen == "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2"
    assert observation.legal_moves["Nf3"] == "g1f3"
    assert step(environment, "Nf3").last_moves == ["Nf3", "Nc6"]
    assert environment.state.moves == ["e4", "e5", "Nf3", "Nc6"]


def test_reset_lets_the_opponent_begin_if_the_agent_is_black(against):
    environment = against("e4", "Nf3", side="black")
    assert environment.state.moves == ["e4"]
    observation = step(environment, "e5")
    assert (observation.side, observation.turn) == ("black", "black")
    assert observation.last_moves == ["e5", "Nf3"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"opponent": "stockfish"}, "`opponent` must be one of random, greedy, search, got 'st"),
        ({"side": "both"}, "`side` must be one of white, black, got 'both'"),
    ],
)
def test_reset_rejects_an_unknown_opponent_or_side(option, message):
    with pytest.raises(InvalidArgumentError, match=message):
        ChessEnvironment().reset(**option)


REFUSED = [
    ("I move my pawn to the center.", "an answer must be one move", 0),
    ("e2-e4", "an answer must be one move", 0),
    ("<move>e4</move> or <move>d4</move>", "got 2 tags", 0),
    ("Ke2", "'Ke2' is not a legal move of white", 1),
    ("e7e5", "'e7e5' is not a legal move of white, whose turn it is", 1),  # Black's move
    ("Nd2", "'Nd2' is ambiguous", 1),
]


@pytest.mark.parametrize(("answer", "message", "readable"), REFUSED)
def test_step_refuses_what_can_not_be_played_and_scores_it_0(against, answer, message, readable):
    environment = against("a6", "a5", "a4")
    step(environment, "Nf3")
    before = step(environment, "d4")
    observation = step(environment, answer)
    assert message in observation.refused
    assert (observation.reward, observation.done) == (0.0, False)
    assert (observation.fen, observation.last_moves) == (before.fen, [])
    assert observation.legal_moves == before.legal_moves
    components = {"rubric_0": float(readable)} | ({"rubric_1": 0.0} if readable else {})
    assert observation.metadata["reward_components"] == components
    assert step(environment, "Nbd2").last_moves == ["Nbd2", "a4"]


def test_step_loses_the_game_at_the_third_answer_in_a_row_that_can_not_be_played(against):
    environment = against("a6")
    for answer in ("?", "Ke2", "e4", "e4", "e9"):
        assert not step(environment, answer).done
    last = step(environment, "O-O")
    assert (last.done, last.result, last.ended_by) == (True, "0-1", "forfeit")
    assert (last.turn, last.legal_moves, environment.state.refused) == (None, {}, CHANCES)
    assert last.reward == 0.0
    rewards = last.metadata["step_rewards"]
    assert (rewards[:2], rewards[3:]) == ([0.0, 0.0], [0.0, 0.0, 0.0])
    assert rewards[2] != 0.0  # what e4 changed on the board
    with pytest.raises(EpisodeError, match="the game is over"):
        step(environment, "e5")


def test_step_before_reset_or_after_the_end_raises(against):
    with pytest.raises(EpisodeError, match=r"call reset\(\) first"):
        step(ChessEnvironment(), "e4")
    environment = against("f3", "g4", side="black")
    step(environment, "e5")
    assert step(environment, "Qh4#").result == "0-1"
    with pytest.raises(EpisodeError, match="the game is over"):
        step(environment, "e4")
    environment.reset()
    assert step(environment, "e4").ply == 2


def test_chess_environment_passes_check_environment():
    actions = [{"content": text} for text in ("e4", "d4", "<move>Nf3</move>", "g3", "no move")]
    check_environment(ChessEnvironment, actions=actions).raise_for_problems()
    check_environment(ChessEnvironment).raise_for_problems()


def test_act_decides_from_the_observation_alone():
    observation = ChessEnvironment().reset(seed=4)
    received = ChessObservation.model_validate_json(observation.model_dump_json())
    assert act(received, random.Random(1)) == act(observation, random.Random(1))


# The reward ------------------------------------------------------------------------------------


def test_chess_reward_step_rewards_of_a_win_by_hand(against):
    environment = against("f3", "g4", side="black", rubric=chess_reward(gamma=0.5))
    fens = [environment._game.fen]
    step(environment, "e5")
    fens.append(environment._game.fen)
    refused = step(environment, "Ke4")
    last = step(environment, "Qh4#")
    fens.append(last.fen)
    assert refused.reward == 0.0
    shaping = [
        sum(
            weight * (measure(after, "black") - measure(before, "black"))
            for weight, measure in ((1.0, material), (0.25, mobility), (0.25, king_safety))
        )
        for before, after in itertools.pairwise(fens)
    ]
    assert min(map(abs, shaping)) > 0
    expected = [0.25 + shaping[0], 0.0, 1.0 + shaping[1]]  # discounted by each step, also refused
    assert last.metadata["step_rewards"] == pytest.approx(expected)
    assert last.reward == pytest.approx(expected[-1])


@pytest.mark.parametrize(
    ("result", "side", "outcome"),
    [("1-0", "white", 1.0), ("1-0", "black", 0.0), ("1/2-1/2", "black", 0.5)],
)
def test_chess_win_loss_rubric_scores_the_result_for_the_side(result, side, outcome):
    reward = chess_reward(gamma=1.0)
    [pgn] = read_pgn(f"1. e4 e5 {result}")
    row = next(score_rollouts(reward, [Rollout.from_row(to_rollout(pgn, side))]))
    assert row["components"]["rubric_2.rubric_0"] == outcome


def test_material_mobility_and_king_safety_add_up_to_what_a_game_changed():
    with ConfiguredEnv(ChessEnvironment, REWARD) as make, make() as environment:
        first = environment.reset(seed=1)
        observations = play(environment, seed=1)
    for name, measure in (("material", material), ("mobility", mobility)):
        total = sum(each.metadata["reward_components"][name] for each in observations)
        change = measure(observations[-1].fen, "white") - measure(first.fen, "white")
        assert total == pytest.approx(change)


@pytest.mark.parametrize("seed", range(3))
def test_reward_file_gives_the_same_numbers_as_chess_reward(seed):
    def played(environment):
        rng = random.Random(seed)
        observation, steps = environment.reset(seed=seed, opponent="search"), []
        while not observation.done:
            move = rng.choice([*observation.legal_moves, "Ke9", "Kh8", "?"])
            observation = step(environment, move)
            steps.append(observation)
        return steps

    with ConfiguredEnv(ChessEnvironment, REWARD) as make, make() as environment:
        from_file = played(environment)
    from_code = played(ChessEnvironment())
    assert any(each.refused for each in from_code)
    assert [each.reward for each in from_file] == [each.reward for each in from_code]
    step_rewards = [steps[-1].metadata["step_rewards"] for steps in (from_file, from_code)]
    assert step_rewards[0] == pytest.approx(step_rewards[1])
    components = from_file[0].metadata["reward_components"]
    assert {name for name in components if "." not in name} == {
        each["name"] for each in yaml.safe_load(REWARD.read_text())["per_turn"]
    }


# Games from PGN --------------------------------------------------------------------------------


def test_replay_of_20_games_gives_the_results_of_their_headers():
    games = list(read_pgn(GAMES.read_text()))
    ends = [replay(pgn) for pgn in games]
    assert [end.result for end in ends] == [pgn.headers["Result"] for pgn in games]
    assert len(games) == 20
    assert {end.ended_by for end in ends} == {
        "checkmate", "stalemate", "repetition", "50 moves", "insufficient material"
    }  # fmt: skip


def test_read_pgn_skips_comments_variations_and_annotations():
    text = """[White "Ann \\"A.\\" Ott"]
% a line for programs
[Result "0-1"]

1.f3?! {weakens (the king} e5 $14 (1... d5 2. e4 (2. d4 {!} Nf6) 2... dxe4) 2 . ... ; e4!
2. g4?? Qh4# 0-1

[White "Bob"] 1. 0-0 (1. --) *
1. d4"""
    one, two, three = read_pgn(text)
    assert one.headers == {"White": 'Ann "A." Ott', "Result": "0-1"}
    assert (one.moves, one.result) == (["f3", "e5", "g4", "Qh4#"], "0-1")
    assert (two.headers, two.moves, two.result) == ({"White": "Bob"}, ["0-0"], "*")
    assert (three.number, three.moves, three.result) == (3, ["d4"], "*")
    assert list(read_pgn("\n")) == []
    assert [pgn.headers for pgn in read_pgn('[Round "1"] [Round "2"] 1. e4 *')] == [
        {"Round": "1"}, {"Round": "2"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1. e4\n{no end", "line 2: not PGN: '{no end'"),
        ("1. e4 (1. d4", "brackets"),
        ("1. e4 ) e5 ( 2. d4", "brackets"),
        ("[White Ann]", "line 1: not PGN"),
        ("<html>", "line 1: not PGN"),
    ],
)
def test_read_pgn_rejects_what_is_no_pgn(text, message):
    with pytest.raises(InvalidArgumentError, match=message):
        list(read_pgn(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1. e4 e5 2. Ke3 *", "game 1, ply 3: 'Ke3' is not a legal move of white"),
        ("1. Nf3 a6 2. d4 a5 3. Nd2 *", "game 1, ply 5: 'Nd2' is ambiguous"),
        ("1. f3 e5 2. g4 Qh4# 3. e4 0-1", "game 1, ply 5: 'e4' after the end by checkmate"),
        ("1. f3 e5 2. g4 Qh4# 1-0", "game 1: the file or the board has different results: 0-1, 1-"),
        ('[Result "1-0"] 1. e4 0-1', "different results: 0-1, 1-0"),
        ('[FEN "8/8/8/8"] 1. e4 *', "game 1: it has a FEN header; only games from the first"),
    ],
)  # fmt: skip
def test_rollouts_reports_a_game_that_can_not_be_played(text, message):
    rows = list(rollouts(text))
    assert [row["id"] for row in rows] == ["1-white", "1-black"]
    assert all(row["ended"] == "error" and message in row["error"] for row in rows)


@pytest.mark.parametrize(
    ("text", "result", "ended_by"),
    [
        ("1. f3 e5 2. g4 Qh4# 0-1", "0-1", "checkmate"),
        ("1. f3 e5 2. g4 Qh4#", "0-1", "checkmate"),
        ('[Result "1-0"] 1. f3 e5', "1-0", "resignation or agreement"),
        ("1. f3 e5 1/2-1/2", "1/2-1/2", "resignation or agreement"),
        ("1. f3 e5 *", None, None),
    ],
)
def test_to_rollout_ends_with_the_result_of_the_board_or_of_the_file(text, result, ended_by):
    [pgn] = read_pgn(text)
    row = to_rollout(pgn, "white")
    last = json.loads(row["messages"][-1]["content"])
    assert (row["result"], last["result"], last["ended_by"]) == (result, result, ended_by)


def test_score_rollouts_does_not_score_a_game_without_a_result():
    rows = [Rollout.from_row(row) for row in rollouts("1. e4 e5 *")]
    for row in score_rollouts(chess_reward(), rows):
        assert (row["score"], row["is_score_valid"]) == (None, False)
        assert "the game has no result: it isn't over at ply 2" in row["error"]


@pytest.mark.parametrize(
    ("last", "error"),
    [([], "no message after this turn"), ([{"role": "user", "content": "Well done!"}], "JSON")],
)
def test_score_rollouts_does_not_score_a_game_without_its_last_observation(last, error):
    [pgn] = read_pgn("1. f3 e5 2. g4 Qh4# 0-1")
    row = to_rollout(pgn, "black")
    row["messages"][-1:] = last
    scored = next(score_rollouts(chess_reward(), [Rollout.from_row(row)]))
    assert (scored["score"], scored["is_score_valid"]) == (None, False)
    assert error in scored["error"]


def test_score_rollouts_scores_a_recorded_game_like_the_environment():
    class Scripted:
        """Plays like `act`, with answers that can't be played between."""

        def __init__(self):
            self.rng = random.Random(0)

        async def get_action(self, observation, available_tools_specs=None):
            found = ChessObservation.model_validate(observation, from_attributes=True)
            bad = self.rng.choice(["Ke9", "Kh8", None, None])
            text = bad or act(found, self.rng).content
            return PolicyOutput({"content": text}, text)

    record = RLRolloutWorker(ChessEnvironment, Scripted(), max_steps=300).run_sync(seed=2)
    assert record.ended == "done"
    row = next(score_rollouts(chess_reward(), [record.to_rollout()]))
    assert row["is_score_valid"], row["error"]
    assert row["score"] == pytest.approx(sum(record.env_rewards))
    refused = [place for place, reward in enumerate(record.env_rewards) if reward == 0.0]
    assert len(row["step_rewards"]) == len(record.env_rewards)
    assert {row["step_rewards"][place] for place in refused} == {0.0}


@pytest.mark.edge
def test_guerdon_score_scores_the_games_of_a_pgn_file(tmp_path):
    def run(*command):
        return subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT
        )

    converted = run("examples.chess.pgn", str(GAMES))
    assert (converted.returncode, converted.stderr) == (0, "")
    file, scored = tmp_path / "games.jsonl", tmp_path / "scored.jsonl"
    file.write_text(converted.stdout)
    done = run("guerdon", "score", str(file), "--reward", str(REWARD), "--out", str(scored))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    results = [pgn.headers["Result"] for pgn in read_pgn(GAMES.read_text())]
    outcomes = {"1-0": (1.0, 0.0), "0-1": (0.0, 1.0), "1/2-1/2": (0.5, 0.5)}
    assert [row["components"]["win_loss"] for row in rows] == [
        outcome for result in results for outcome in outcomes[result]
    ]
    assert all(row["is_score_valid"] for row in rows)


@pytest.mark.edge
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: python -m examples.chess.pgn GAMES.pgn"),
        (["no-such.pgn"], "error: .*No such file"),
        ([__file__], "error: .*line 1: not PGN"),
    ],
)
def test_pgn_main_reports_a_file_that_can_not_be_read(arguments, message):
    command = [sys.executable, "-m", "examples.chess.pgn", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert re.match(message, done.stderr)


# Over the wire ---------------------------------------------------------------------------------


class ChessClient(EnvClient):
    observation_type = ChessObservation


@pytest.mark.edge
def test_env_pool_of_16_plays_chess_on_a_server():
    async def main(url):
        rngs = [random.Random(slot) for slot in range(16)]
        sides = [("white", "black")[slot % 2] for slot in range(16)]
        names = [list(OPPONENTS)[slot % 2] for slot in range(16)]
        options = [{"side": a, "opponent": b} for a, b in zip(sides, names, strict=True)]
        async with EnvPool(url, n=16, observation_type=ChessObservation) as pool:
            observations = await pool.reset_batch(seeds=0, options=options)
            assert [each.side for each in observations] == sides
            while not all(each.done for each in observations):
                actions = [
                    None if each.done else act(each, rng)
                    for each, rng in zip(observations, rngs, strict=True)
                ]
                for slot, each in enumerate(await pool.step_batch(actions)):
                    observations[slot] = each or observations[slot]
        return observations

    server = Served(create_app(ChessEnvironment, reward=RewardPipeline.of(REWARD)))
    try:
        observations = asyncio.run(main(server.url))
    finally:
        server.stop()
    assert all("win_loss" in each.metadata["reward_components"] for each in observations)
    won = [each.result == game.WON_BY[each.side] for each in observations]
    assert sum(won) >= 12
    assert [each.reward > 0.5 for each in observations] == won


@pytest.mark.edge
def test_env_client_plays_chess_with_refused_moves_and_an_end():
    server = Served(create_app(ChessEnvironment))
    try:
        with EnvClient.from_url(server.url).sync() as client:
            client.reset(seed=1)
            answers = ["e4", "nonsense", "Ke3", "e9"]
            results = [client.step({"content": answer}) for answer in answers]
            with pytest.raises(ServerError, match="EpisodeError: the game is over"):
                client.step({"content": "d4"})
    finally:
        server.stop()
    assert [each.done for each in results] == [False, False, False, True]
    assert [each.reward for each in results[1:]] == [0.0, 0.0, 0.0]
    assert results[-1].observation.ended_by == "forfeit"


def test_main_prints_a_game(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["play", "3"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "step reward" in printed
    assert "1-0 by checkmate" in printed


def test_other_is_the_other_side():
    assert (other("white"), other("black")) == ("black", "white")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"examples.chess.{name}")
    assert doctest.testmod(module).failed == 0
    assert list(module.__all__) == sorted(module.__all__)
