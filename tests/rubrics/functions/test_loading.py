"""load_reward: valid specs, and the errors for others."""

import asyncio
import pickle
import sys
import traceback
from pathlib import Path

import pytest

from guerdon import _loading as loading
from guerdon._loading import (
    file_digest,
)
from guerdon.errors import LoadError
from guerdon.rubrics import NumericAnswer, Rubric, as_rubric
from guerdon.rubrics.functions import RewardFunction, load_reward
from guerdon.rubrics.functions.loading import reward_of

REWARDS = """
    from guerdon import Rubric, WeightedSum

    class Always(Rubric):
        '''It is.'''
        def __init__(self, value=0.75):
            super().__init__()
            self.value = value
        def forward(self, action, observation):
            return self.value

    class Needs(Always):
        def __init__(self, value):
            super().__init__(value)

    class Holder:
        inner = Always(0.125)

    class Callable:
        def __call__(self, action, observation):
            return 0.625

    instance = Always(0.5)
    called = Callable()
    def factory():
        return WeightedSum([Always(1.0)], [0.25])
    def function_factory():
        return lambda action, observation: 0.375
    def function(action, observation):
        return 0.0625
    async def async_function(action, observation):
        return 0.875
    def flexible(*args):
        return float(len(args))
    def optional(action=None, observation=None):
        return 0.5
    def three(action, observation, more):
        return 1.0
    def one(action):
        return 1.0
    def nothing():
        return None
    def number():
        return 0.5
    def broken():
        raise LookupError("no such judge")
    constant = 3
"""


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("instance", 0.5),
        ("Always", 0.75),
        ("Holder.inner", 0.125),
        ("called", 0.625),
        ("factory", 0.25),
        ("function_factory", 0.375),
        ("function", 0.0625),
        ("flexible", 2.0),
        ("optional", 0.5),
    ],
)
def test_load_reward_what_a_spec_may_name(write, name, score):
    rubric = load_reward(f"{write(REWARDS)}:{name}")
    assert isinstance(rubric, Rubric)
    assert rubric("a", "o") == score


def test_load_reward_an_async_function_is_an_async_rubric(write):
    rubric = load_reward(f"{write(REWARDS)}:async_function")
    assert asyncio.run(rubric.evaluate("a", "o")) == 0.875


def test_load_reward_a_module_that_is_installed_may_be_named():
    assert type(load_reward("guerdon.rubrics:NumericAnswer")) is NumericAnswer


def test_load_reward_a_module_of_the_working_directory_may_be_named(write, tmp_path, monkeypatch):
    write("def reward(action, observation): return 0.5", "mine_reward.py")
    monkeypatch.chdir(tmp_path)
    assert load_reward("mine_reward:reward")("a", "o") == 0.5


def test_load_reward_a_relative_path_is_from_the_working_directory(write, tmp_path, monkeypatch):
    write("def reward(action, observation): return 0.5", "sub/reward.py")
    monkeypatch.chdir(tmp_path)
    assert load_reward("sub/reward.py:reward")("a", "o") == 0.5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Holder", "Holder is a class, but not a Rubric"),
        ("Needs", r"Needs needs arguments \(.*'value'.*write a function"),
        ("nothing", "nothing takes no arguments, so it must return a rubric, got None"),
        ("number", "must return a rubric, got 0.5"),
        ("three", "can't be called with an action and an observation: .*'more'"),
        ("one", "can't be called with an action and an observation: too many"),
        ("constant", r"3 \(int\) is not a rubric"),
        ("absent", r"has no 'absent'; known: .*'factory'"),
        ("Holder.absent", "Holder has no 'absent'"),
        ("broken", r"broken\(\) raised LookupError: no such judge"),
    ],
)
def test_load_reward_what_a_spec_may_not_name(write, name, message):
    spec = f"{write(REWARDS)}:{name}"
    with pytest.raises(LoadError, match=message) as caught:
        load_reward(spec)
    assert caught.value.spec == spec


