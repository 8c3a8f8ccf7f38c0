"""One reward, every trainer: the adapters and `guerdon score` on the same rollouts."""

import importlib
import re
from pathlib import Path

import pytest

import guerdon.integrations
from trainers.agreement import ROLLOUTS, advantages, agreement, direct
from trainers.every_trainer import WAYS, agreements
from trainers.matrix import MATRIX, PAGE, with_tables
from trainers.rollouts import FAILURES

SOURCES = Path(guerdon.integrations.__file__).parent


@pytest.fixture(scope="module")
def found():
    return agreements()


def test_every_adapter_agrees_with_guerdon_score(found):
    assert [each.way for each in found[1:]] == [*WAYS]
    for each in found:
        assert each.rows == 1_000
        assert each.score <= 1e-9, each.way
        assert each.advantage <= 1e-9, each.way


def test_no_adapter_returns_a_number_for_a_failure(found):
    assert {each.way: each.numbers for each in found if each.numbers} == {}
    assert "a number" not in {each.failures for each in found}


def test_agreement_finds_failures_that_are_numbers_and_other_scores():
    scores = direct(ROLLOUTS)
    assert scores.count(None) == FAILURES
    assert len(set(scores)) > 20
    as_zero = agreement("", [0.0 if score is None else score for score in scores])
    assert (as_zero.numbers, as_zero.score, as_zero.failures) == (
        FAILURES,
        float("inf"),
        "a number",
    )
    other = agreement("", [score and score + 0.01 * row for row, score in enumerate(scores)])
    assert other.score > 1
    assert other.advantage > 0.01
    assert advantages(scores).count(None) == FAILURES


def test_which_trainer_page_has_the_tables_that_the_adapters_give():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run python -m trainers.matrix"


@pytest.mark.parametrize("name", MATRIX)
def test_which_trainer_matrix_names_what_the_adapters_export(name):
    takes = MATRIX[name]
    module = importlib.import_module(f"guerdon.integrations.{takes.module}")
    source = (SOURCES / f"{takes.module}.py").read_text(encoding="utf-8")
    for cell in (takes.rewards, takes.step_credit, takes.environments):
        for public in re.findall("`(\\w+)`", cell):
            assert public in module.__all__ or f"{public}: Any" in source
