"""What is loaded in a sandbox, from wherever it comes, and what can't be."""

import os
from pathlib import Path

import pytest

from guerdon import Limits
from guerdon.errors import LoadError
from guerdon.rubrics.functions import load_reward
from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox
from guerdon.rubrics.sandboxed.source import RewardSource

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
OTHER = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "41"}]

LEVELS = ["none", "process", "strict"]
LOCKED = LEVELS[1:]


# Where it comes from


@pytest.mark.parametrize("level", LEVELS)
def test_eval_sandbox_loads_a_text(level):
    source = RewardSource("def r(messages):\n    return 1 / (len(messages) - 2)\n", "r")
    with EvalSandbox(source, level=level) as sandbox:
        assert sandbox.evaluate(CHAT[:1]).score == -1.0
        assert (
            sandbox.evaluate(CHAT).error
            == "ZeroDivisionError: division by zero (line 2 of <reward>)"
        )


@pytest.mark.parametrize("level", LEVELS)
def test_eval_sandbox_loads_an_installed_module(level):
    with EvalSandbox("guerdon.rubrics:NumericAnswer", level=level) as sandbox:
        assert sandbox.evaluate(OTHER, "42").score == 0.0
        assert sandbox.evaluate(CHAT, "42").score == 1.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("module", ["mine_package.inner", "mine_single", "mine_space.inner"])
def test_eval_sandbox_loads_a_module_with_its_package(write, tmp_path, monkeypatch, level, module):
    monkeypatch.chdir(tmp_path)
    write("VALUE = 0.5\n", "mine_package/beside.py")
    write("", "mine_package/__init__.py")
    write(
        "from mine_package import beside\nfrom .beside import VALUE\ndef r(messages): return VALUE",
        "mine_package/inner.py",
    )
    write("# coding: latin-1\ndef r(messages): return 0.5", "mine_single.py")
    write("from mine_space.more import VALUE\ndef r(messages): return VALUE", "mine_space/inner.py")
    write("VALUE = 0.5\n", "mine_space/more.py")
    with EvalSandbox(f"{module}:r", level=level) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.5
        fingerprint = sandbox.fingerprint
    assert fingerprint == load_reward(f"{module}:r").fingerprint


@pytest.mark.parametrize("level", LOCKED)
def test_eval_sandbox_hints_at_a_module_beside_the_file(write, tmp_path, level):
    path = write("from beside import VALUE\ndef r(messages): return VALUE")
    write("VALUE = 0.25\n", "beside.py")
    with pytest.raises(LoadError) as caught:
        EvalSandbox(f"{path}:r", level=level)
    message = str(caught.value)
    assert message.startswith(
        f"{path}:r: importing it raised ModuleNotFoundError: No module named 'b"
    )
    assert message.endswith(f"add --allow-read {tmp_path} (allow_read=['{tmp_path}'])")
    assert caught.value.traceback.count(path) == 1
    with EvalSandbox(f"{path}:r", level=level, allow_read=[tmp_path]) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.25


@pytest.mark.parametrize("level", LOCKED)
def test_eval_sandbox_allow_read_permits_relative_imports(write, tmp_path, level):
    path = write("from .more import VALUE\ndef r(messages): return VALUE", "mine_pack/reward.py")
    write("VALUE = 0.25\n", "mine_pack/more.py")
    write("", "mine_pack/__init__.py")
    with pytest.raises(LoadError, match=r"attempted relative import .* add --allow-read"):
        EvalSandbox(f"{path}:r", level=level)
    with EvalSandbox(f"{path}:r", level=level, allow_read=[tmp_path]) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.25


def test_evaluate_hints_at_a_module_beside_the_file(odd, rewards):
    error, folder = odd("import").error, Path(rewards).parent
    assert error.startswith("ModuleNotFoundError: No module named 'beside' (line ")
    assert error.endswith(f"add --allow-read {folder} (allow_read=['{folder}'])")


