"""RLDataAligner: results on recorded steps, and a report of what doesn't fit."""

import copy
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import EvaluateResult, Message, StepData, StepOutput, reward_function
from guerdon.errors import AlignmentError, InvalidArgumentError
from guerdon.rollouts import RLDataAligner
from guerdon.rollouts.alignment import AlignedBatch, AlignedRollout
from guerdon.rubrics.functions.placement import Misfit, place_outputs
from guerdon.types import Rollout


def steps(*numbers, names=()):
    """Recorded steps with these turns; None is one without."""
    made = []
    for place, number in enumerate(numbers):
        info = {} if number is None else {"assistant_turn_index": number}
        if place < len(names) and names[place] is not None:
            info["step_id"] = names[place]
        made.append(StepData(system_step_index=place, step_info=info))
    return made


def result(outputs=None, score=1.0, **fields):
    """A result with step outputs: pairs of an index and a reward."""
    step_outputs = None if outputs is None else [
        StepOutput(step_index=index, base_reward=reward) for index, reward in outputs
    ]  # fmt: skip
    return EvaluateResult(score=score, step_outputs=step_outputs, **fields)


def align(results, steps_of, ids=None, **options):
    aligner = RLDataAligner(**options)
    return aligner.align_data_for_rl_processing(results, steps_of, ids or list(steps_of))


def problems(batch):
    return [(each.problem, each.rollout, each.step_index) for each in batch.report]


def rewards(aligned):
    return [step.base_reward for step in aligned.steps]


# What fits


def test_aligner_sets_the_rewards_of_the_named_steps():
    batch = align(result([(2, -0.5), (0, 0.25)]), {"a": steps(0, 1, 2)})
    assert rewards(batch["a"]) == [0.25, None, -0.5]
    assert (batch["a"].score, batch["a"].is_score_valid, batch["a"].error) == (1.0, True, None)
    assert not batch.report
    assert str(batch.report) == "everything fitted"


def test_aligner_finds_a_turn_at_any_position():
    batch = align(result([(5, 0.5), (3, 0.25)]), {"a": steps(5, 4, 3)})
    assert rewards(batch["a"]) == [0.5, None, 0.25]
    assert not batch.report


def test_aligner_distinguishes_step_ids_from_turns():
    recorded = steps(0, 1, names=("1", "look"))
    batch = align(result([("1", 0.5), (1, 0.25)]), {"a": recorded})
    assert rewards(batch["a"]) == [0.5, 0.25]
    assert not batch.report


def test_aligner_a_step_that_no_result_names_keeps_its_reward():
    recorded = steps(0, 1)
    recorded[0].base_reward = 0.125
    assert rewards(align(result([(1, 1.0)]), {"a": recorded})["a"]) == [0.125, 1.0]
    assert rewards(align(result(), {"a": recorded})["a"]) == [0.125, None]


def test_aligner_accepts_one_result_for_one_rollout():
    assert align(result(score=0.5), {"a": steps(0)}).final_scores == [0.5]


def test_aligner_matches_results_and_ids_by_position():
    recorded = {"a": steps(0), "b": steps(0), "c": steps(0)}
    results = [result([(0, each)], score=each) for each in (3.0, 1.0, 2.0)]
    batch = align(results, recorded, ["c", "a", "b"])
    assert [each.id for each in batch] == ["c", "a", "b"]
    assert batch.final_scores == [3.0, 1.0, 2.0]
    assert [rewards(batch[name]) for name in "abc"] == [[1.0], [2.0], [3.0]]
    assert batch.step_lists == [each.steps for each in batch.rollouts]
    assert len(batch) == 3


def test_aligner_results_and_ids_may_be_any_sequence():
    batch = align((result(score=0.0), result(score=1.0)), {1: steps(0), 2: steps(0)}, (2, 1))
    assert (batch[2].score, batch[1].score) == (0.0, 1.0)