@pytest.mark.parametrize("spec", ["reward", "", ":", "reward.py:", ":name", "reward.py"])
def test_load_reward_a_spec_without_a_name_shows_how_one_is_written(spec):
    with pytest.raises(LoadError, match=r"names nothing; write module:name or file\.py:name"):
        load_reward(spec)


def test_load_reward_a_missing_file_is_named(tmp_path):
    with pytest.raises(LoadError, match=r"there is no file .*nowhere\.py"):
        load_reward(f"{tmp_path}/nowhere.py:reward")


def test_load_reward_a_folder_is_no_file(tmp_path):
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(LoadError, match=r"there is no file .*folder\.py"):
        load_reward(f"{tmp_path}/folder.py:reward")


@pytest.mark.parametrize("module", ["mine_absent", "guerdon.absent", "mine_absent.deeper"])
def test_load_reward_a_missing_module_is_named(module):
    with pytest.raises(LoadError, match=r"there is no module '(mine_absent|guerdon\.absent)'"):
        load_reward(f"{module}:reward")


# A person's own code that raises


def only_of(path, error):
    """Checks that the traceback contains the user's files alone."""
    text = error.traceback
    assert str(path) in text
    assert str(Path(loading.__file__).parent) not in text
    assert "importlib" not in text
    return text


def test_load_reward_a_file_that_raises_shows_its_own_traceback(write):
    path = write(
        """
        def setup():
            raise ZeroDivisionError("by design")

        setup()
        """
    )
    with pytest.raises(LoadError, match="raised ZeroDivisionError: by design") as caught:
        load_reward(f"{path}:reward")
    text = only_of(path, caught.value)
    assert text.startswith("Traceback (most recent call last):\n")
    assert "line 5, in <module>" in text
    assert "line 3, in setup" in text
    assert text.endswith("ZeroDivisionError: by design\n")


def test_load_reward_a_syntax_error_shows_the_line(write):
    path = write("x = 1\ndef reward(:\n    pass\n")
    with pytest.raises(LoadError, match="importing it raised SyntaxError") as caught:
        load_reward(f"{path}:reward")
    text = only_of(path, caught.value)
    assert "line 2" in text
    assert "def reward(:" in text


