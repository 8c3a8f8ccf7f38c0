"""Whether code compiles."""

import threading
import warnings
from types import SimpleNamespace

import pytest

from guerdon.errors import MissingInputError
from guerdon.rubrics.checks import PythonCompiles


def test_python_compiles_takes_bare_code():
    assert PythonCompiles()("def f(x):\n    return x", None) == 1.0
    assert PythonCompiles()("", None) == 1.0


def test_python_compiles_reports_the_line_of_a_syntax_error():
    score = PythonCompiles().score("Here:\n```python\nx = 1\ny = = 2\n```", None)
    assert score.value == 0.0
    assert score.reason == "line 4 does not compile: invalid syntax: y = = 2"


def test_python_compiles_every_block_has_to_compile():
    good, bad = "```python\nx = 1\n```\n", "```py\nx = (\n```\n"
    assert PythonCompiles()(f"{good}and\n{good}", None) == 1.0
    assert PythonCompiles()(f"{good}and\n{bad}", None) == 0.0


def test_python_compiles_unfenced_takes_the_whole_text():
    assert PythonCompiles(fenced=False)("```python\nx = 1\n```", None) == 0.0


def test_python_compiles_prose_does_not_compile():
    assert PythonCompiles()("I would write a function.", None) == 0.0


def test_python_compiles_reads_another_field():
    assert (
        PythonCompiles(field="code")(SimpleNamespace(code="x = 1", content="no code"), None) == 1.0
    )


@pytest.mark.parametrize(
    "code",
    ["\0", "'\ud800'", "(" * 1000, "(" * 10**5, "-" * 10**5 + "1", "a" + ".b" * 10**5, "9" * 5000,
     "lambda:" * 5000 + "1", "not " * 20000 + "1", "f'{" * 200, "\\", "\ufffe"],
)  # fmt: skip
def test_python_compiles_hostile_code_scores_zero(code):
    score = PythonCompiles().score(code, None)
    assert (score.value, score.status) == (0.0, "scored")
    assert "does not compile" in score.reason


WARNED_OF = ["1 is 1", r"'\d'", "assert (1, 'always')", "1if 1else 2", "'a'()"]


@pytest.mark.parametrize("code", WARNED_OF)
def test_python_compiles_ignores_compiler_warnings(code):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert PythonCompiles()(code, None) == 1.0
        warnings.simplefilter("error")
        assert PythonCompiles()(code, None) == 1.0
    assert not seen


def test_python_compiles_keeps_other_warnings():
    PythonCompiles()(r"'\d'", None)
    with pytest.warns(SyntaxWarning):
        compile("1 is 1", "<other>", "exec")


def test_python_compiles_threads_compile_side_by_side():
    scores = []

    def score():
        scores.extend(PythonCompiles()(code, None) for code in WARNED_OF * 10)

    threads = [threading.Thread(target=score) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == [1.0] * len(WARNED_OF) * 40


def test_python_compiles_code_is_never_run():
    assert PythonCompiles()("raise SystemExit(1)", None) == 1.0


def test_python_compiles_raises_where_there_is_no_text():
    with pytest.raises(MissingInputError):
        PythonCompiles()(None, None)


def test_python_compiles_leaves_out_reasoning():
    fence = "```python\n{}\n```"
    assert (
        PythonCompiles()(f"<think>{fence.format('x =')}</think>{fence.format('x = 1')}", None)
        == 1.0
    )
    assert PythonCompiles(reasoning_tags=["plan"])("<plan>x =</plan>x = 1", None) == 1.0