def test_aligner_an_invalid_score_is_kept_beside_its_reason():
    failed = EvaluateResult(error="the judge did not answer")
    doubted = EvaluateResult(score=0.5, is_score_valid=False, reason="truncated")
    bare = EvaluateResult(score=0.5, is_score_valid=False)
    batch = align([failed, doubted, bare], {name: steps(0) for name in "abc"})
    assert [(each.score, each.is_score_valid, each.error) for each in batch] == [
        (None, False, "the judge did not answer"),
        (0.5, False, "truncated"),
        (0.5, False, "it was marked invalid"),
    ]
    assert batch.final_scores == [None, None, None]
    assert not batch.report


def test_aligner_steps_of_an_invalid_result_have_their_rewards():
    batch = align(result([(0, 0.5)], score=None, error="no score"), {"a": steps(0)})
    assert rewards(batch["a"]) == [0.5]


def test_aligner_the_group_is_read_from_the_first_step():
    recorded = steps(0, 1)
    recorded[0].step_info["group"] = "q7"
    assert align(result(), {"a": recorded})["a"].group == "q7"


def test_aligner_the_steps_of_a_rollout_can_be_aligned(row):
    rollout = Rollout.from_row(row("41", "42", id="q7"))
    batch = align(result([(1, 1.0)]), {"q7": rollout.to_step_data()})
    assert rewards(batch["q7"]) == [None, 1.0]
    assert not batch.report


def test_aligner_the_steps_of_a_rollout_know_its_group(row):
    rollouts = [Rollout.from_row(row("42", id=name, group=name)) for name in "ab"]
    batch = align([result(), result()], {each.id: each.to_step_data() for each in rollouts})
    assert [each.group for each in batch] == ["a", "b"]


def test_aligner_accepts_no_rollouts():
    batch = align([], {}, [])
    assert (len(batch), batch.final_scores, batch.step_lists, len(batch.report)) == (0, [], [], 0)


# What doesn't fit


@pytest.mark.parametrize("index", [3, -1, 10**30])
def test_aligner_reports_an_unknown_index(index):
    batch = align(result([(index, 1.0), (0, 0.5)]), {"a": steps(0, 1, 2)})
    assert problems(batch) == [("no such step", "a", index)]
    assert rewards(batch["a"]) == [0.5, None, None]
    assert str(batch.report) == (
        f"rollout 'a': step {index}: there is no such step; the assistant turns are 0 to 2"
    )


def test_aligner_reports_an_unknown_id_with_the_known_ids():
    batch = align(result([("lok", 1.0)]), {"a": steps(0, 1, names=("look", "go"))})
    assert problems(batch) == [("no such step", "a", "lok")]
    assert str(batch.report).endswith("there is no such step; the ids are ['look', 'go']")


@pytest.mark.parametrize("index", ["0", "1", " 1", "-0"])
def test_aligner_reports_text_in_place_of_a_number(index):
    batch = align(result([(index, 1.0)]), {"a": steps(0, 1)})
    assert problems(batch) == [("text for a number", "a", index)]
    assert rewards(batch["a"]) == [None, None]
    assert "write an int" in str(batch.report)


@pytest.mark.parametrize(
    "index",
    ["--1", "9" * 5000, "", "²", "1.0", "\ud800", "-"],
    ids=["minuses", "long", "empty", "square", "float", "half", "minus"],
)
def test_aligner_reports_text_that_is_not_a_number(index):
    batch = align(result([(index, 1.0)]), {"a": steps(0, 1)})
    assert problems(batch) == [("no such step", "a", index)]


@pytest.mark.parametrize("outputs", [[(1, 0.5), (1, 0.25)], [(1, 0.5), ("go", 0.25)]])
def test_aligner_uses_neither_of_two_outputs_for_one_step(outputs):
    batch = align(result([*outputs, (0, 1.0)]), {"a": steps(0, 1, names=("look", "go"))})
    assert problems(batch) == [("two outputs for one step", "a", outputs[-1][0])]
    assert rewards(batch["a"]) == [1.0, None]
    assert "it has 2 outputs (0.5 and 0.25); none was used" in str(batch.report)


