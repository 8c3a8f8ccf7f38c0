"""The side of the sandbox, without one: what it loads and answers."""

import json
import subprocess
import sys

import pytest

from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox
from guerdon.rubrics.sandboxed.inside import load
from guerdon.rubrics.sandboxed.messages import VERSION, Description, read_reply, write_call
from guerdon.rubrics.sandboxed.source import RewardSource, find_source

MESSAGES = [{"role": "assistant", "content": "42"}]


def loaded(text, name="r", **options):
    return load(find_source(RewardSource(text, name), **options).reward.model_dump_json().encode())


def described(callee):
    return Description.model_validate_json(callee.description)


def job(**fields):
    call = {"version": VERSION, "rollouts": [MESSAGES], **fields}
    return json.dumps(call).encode()


def test_answer_scores_a_call():
    callee = loaded("def r(messages, ground_truth): return float(messages[0].text == ground_truth)")
    [result] = read_reply(callee.answer(job(ground_truth="42")), 1)
    assert result.score == 1.0
    description = described(callee)
    assert (description.name, description.parameters.ground_truth) == ("r", "ground_truth")


def test_answer_refuses_an_invalid_call():
    callee = loaded("def r(messages): return 1.0")
    for data, expected in [
        (b"nothing", "refused the call: the call: Invalid JSON"),
        (job(version="guerdon-call/9"), "its version is 'guerdon-call/9'; this guerdon uses"),
        (job(more=1), "more: Extra inputs"),
    ]:
        with pytest.raises(InvalidArgumentError, match=expected):
            read_reply(callee.answer(data), 1)


def test_load_describes_what_cannot_be_loaded():
    callee = loaded("import no_such_module")
    description = described(callee)
    assert description.missing == "no_such_module"
    assert description.refused.startswith("<reward>:r: importing it raised ModuleNotFoundError")
    assert 'File "<reward>", line 1' in description.traceback
    with pytest.raises(InvalidArgumentError, match="the function could not be loaded: <reward>:r"):
        read_reply(callee.answer(write_call([[]])), 1)


def test_load_describes_an_invalid_specification():
    assert "its version is 'x'" in described(load(b'{"version": "x", "spec": "a:b"}')).refused


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "GeneratorExit", "SystemExit", "Odd"])
def test_answer_returns_what_a_function_raises(raised):
    callee = loaded(f"class Odd(BaseException): pass\ndef r(messages):\n    raise {raised}('so')")
    [result] = read_reply(callee.answer(job()), 1)
    assert result.error.startswith(f"{raised}: so")


def test_answer_reports_a_result_whose_class_raises():
    callee = loaded(
        "from guerdon import EvaluateResult\n"
        "class Odd(EvaluateResult):\n"
        "    def __getattribute__(self, name):\n"
        "        if name == 'step_outputs': raise KeyError('mine')\n"
        "        return super().__getattribute__(name)\n"
        "def r(messages): return Odd(score=1)"
    )
    [result] = read_reply(callee.answer(job()), 1)
    assert (result.score, "KeyError: 'mine'" in result.error) == (None, True)


@pytest.mark.parametrize(("reuse", "score"), [(True, 2.0), (False, 1.0)])
def test_eval_sandbox_with_reuse_keeps_the_event_loop(reuse, score):
    text = (
        "import asyncio\nloops = []\n"
        "async def r(messages):\n"
        "    loops.append(asyncio.get_running_loop())\n"
        "    return float(sum(loop is loops[0] for loop in loops))"
    )
    with EvalSandbox(RewardSource(text, "r"), level="process", reuse=reuse) as sandbox:
        sandbox.evaluate(MESSAGES)
        assert sandbox.evaluate(MESSAGES).score == score


def test_load_calls_a_factory_with_a_mode():
    text = "def make():\n    return lambda action, observation: 0.5"
    callee = loaded(text, "make", mode="pointwise")
    assert read_reply(callee.answer(job()), 1)[0].score == 0.5


def test_load_checks_requirements():
    wanted = find_source(RewardSource("r = 1", "r")).reward
    asked = wanted.model_copy(update={"requirements": ("no-such-thing",)})
    description = described(load(asked.model_dump_json().encode()))
    assert "pip install no-such-thing" in description.refused


def test_answer_imports_nothing():
    program = """
import sys
from guerdon.rubrics.sandboxed.inside import load
from guerdon.rubrics.sandboxed.messages import RewardSpec
texts = ["def r(messages): raise ValueError('x')", "async def r(messages): return 1.0",
         "def r(action, observation): return 1.0"]
job = b'{"version": "guerdon-call/1", "rollouts": [[{"role": "assistant", "content": "x"}]]}'
before = set(sys.modules)
for text in texts:
    wanted = RewardSpec(version="guerdon-call/1", spec="<r>:r", text=text, file="<r>")
    callee = load(wanted.model_dump_json().encode())
    loaded = set(sys.modules)
    print(callee.answer(job)[:60], file=sys.stderr)
    print(*set(sys.modules) - loaded)
print("asyncio" in before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # Asyncio is loaded with what is async, and not for the others.
    assert ran.stdout.split() == ["False"]


def test_inside_imports_nothing_of_the_host():
    program = "import sys, guerdon.rubrics.sandboxed.inside; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names = set(ran.stdout.split())
    assert "guerdon.rubrics.sandboxed.eval_sandbox" not in names
    assert not {"numpy", "starlette", "httpx", "rich", "jsonschema"} & names


def test_find_source_refuses_text_that_is_not_python():
    with pytest.raises(LoadError, match="SyntaxError"):
        find_source(RewardSource("'\udcff'", "r"))