def test_load_reward_a_module_that_raises_shows_its_own_traceback(write, tmp_path, monkeypatch):
    path = write("raise RuntimeError('no licence')", "mine_raises.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match="importing it raised RuntimeError") as caught:
        load_reward("mine_raises:reward")
    assert "RuntimeError: no licence" in only_of(path, caught.value)


def test_load_reward_a_file_that_imports_what_is_not_there_shows_where(write):
    path = write("import beside_absent")
    with pytest.raises(LoadError, match="No module named 'beside_absent'") as caught:
        load_reward(f"{path}:reward")
    assert "import beside_absent" in only_of(path, caught.value)


def test_load_reward_a_module_that_imports_what_is_not_there_is_not_called_missing(
    write, tmp_path, monkeypatch
):
    path = write("import beside_absent", "mine_imports.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match="importing it raised ModuleNotFoundError") as caught:
        load_reward("mine_imports:reward")
    assert "import beside_absent" in only_of(path, caught.value)


def test_load_reward_a_sibling_that_raises_is_in_the_traceback(write):
    sibling = write("raise OSError('no model')", "beside_raises.py")
    path = write("import beside_raises")
    with pytest.raises(LoadError, match="OSError: no model") as caught:
        load_reward(f"{path}:reward")
    assert sibling in only_of(path, caught.value)


def test_load_reward_a_factory_that_raises_shows_its_traceback(write):
    path = write(REWARDS)
    with pytest.raises(LoadError) as caught:
        load_reward(f"{path}:broken")
    assert 'raise LookupError("no such judge")' in only_of(path, caught.value)


def test_load_reward_a_file_that_exits_is_an_error_like_any_other(write):
    path = write("import sys\nsys.exit(0)")
    with pytest.raises(LoadError, match="importing it raised SystemExit: 0"):
        load_reward(f"{path}:reward")


def test_load_reward_a_factory_that_exits_is_an_error_like_any_other(write):
    path = write("import sys\ndef reward():\n    sys.exit(0)")
    with pytest.raises(LoadError, match="SystemExit: 0"):
        load_reward(f"{path}:reward")


def test_load_reward_a_file_beside_the_package_is_not_taken_for_the_package(
    write, tmp_path, monkeypatch
):
    path = write("def setup():\n    1 / 0\nsetup()", "guerdon_rewards/reward.py")
    monkeypatch.setattr(loading, "__file__", str(tmp_path / "guerdon/_loading.py"))
    with pytest.raises(LoadError) as caught:
        load_reward(f"{path}:reward")
    assert "in setup" in caught.value.traceback


def test_a_failed_file_can_be_fixed_and_loaded_again(write):
    path = write("raise ValueError")
    with pytest.raises(LoadError):
        load_reward(f"{path}:reward")
    write("# it is longer now\ndef reward(action, observation): return 0.5")
    assert load_reward(f"{path}:reward")("a", "o") == 0.5


# Modules


def test_load_reward_a_file_may_import_what_lies_beside_it(write):
    write("VALUE = 0.5", "beside_value.py")
    path = write("from beside_value import VALUE\ndef reward(action, observation): return VALUE")
    assert load_reward(f"{path}:reward")("a", "o") == 0.5


def test_load_reward_a_file_is_loaded_once(write, tmp_path, monkeypatch):
    path = write("reward = []\nclass Reward:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    assert loading.load_object(f"{path}:reward") is loading.load_object("reward.py:reward")
    found = loading.load_object(f"{path}:Reward")
    assert getattr(sys.modules[found.__module__], "Reward") is found  # noqa: B009


def test_load_reward_files_of_one_name_are_two_modules(write):
    one = write("def reward(action, observation): return 0.25", "one/reward.py")
    two = write("def reward(action, observation): return 0.5", "two/reward.py")
    assert load_reward(f"{one}:reward")("a", "o") == 0.25
    assert load_reward(f"{two}:reward")("a", "o") == 0.5


def test_load_reward_a_file_may_be_called_like_an_installed_module(write):
    path = write("def reward(action, observation): return 0.5", "json.py")
    module = sys.modules["json"]
    assert load_reward(f"{path}:reward")("a", "o") == 0.5
    assert sys.modules["json"] is module


# Files inside of a package


def test_load_reward_a_file_inside_of_a_package_is_imported_as_part_of_it(write):
    for folder in ("mine_outer", "mine_outer/inner"):
        write("", f"{folder}/__init__.py")
    write("VALUE = 0.25", "mine_outer/more.py")
    write("VALUE = 0.5", "mine_outer/inner/words.py")
    path = write(
        """
        from ..more import VALUE as ONE
        from .words import VALUE as OTHER
        import mine_outer.inner.words

        class Reward:
            pass

        def reward(action, observation):
            return ONE + OTHER
        """,
        "mine_outer/inner/reward.py",
    )
    assert load_reward(f"{path}:reward")("a", "o") == 0.75
    found = loading.load_object(f"{path}:Reward")
    assert found.__module__ == "mine_outer.inner.reward"
    assert loading.name_of(found) == "mine_outer.inner.reward.Reward"
    assert loading.load_object("mine_outer.inner.reward:Reward") is found


def test_load_reward_a_package_runs_its_init_before_its_file(write):
    write("BEGUN = ['init']", "mine_begun/__init__.py")
    path = write("from mine_begun import BEGUN\nBEGUN.append('file')", "mine_begun/reward.py")
    assert loading.load_object(f"{path}:BEGUN") == ["init", "file"]


def test_load_reward_the_init_file_of_a_package_may_be_named_itself(write):
    path = write("def reward(action, observation): return 0.5", "mine_init/__init__.py")
    assert load_reward(f"{path}:reward")("a", "o") == 0.5
    assert "mine_init" in sys.modules


def test_load_reward_a_relative_path_into_a_package_is_from_the_working_directory(
    write, tmp_path, monkeypatch
):
    write("", "mine_near/__init__.py")
    write("def reward(action, observation): return 0.5", "mine_near/reward.py")
    monkeypatch.chdir(tmp_path / "mine_near")
    assert load_reward("reward.py:reward")("a", "o") == 0.5


def test_load_reward_distinguishes_packages_of_one_name_in_two_folders(write):
    for place, score in (("one", 0.25), ("two", 0.5)):
        write("", f"{place}/mine_same/__init__.py")
        write(f"SCORE = {score}", f"{place}/mine_same/words.py")
    paths = [
        write(
            "from .words import SCORE\ndef reward(action, observation): return SCORE",
            f"{place}/mine_same/reward.py",
        )
        for place in ("one", "two")
    ]
    assert load_reward(f"{paths[0]}:reward")("a", "o") == 0.25
    try:
        other = load_reward(f"{paths[1]}:reward")
    except LoadError as error:  # to refuse it would be right too, but not to give the first one
        assert "mine_same" in str(error)  # noqa: PT017
    else:
        assert other("a", "o") == 0.5


@pytest.mark.parametrize("name", ["json", "v1.0", "my-rewards"])
def test_load_reward_a_package_may_have_a_name_that_can_not_be_imported(write, name):
    """It is called like an installed module, or has a character that no module's name has."""
    modules = {key: module for key, module in sys.modules.items() if key.partition(".")[0] == name}
    write("", f"{name}/__init__.py")
    path = write("def reward(action, observation): return 0.5", f"{name}/reward.py")
    try:
        found = load_reward(f"{path}:reward")
    except LoadError as error:  # to refuse it would be right too, as what it is
        assert "write its path with .py" not in str(error)  # noqa: PT017
        assert name in str(error)  # noqa: PT017
    else:
        assert found("a", "o") == 0.5
    finally:
        for key in [key for key in sys.modules if key.partition(".")[0] == name]:
            if key not in modules:
                del sys.modules[key]
    assert {key: sys.modules[key] for key in modules} == modules


@pytest.mark.parametrize("where", ["__init__.py", "reward.py"])
def test_load_reward_a_package_that_raises_shows_its_traceback_and_can_be_fixed(write, where):
    write("", "mine_mended/__init__.py")
    path = write("def reward(action, observation): return 0.5", "mine_mended/reward.py")
    good = Path(path).parent.joinpath(where).read_text()
    broken = write("raise OSError('no model')", f"mine_mended/{where}")
    with pytest.raises(LoadError, match="importing it raised OSError: no model") as caught:
        load_reward(f"{path}:reward")
    only_of(broken, caught.value)
    write(good + "# it is longer now, by a whole comment\n", f"mine_mended/{where}")
    assert load_reward(f"{path}:reward")("a", "o") == 0.5


# Reward functions


FUNCTIONS = """
    import functools
    from guerdon import EvaluateResult, NumericAnswer, reward_function
    from guerdon.rubrics import as_reward_function

    @reward_function
    def decorated(messages, ground_truth=None):
        return float(ground_truth in messages[-1].text)

    @reward_function(mode="pointwise")
    def replied(conversation, answer=None):
        return float(answer in conversation[-1].text)

    @reward_function
    async def decorated_async(messages, ground_truth=None):
        return float(ground_truth in messages[-1].text)

    @reward_function
    def batch(rollouts_messages, ground_truths=None):
        return [float(len(messages)) for messages in rollouts_messages]

    def bare(messages, ground_truth=None):
        return float(ground_truth in messages[-1].text)

    def alone(messages):
        return float("42" in messages[-1].text)

    def by_name(*, messages, ground_truth):
        return float(ground_truth in messages[-1].text)

    def optional(messages=None, ground_truth=None):
        return float(ground_truth in messages[-1].text)

    def optional_alone(messages=()):
        return float("42" in messages[-1].text)

    def optional_by_name(*, messages=(), ground_truth=None):
        return float(ground_truth in messages[-1].text)

    async def bare_async(messages, ground_truth=None):
        return float(ground_truth in messages[-1].text)

    def bare_batch(rollouts_messages):
        return [float(len(messages)) for messages in rollouts_messages]

    def scaled(factor, messages, ground_truth=None):
        return factor * float(ground_truth in messages[-1].text)

    partial = functools.partial(scaled, 1.0)

    class Judge:
        def __call__(self, messages, ground_truth=None):
            return float(ground_truth in messages[-1].text)

        def method(self, messages, ground_truth=None):
            return float(ground_truth in messages[-1].text)

    judge = Judge()

    @functools.wraps(bare)
    def wrapped(*args, **kwargs):
        return bare(*args, **kwargs)

    def makes_decorated():
        return decorated

    def makes_bare():
        return lambda messages, ground_truth: float(ground_truth in messages[-1].text)

    def makes_judge(factor=1.0):
        return Judge()

    def makes_batch():
        return batch

    def makes_of_a_rubric():
        return as_reward_function(NumericAnswer())

    def both(messages, rollouts_messages):
        return 1.0

    def makes_both():
        return both
"""
CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]


@pytest.mark.parametrize(
    "name",
    [
        "decorated", "replied", "bare", "alone", "by_name", "optional", "optional_alone",
        "optional_by_name", "partial", "judge", "judge.method", "wrapped",
        "makes_decorated", "makes_bare", "makes_judge", "makes_of_a_rubric",
    ],
)  # fmt: skip
def test_a_spec_may_name_a_reward_function(write, name):
    function = load_reward(f"{write(FUNCTIONS)}:{name}")
    assert isinstance(function, RewardFunction)
    assert (function.mode, function.is_async) == ("pointwise", False)
    assert function(CHAT, "42").score == 1.0
    assert function(CHAT[:1], "42").score in (0.0, None)
    assert isinstance(as_rubric(function), Rubric)


@pytest.mark.parametrize("name", ["decorated_async", "bare_async"])
def test_a_spec_may_name_an_async_reward_function(write, name):
    function = load_reward(f"{write(FUNCTIONS)}:{name}")
    assert function.is_async
    assert asyncio.run(function(CHAT, "42")).score == 1.0


@pytest.mark.parametrize("name", ["batch", "bare_batch", "makes_batch"])
def test_a_spec_may_name_a_reward_function_of_batches(write, name):
    function = load_reward(f"{write(FUNCTIONS)}:{name}")
    assert function.mode == "batch"
    assert [result.score for result in function([CHAT, CHAT[:1]])] == [2.0, 1.0]


def test_load_reward_a_decorated_function_is_loaded_as_itself(write):
    path = write(FUNCTIONS)
    assert load_reward(f"{path}:decorated") is loading.load_object(f"{path}:decorated")
    assert load_reward(f"{path}:bare").function is loading.load_object(f"{path}:bare")


def test_load_reward_a_loaded_function_is_pickled_by_its_name(write):
    path = write(FUNCTIONS)
    function = load_reward(f"{path}:decorated")
    assert pickle.loads(pickle.dumps(function)) is function
    function = load_reward(f"{path}:bare")
    assert pickle.loads(pickle.dumps(function)).function is function.function


@pytest.mark.parametrize("name", ["both", "makes_both"])
def test_load_reward_rejects_a_function_with_both_parameters(write, name):
    spec = f"{write(FUNCTIONS)}:{name}"
    with pytest.raises(LoadError, match="takes 'messages' and 'rollouts_messages'") as caught:
        load_reward(spec)
    assert caught.value.spec == spec


def test_suggests_the_nearest_reward_function(write):
    with pytest.raises(LoadError, match="did you mean 'decorated'"):
        load_reward(f"{write(FUNCTIONS)}:decoratd")


def test_load_reward_a_function_that_is_decorated_wrongly_shows_the_persons_traceback(write):
    path = write(
        """
        from guerdon import reward_function

        @reward_function
        def reward(action, observation):
            return 1.0
        """
    )
    with pytest.raises(LoadError, match="takes no 'messages'") as caught:
        load_reward(f"{path}:reward")
    assert "@reward_function" in only_of(path, caught.value)


# load_module and name_of


def test_load_reward_a_module_is_imported_by_its_path_once(write, tmp_path, monkeypatch):
    path = write("VALUE = []")
    monkeypatch.chdir(tmp_path)
    module = loading.load_module(path)
    assert module.VALUE == []
    assert Path(module.__file__) == Path(path).resolve()
    assert loading.load_module("reward.py") is module
    assert loading.load_object(f"{path}:VALUE") is module.VALUE


def test_load_reward_a_module_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LoadError, match=r"there is no file .*nowhere\.py"):
        loading.load_module(f"{tmp_path}/nowhere.py")


def test_load_reward_a_module_that_raises_on_import_carries_its_traceback(write):
    path = write("1 / 0")
    with pytest.raises(LoadError, match="importing it raised ZeroDivisionError") as caught:
        loading.load_module(path)
    assert "1 / 0" in only_of(path, caught.value)


def test_load_reward_a_class_is_called_by_its_module_or_by_its_file(write):
    path = write("class Outer:\n    class Inner:\n        pass\n")
    assert loading.name_of(loading.load_object(f"{path}:Outer")) == "reward.py:Outer"
    assert loading.name_of(loading.load_object(f"{path}:Outer.Inner")) == "reward.py:Outer.Inner"
    assert loading.name_of(NumericAnswer) == "guerdon.rubrics.checks.numeric.NumericAnswer"
    assert loading.name_of(int) == "builtins.int"


def test_name_of_a_class_without_its_module(write):
    path = write("class Reward:\n    pass\n")
    found = loading.load_object(f"{path}:Reward")
    del sys.modules[found.__module__]
    assert loading.name_of(found) == f"{found.__module__}.Reward"


# A module made of text


def test_module_of_text_has_lines_in_tracebacks():
    text = "def fail():\n    raise ValueError('no luck')\n"
    module = loading.module_of_text(text, "<reward>", "<reward>:fail")
    assert module.__file__ == "<reward>"
    with pytest.raises(ValueError, match="no luck") as caught:
        module.fail()
    assert (
        traceback.extract_tb(caught.value.__traceback__)[-1].line == "raise ValueError('no luck')"
    )


def test_module_of_text_that_raises_is_removed_and_reported():
    before = set(sys.modules)
    with pytest.raises(LoadError, match="importing it raised ZeroDivisionError") as caught:
        loading.module_of_text("x = 0\n1 / x\n", "<reward>", "<reward>:x")
    assert '  File "<reward>", line 2, in <module>\n    1 / x\n' in caught.value.traceback
    assert set(sys.modules) == before


def test_load_reward_a_text_of_a_file_has_the_fingerprint_of_the_file(write):
    path = Path(write("LIMIT = 5\ndef r(messages):\n    return float(LIMIT)\n"))
    found = load_reward(f"{path}:r")
    digest = file_digest(path.read_bytes())
    module = loading.module_of_text(path.read_text(), str(path), "r.py:r", digest=digest)
    assert reward_of(module.r, "r.py:r").fingerprint == found.fingerprint
    text = path.read_text().replace("5", "6")
    other = loading.module_of_text(text, str(path.with_name("other.py")), "r.py:r")
    assert reward_of(other.r, "r.py:r").fingerprint != found.fingerprint