@pytest.mark.parametrize(
    ("recorded", "index"),
    [(steps(0, 0, 1), 0), (steps(0, 1, 2, names=("x", "x")), "x")],
    ids=["number", "id"],
)
def test_aligner_reports_an_ambiguous_number(recorded, index):
    batch = align(result([(index, 1.0), (recorded[2].step_info["assistant_turn_index"], 0.5)]),
                  {"a": recorded})  # fmt: skip
    assert problems(batch) == [("two steps of one number", "a", index)]
    assert rewards(batch["a"]) == [None, None, 0.5]


@pytest.mark.parametrize("number", [None, "0", 0.0, True], ids=repr)
def test_aligner_reports_a_step_without_a_turn(number):
    recorded = steps(number, 1)
    batch = align(result([(1, 0.5)]), {"a": recorded})
    assert problems(batch) == [("step without a number", "a", None)]
    assert "of step 0 must be an int" in str(batch.report)
    assert rewards(batch["a"]) == [None, 0.5]


def test_aligner_a_step_without_a_turn_can_be_named_by_its_id():
    batch = align(result([("look", 0.5)]), {"a": steps(None, names=("look",))})
    assert rewards(batch["a"]) == [0.5]
    assert problems(batch) == [("step without a number", "a", None)]


def test_aligner_a_rollout_without_a_result_is_invalid():
    recorded = {"a": steps(0), "b": steps(0), "c": steps(0)}
    batch = align([result(), None], recorded)
    assert problems(batch) == [("no result", "b", None), ("no result", "c", None)]
    assert [(each.score, each.is_score_valid) for each in batch] == [
        (1.0, True), (None, False), (None, False),
    ]  # fmt: skip
    assert batch["b"].error == "it has no result"


@pytest.mark.parametrize("other", [{"score": 1.0}, 0.5, "good", [result()]], ids=type)
def test_aligner_reports_an_invalid_result(other):
    batch = align([other], {"a": steps(0)})
    assert problems(batch) == [("no result", "a", None)]
    assert "not an EvaluateResult" in str(batch.report)
    assert batch["a"].is_score_valid is False


@pytest.mark.parametrize("results", [None, 3, "x", {"score": 1.0}], ids=repr)
def test_aligner_rejects_invalid_results_arguments(results):
    with pytest.raises(AlignmentError):
        align(results, {"a": steps(0)})


def test_aligner_reports_each_result_without_a_rollout():
    batch = align([result()] * 3, {"a": steps(0)})
    assert problems(batch) == [("result without a rollout", None, None)] * 2
    assert str(batch.report).splitlines() == [
        "result 1 has no rollout: there are 3 results for 1",
        "result 2 has no rollout: there are 3 results for 1",
    ]


def test_aligner_a_rollout_without_recorded_steps_keeps_its_score():
    batch = align([result([(0, 1.0)], score=0.5)], {}, ["a"])
    assert problems(batch) == [("no recorded steps", "a", None)]
    assert (batch["a"].steps, batch["a"].score) == ([], 0.5)


def test_aligner_reports_a_rollout_that_was_not_requested():
    batch = align([result()], {"a": steps(0), "b": steps(0)}, ["a"])
    assert problems(batch) == [("rollout not asked for", "b", None)]


def test_aligner_returns_a_repeated_rollout_once():
    batch = align([result(score=0.0), result(score=1.0)], {"a": steps(0)}, ["a", "a"])
    assert problems(batch) == [("rollout asked for twice", "a", None)]
    assert batch.final_scores == [0.0]


def failed_step(**info):
    return StepData(system_step_index=1, step_info={"assistant_turn_index": 1} | info)


DOWN = "step 1: OSError: down"


@pytest.mark.parametrize("name", ["error", "episode_error"])
def test_aligner_masks_the_score_of_a_failed_episode(name):
    recorded = [*steps(0), failed_step(**{name: DOWN})]
    batch = align(result([(0, 0.5)]), {"a": recorded})
    assert problems(batch) == [("failed episode", "a", None)]
    assert f"its score doesn't count: the episode ended with an error: {DOWN}" in str(batch.report)
    assert (batch["a"].score, batch["a"].is_score_valid) == (1.0, False)
    assert batch["a"].error == f"the episode ended with an error: {DOWN}"
    assert rewards(batch["a"]) == [0.5, None]
    with pytest.raises(AlignmentError, match=DOWN):
        align(result(), {"a": recorded}, strict=True)