@pytest.mark.parametrize("level", ["strict"])
def test_eval_sandbox_allow_read_permits_reading_files(write, tmp_path, level):
    path = write("def r(messages): return float(open(__file__.replace('reward.py', 'n')).read())")
    write("0.75", "n")
    with EvalSandbox(f"{path}:r", level=level) as sandbox:
        assert sandbox.evaluate(CHAT).error.startswith("PermissionError")
    with EvalSandbox(f"{path}:r", level=level, allow_read=[tmp_path / "n"]) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.75


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def r(messages:\n", "importing it raised SyntaxError"),
        ("x = 1\nimport no_such_thing\n", "No module named 'no_such_thing'"),
        ("def other(messages): return 1.0\n", "has no 'r'; known: 'other'"),
        ("def q(messages): return 1.0\nimport sys; sys.exit('bye')", "SystemExit: bye"),
        ("r = 3\n", "r"),
        ("def r(*, other): return 1.0\n", "r"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    ],
    ids=["syntax", "import", "name", "exit", "number", "arguments", "interrupt"],
)
def test_eval_sandbox_raises_for_what_cannot_be_loaded(write, level, text, expected):
    if level == "none" and "KeyboardInterrupt" in text:
        pytest.skip("in process, ctrl-C is ctrl-C")
    with pytest.raises(LoadError) as caught:
        EvalSandbox(f"{write(text)}:r", level=level)
    assert expected in str(caught.value)


@pytest.mark.parametrize("level", LEVELS)
def test_load_error_has_the_traceback_of_the_users_code(write, level):
    path = write("def fail():\n    raise ValueError('no \\ud800')\nfail()\n")
    with pytest.raises(LoadError) as caught:
        EvalSandbox(f"{path}:r", level=level)
    trace = caught.value.traceback
    assert trace.count("File ") == trace.count(path) == 2
    assert "raise ValueError" in trace


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os; os._exit(0)", "exited: it ended its process (exit code 0)"),
        ("import os; os.abort()", "signal: SIGABRT (6)"),
    ],
    ids=["exit", "abort"],
)
def test_eval_sandbox_raises_for_a_file_that_ends_its_process(write, level, text, expected):
    with pytest.raises(LoadError) as caught:
        EvalSandbox(f"{write(text)}:r", level=level)
    assert f"importing it: {expected}" in str(caught.value)


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("while True: print('spam')", "importing it: output_limit: it printed more than 64 KiB"),
        ("raise ValueError('x' * 500_000)", "importing it raised ValueError: xxx"),
    ],
    ids=["prints", "raises"],
)
def test_eval_sandbox_shows_little_of_a_file_that_floods(write, level, text, expected):
    with pytest.raises(LoadError) as caught:
        EvalSandbox(f"{write(text)}:r", level=level)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 5000
    assert 1000 < len(caught.value.traceback) < 5000


@pytest.mark.parametrize("level", LOCKED)
def test_eval_sandbox_limits_the_time_of_loading_by_that_of_calls(write, level, monkeypatch):
    monkeypatch.setattr("guerdon.sandbox.function_pool.OPENING_SECONDS", 0.1)
    with pytest.raises(LoadError, match="importing it: timeout: it was not done within 2 s"):
        EvalSandbox(f"{write('while True: pass')}:r", level=level, limits=Limits(seconds=0.4))


def test_eval_sandbox_checks_requirements_first(monkeypatch):
    monkeypatch.setattr("guerdon.rubrics.sandboxed.engines.FunctionPool", None)
    source = RewardSource("def r(messages): return 1.0", "r", ("no-such-thing>=1",))
    with pytest.raises(LoadError, match="pip install 'no-such-thing>=1'"):
        EvalSandbox(source, level="process")


def test_eval_sandbox_never_runs_the_code_in_the_host(write, tmp_path, monkeypatch):
    text = "import os\ndef r(messages): return 1.0\nr.__name__ = str(os.getpid())\n"
    monkeypatch.chdir(tmp_path)
    write(text, "mine_pid.py")
    for spec in (f"{write(text)}:r", "mine_pid:r", RewardSource(text, "r")):
        with EvalSandbox(spec, level="process") as sandbox:
            assert sandbox.name.isdigit()
            assert sandbox.name != str(os.getpid())