@pytest.mark.parametrize("name", ["error", "episode_error"])
def test_aligner_score_failed_keeps_the_score_of_a_failed_episode(name):
    recorded = [*steps(0), failed_step(**{name: DOWN})]
    batch = align(result([(0, 0.5)]), {"a": recorded}, score_failed=True)
    assert not batch.report
    assert (batch["a"].score, batch["a"].is_score_valid, batch["a"].error) == (1.0, True, None)


def test_aligner_does_not_report_a_failed_episode_without_a_valid_score():
    recorded = [*steps(0), failed_step(error=DOWN)]
    batch = align(result(score=0.0, is_score_valid=False, error="no judge"), {"a": recorded})
    assert not batch.report
    assert batch["a"].error == "no judge"


def test_aligner_the_report_counts_by_kind():
    batch = align(result([(7, 1.0), (8, 1.0), ("0", 1.0)]), {"a": steps(0)})
    assert batch.report.counts() == {"no such step": 2, "text for a number": 1}
    assert len(batch.report) == 3
    assert batch.report


def test_aligner_report_names_the_rollout_in_every_line():
    recorded = {"a": steps(0), "b": steps(None)}
    batch = align([result([(1, 1.0)]), None], recorded)
    assert [str(each).partition(":")[0] for each in batch.report] == [
        "rollout 'a'", "rollout 'b'", "rollout 'b'",
    ]  # fmt: skip


# Strict


def test_aligner_strict_raises_with_all_misfits():
    with pytest.raises(AlignmentError, match=r"2 things don't fit:\n.*\n.*'b'") as caught:
        align([result([(7, 1.0)]), None], {"a": steps(0), "b": steps(0)}, strict=True)
    assert [each.problem for each in caught.value.problems] == ["no such step", "no result"]


def test_aligner_strict_returns_a_batch_if_everything_fits():
    assert align(result([(0, 1.0)]), {"a": steps(0)}, strict=True).final_scores == [1.0]


# Nothing is dropped, and nothing given is changed

INDEX = st.integers(-1, 4) | st.sampled_from(["0", "1", "x", "y", "", "--1", " 2 ", "²"])
OUTPUTS = st.lists(st.builds(StepOutput, step_index=INDEX, base_reward=st.floats(-2, 2)))
RESULTS = st.none() | st.builds(
    EvaluateResult, score=st.none() | st.floats(-1, 1), step_outputs=st.none() | OUTPUTS
)
STEPS = st.lists(
    st.builds(
        lambda turn, name: StepData(
            system_step_index=0,
            step_info={"assistant_turn_index": turn, "step_id": name},
            resulting_messages_history=[Message(role="assistant", content="42")],
        ),
        st.integers(0, 3) | st.sampled_from([None, "0"]),
        st.none() | st.sampled_from(["x", "y", "0", 7]),
    ),
    max_size=4,
)
IDS = st.sampled_from(["a", "b", "c", 0])


def names_of(step):
    """By what an output can name a step."""
    info = step.step_info
    turn, name = info.get("assistant_turn_index"), info.get("step_id")
    return {each for each in (turn,) if type(each) is int} | (
        {name} if isinstance(name, str) else set()
    )


@given(outputs=OUTPUTS, recorded=STEPS)
def test_aligner_puts_every_output_on_one_step_or_reports_it(outputs, recorded):
    batch = align(EvaluateResult(score=1.0, step_outputs=outputs), {"a": recorded})
    reported = {(each.problem, each.step_index) for each in batch.report}
    placed = 0
    for step in batch["a"].steps:
        names = names_of(step)
        if step.base_reward is not None:
            [output] = [
                each for each in outputs
                if each.step_index in names and type(each.step_index) in map(type, names)
                and sum(each.step_index in names_of(other) for other in recorded) == 1
            ]  # fmt: skip
            assert step.base_reward == output.base_reward
            placed += 1
    lines = 0
    for misfit in batch.report:
        if misfit.problem == "two outputs for one step":
            lines += int(misfit.text.partition(" outputs")[0].rpartition(" ")[2])
        elif misfit.problem not in ("step without a number", "step id that is not text"):
            lines += 1
    assert placed + lines == len(outputs)
    unnumbered = sum(type(each.step_info["assistant_turn_index"]) is not int for each in recorded)
    assert batch.report.counts().get("step without a number", 0) == unnumbered
    for output in outputs:
        meant = [step for step in recorded if output.step_index in names_of(step)]
        if len(meant) > 1:
            assert ("two steps of one number", output.step_index) in reported
        if not meant:
            assert reported & {
                (problem, output.step_index) for problem in ("no such step", "text for a number")
            }


@given(
    results=st.lists(RESULTS, max_size=5),
    recorded=st.dictionaries(IDS, STEPS, max_size=4),
    ids=st.lists(IDS, max_size=5),
)
def test_aligner_leaves_its_arguments_unchanged_and_returns_every_rollout(results, recorded, ids):
    given = results, recorded, ids
    before = copy.deepcopy(given)
    batch = RLDataAligner().align_data_for_rl_processing(*given)
    assert given == before
    assert [each.id for each in batch] == list(dict.fromkeys(ids))
    for each in batch:
        assert len(each.steps) == len(recorded.get(each.id, ()))
        for step in each.steps:
            step.base_reward = step.advantage = 9.0  # they are copies
    assert given == before
    counts = batch.report.counts()
    assert counts.get("result without a rollout", 0) == max(0, len(results) - len(ids))
    assert counts.get("rollout asked for twice", 0) == len(ids) - len(set(ids))
    assert counts.get("rollout not asked for", 0) == len(set(recorded) - set(ids))
    assert counts.get("no recorded steps", 0) == len(set(ids) - set(recorded))
    invalid = [each for each in batch if not each.is_score_valid]
    assert all(each.error for each in invalid)


def test_aligner_logs_a_warning_with_the_counts(caplog):
    outputs = [(0, 0.5), (7, 1.0), (8, 1.0)]
    align([result(outputs), None], {"a": steps(0), "b": steps(0)})
    [record] = caplog.records
    assert (record.name, record.levelno) == ("guerdon.rollouts.alignment", logging.WARNING)
    assert "no such step (2), no result (1)" in record.getMessage()


def test_aligner_logs_nothing_if_everything_fits_or_if_it_is_strict(caplog):
    align(result([(0, 0.5)]), {"a": steps(0)})
    with pytest.raises(AlignmentError):
        align(result([(7, 0.5)]), {"a": steps(0)}, strict=True)
    assert not caplog.records


# The index of a message


@reward_function
def by_message(messages):
    """The RFC's first strategy: the step of a turn is the index of its message."""
    outputs = [
        StepOutput(step_index=index, base_reward=float(message.text))
        for index, message in enumerate(messages)
        if message.role == "assistant" and message.text
    ]
    return EvaluateResult(score=1.0, step_outputs=outputs)


def chat(*replies, system=False, **columns):
    """A conversation whose assistant turns say these texts."""
    messages = [{"role": "system", "content": "Play."}] if system else []
    for reply in replies:
        messages += [{"role": "user", "content": "?"}, {"role": "assistant", "content": reply}]
    return Rollout.from_row({"id": "a", "messages": messages, **columns})


def aligned_by_message(rollout, **options):
    return align(by_message(rollout.messages), {"a": rollout.to_step_data()}, **options)


@pytest.mark.parametrize("system", [False, True])
def test_aligner_step_index_message_names_a_turn_by_the_index_of_its_message(system):
    batch = aligned_by_message(chat("0.5", "", "1", system=system), step_index="message")
    assert rewards(batch["a"]) == [0.5, None, 1.0]
    assert not batch.report


def test_aligner_step_index_message_counts_examples_at_the_beginning():
    rollout = chat("", "0.5", "1", first_turn=1)
    batch = aligned_by_message(rollout, step_index="message")
    assert rewards(batch["a"]) == [0.5, 1.0]
    assert not batch.report


def test_aligner_step_index_message_reports_what_is_not_an_assistant_turn():
    batch = align(
        result([(0, 0.5), ("3", 0.5), (3, 1.0)]),
        {"a": chat("1", "1").to_step_data()},
        step_index="message",
    )
    assert rewards(batch["a"]) == [None, 1.0]
    assert [each.text for each in batch.report] == [
        "step 0: there is no such step; the assistant messages are 1 to 3",
        "step '3' is text, and no step has this id; for message 3, write an int",
    ]


def test_aligner_step_index_message_requires_the_recorded_conversation():
    batch = align(result([(1, 0.5)]), {"a": steps(0)}, step_index="message")
    assert rewards(batch["a"]) == [None]
    assert [each.text for each in batch.report] == [
        "step 0: the recorded conversation has no assistant turn 0",
        "step 1: there is no such step; no step has a number",
    ]


def test_aligner_reports_the_index_of_a_message_and_uses_none_of_that_result():
    batch = aligned_by_message(chat("0.5", "1", "1"))  # index 1 is a turn, too, but not this one
    assert rewards(batch["a"]) == [None, None, None]
    assert problems(batch) == [("message index", "a", index) for index in (1, 3, 5)]
    assert batch.report[1].text == (
        "step 3 is the index of a message, that of turn 1; write the number of the turn, or use "
        "RLDataAligner(step_index='message')"
    )


def test_aligner_uses_turns_beside_an_index_that_can_only_be_that_of_a_message():
    outputs = [(0, 0.5), (1, 0.25), (5, 1.0)]  # messages[0] is the user's
    batch = align(result(outputs), {"a": chat("1", "1", "1").to_step_data()})
    assert rewards(batch["a"]) == [0.5, 0.25, None]
    assert problems(batch) == [("message index", "a", 5)]


def test_aligner_does_not_take_a_turn_without_a_step_for_the_index_of_a_message():
    recorded = chat("1", "1", "1", "1").to_step_data()
    batch = align(result([(1, 0.5), (3, 1.0)]), {"a": [recorded[0], recorded[3]]})
    assert rewards(batch["a"]) == [None, 1.0]
    assert problems(batch) == [("no such step", "a", 1)]


def test_aligner_step_index_rejects_other_values():
    with pytest.raises(InvalidArgumentError, match="`step_index` must be 'assistant_turn' or"):
        RLDataAligner(step_index="messages")


@given(results=st.lists(RESULTS, max_size=3), recorded=st.dictionaries(IDS, STEPS, max_size=3))
def test_aligner_strict_raises_exactly_if_something_is_reported(results, recorded):
    report = align(results, recorded, list(recorded)).report
    if not report:
        align(results, recorded, list(recorded), strict=True)
        return
    with pytest.raises(AlignmentError) as caught:
        align(results, recorded, list(recorded), strict=True)
    assert list(caught.value.problems) == list(report)


# The parts


def test_place_outputs_works_without_rollouts():
    placed, misfits = place_outputs(
        [StepOutput(step_index=index, base_reward=1.0) for index in (0, "x", 5)],
        {0: 0, 1: 1, "x": 1},
    )
    assert sorted(placed) == [0, 1]
    assert [each.problem for each in misfits] == ["no such step"]


def test_misfit_without_a_rollout_prints_its_text():
    assert str(Misfit("no result", "it has no result")) == "it has no result"
    assert str(Misfit("no result", "it has no result", 0)) == "rollout 0: it has no result"


def test_aligner_batch_has_an_empty_report_by_default():
    batch = AlignedBatch([AlignedRollout("a", [], score=0.5), AlignedRollout("b", [], None, False)])
    assert (batch.final_scores, list(batch.report)) == ([0.5, None], [])
    with pytest.raises(KeyError):
        batch["c"]
