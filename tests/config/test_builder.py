"""Building rubrics from entries: what is passed, what is checked, and how mistakes are reported."""

import sys
import textwrap
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from guerdon import (
    EvaluateResult,
    LLMJudge,
    NumericAnswer,
    Rubric,
    Sequential,
    TrajectoryRubric,
    reward_function,
)
from guerdon.config.builder import build_rubric, build_rubrics, check_document
from guerdon.config.loader import parse_document
from guerdon.config.registry import RubricRegistry
from guerdon.config.schema import RewardConfig, RubricEntry
from guerdon.errors import RewardConfigError


class Services:
    """A fake client: building rubrics needs only the names of its services."""

    services = ("style_judge",)


MCP: Any = Services()


class Scored(Rubric):
    def forward(self, action, observation):
        return 1.0


@dataclass
class StyleConfig:
    llm_service: str
    threshold: float = 0.5
    words: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self):
        if self.threshold > 1:
            raise ValueError("threshold is over 1")


class Style(Scored):
    def __init__(self, config: StyleConfig, mcp_client):
        super().__init__()
        self.config, self.mcp = config, mcp_client


class PassConfig(BaseModel):
    partial_credit: bool = False


class Passes(Scored):
    def __init__(self, config: PassConfig | None = None):
        super().__init__()
        self.config = config


class Loose(Scored):
    def __init__(self, config, mcp_client=None):
        super().__init__()
        self.config, self.mcp = config, mcp_client


class Plain(Scored):
    def __init__(self, longest: int, strict=False, *, ratio: float = 0.5, rest=None):
        super().__init__()
        if longest < 0:
            raise ValueError("longest is below 0")
        self.longest, self.strict, self.ratio, self.rest = longest, strict, ratio, rest


class LimitConfig(BaseModel):
    limit: float = 0.5
    limits: list[int] = []
    flag: bool | float = 0.0


class Limited(Scored):
    def __init__(self, config: LimitConfig):
        super().__init__()
        self.config = config


class Unannotated(Scored):
    def __init__(self, limit=0.5, rest=None):
        super().__init__()
        self.limit, self.rest = limit, rest


class Counting(TrajectoryRubric):
    def score_trajectory(self, trajectory):
        return float(len(trajectory))

    def compute_step_rewards(self):
        return [1.0] * len(self.trajectory)


def entry(rubric, config=None, **options):
    return RubricEntry(name="it", rubric=rubric, config=config or {}, **options)


def refused(rubric, config=None, *, mcp=None, **options):
    with pytest.raises(RewardConfigError) as caught:
        build_rubric(entry(rubric, config, **options), mcp=mcp)
    return list(caught.value.problems)


# What is given -------------------------------------------------------------------------------


def test_build_rubric_passes_config_and_services_by_parameter_name():
    made = build_rubric(entry(Style, {"llm_service": "style_judge", "words": ["a"]}), mcp=MCP)
    assert made.config == StyleConfig("style_judge", 0.5, ("a",))
    assert made.mcp is MCP


def test_build_rubric_accepts_an_optional_pydantic_config():
    assert build_rubric(entry(Passes, {"partial_credit": True})).config.partial_credit is True


def test_build_rubric_passes_a_copy_of_the_dict_without_an_annotation():
    config = {"x": 1}
    made = build_rubric(entry(Loose, config))
    assert made.config == config
    assert made.config is not config
    assert made.mcp is None


def test_build_rubric_converts_the_values_of_a_dict():
    class Many(Scored):
        def __init__(self, config: dict[str, PassConfig]):
            super().__init__()
            self.config = config

    assert build_rubric(entry(Many, {"x": {}})).config == {"x": PassConfig()}


def test_build_rubric_converts_the_fields_of_a_model():
    config = build_rubric(entry(Limited, {"limit": "0.25", "limits": ["3"], "flag": True})).config
    assert config.model_dump() == {"limit": 0.25, "limits": [3], "flag": True}
    rubric = build_rubric(entry(Unannotated, {"limit": 3, "rest": False}))
    assert (rubric.limit, rubric.rest) == (3, False)


def test_build_rubric_passes_keys_as_arguments():
    made = build_rubric(entry(Plain, {"longest": 3, "ratio": 1, "rest": [1]}))
    assert (made.longest, made.strict, made.ratio, made.rest) == (3, False, 1.0, [1])


def test_build_rubric_accepts_a_scoring_function_with_arguments():
    def brief(action, observation, *, longest: int = 9):
        return float(len(action) < longest)

    assert build_rubric(entry(brief))("12345", None) == 1.0
    assert build_rubric(entry(brief, {"longest": 3}))("12345", None) == 0.0


def test_build_rubric_calls_a_factory_with_the_config():
    def factory(longest: int):
        return lambda action, observation: float(longest)

    assert build_rubric(entry(factory, {"longest": 3}))("a", None) == 3.0


def test_build_rubric_passes_config_and_services_to_a_factory():
    def factory(config: StyleConfig, mcp_client):
        return Style(config, mcp_client)

    made = build_rubric(entry(factory, {"llm_service": "style_judge"}), mcp=MCP)
    assert made.mcp is MCP


def test_build_rubric_accepts_a_reward_function_on_messages():
    @reward_function
    def answered(messages, ground_truth=None):
        return EvaluateResult(score=0.5)

    assert isinstance(build_rubric(entry(answered)), Rubric)
    assert refused(answered, {"x": 1}) == [
        f"config: must be absent, as {answered!r:.60} is a reward function on messages, which "
        "takes no config"
    ]


def test_build_rubric_accepts_a_class_of_callables():
    class Brief:
        def __init__(self, longest):
            self.longest = longest

        def __call__(self, action, observation):
            return float(len(action) < self.longest)

    assert build_rubric(entry(Brief, {"longest": 3}))("ab", None) == 1.0


def test_build_rubrics_copies_rubric_objects():
    rubric = Counting()
    config = RewardConfig(per_turn=[entry(rubric)])
    first, second = build_rubrics(config)["it"], build_rubrics(config)["it"]
    assert len({id(rubric), id(first), id(second)}) == 3


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rubric", "config", "message"),
    [
        (Plain, {"longst": 3}, "config.longst: unknown key; did you mean 'longest'?"),
        (Plain, {}, "config.longest: is required"),
        (Plain, {"longest": "3"}, 'config.longest: must be an integer, got "3"'),
        (Plain, {"longest": 3.5}, "config.longest: must be an integer, got 3.5"),
        (Plain, {"longest": True}, "config.longest: must be an integer, got true"),
        (Limited, {"limit": False}, "config.limit: must be a finite number, got false"),
        (Limited, {"limits": [1, True]}, "config.limits[1]: must be an integer, got true"),
        (Unannotated, {"limit": False}, "config.limit: must be a finite number, got false"),
        (
            Plain,
            {"longest": 1, "strict": "no"},
            'config.strict: must be true or false, got "no"',
        ),
        (
            Plain,
            {"longest": -1},
            "config.longest: Plain raised ValueError: longest is below",
        ),
        (Style, {}, "config.llm_service: is required"),
        (
            Style,
            {"llm_service": "style_judge", "treshold": 1},
            "config.treshold: unknown key; did you mean 'threshold'?",
        ),
        (
            Style,
            {"llm_service": "style_judge", "threshold": 2.0},
            "config.threshold: threshold is over 1",
        ),
        (
            Style,
            {"llm_service": "style_judge", "words": ["a", 3]},
            "config.words[1]: must be a string, got 3",
        ),
        (
            Style,
            {"llm_service": "stile_judge"},
            "config.llm_service: mcp_services has no service 'stile_judge'; did you mean",
        ),
        (Passes, {"partial_credt": 1}, "config.partial_credt: unknown key; did you mean"),
        (Passes, {"partial_credit": 3}, "config.partial_credit: must be true or false, got 3"),
        (BaseModel, {}, "rubric: BaseModel is neither a Rubric nor a class of"),
        ("ExactMach", {}, "rubric: there is no rubric 'ExactMach'; did you mean 'ExactMatch'?"),
        (lambda a: 1.0, {}, "config.a: is required"),
        (lambda: 3, {}, "rubric: 3 (int) is not a rubric"),
        (Rubric, {}, "rubric: Rubric can't be instantiated"),
    ],
)
def test_build_rubric_reports_a_mistake_with_its_place(rubric, config, message):
    found = refused(rubric, config, mcp=MCP)
    assert any(each.startswith(message) for each in found), found


def test_build_rubric_reports_missing_services():
    assert refused(Style, {"llm_service": "x"}) == [
        "config.llm_service: mcp_services has no service 'x'; none are known",
        "rubric: Style takes mcp_client, but no mcp_services are given",
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"endpoint": "stile_judge"}, "config.endpoint: mcp_services has no service 'stile_judge'"),
        (
            {"endpoint": ["style_judge", "other"]},
            "config.endpoint: mcp_services has no service 'other'; known: 'style_judge'",
        ),
    ],
)
def test_build_rubric_reports_unknown_services_of_a_judge(config, message):
    config = {"prompt_template": "{action}"} | config
    (reported,) = refused("LLMJudge", config, mcp=MCP)
    assert reported.startswith(message)
    assert build_rubric(entry("LLMJudge", config | {"endpoint": "style_judge"}), mcp=MCP)


def test_build_rubric_reports_unknown_services_of_a_nested_judge():
    def factory(mcp_client):
        return Sequential(LLMJudge("{action}", "stile_judge", mcp_client=mcp_client))

    assert "did you mean 'style_judge'?" in refused(factory, mcp=MCP)[0]


def test_llm_judge_without_services_rejects_the_name_of_one():
    problem = refused("LLMJudge", {"prompt_template": "{action}", "endpoint": "style_judge"})[0]
    assert problem.startswith("config.endpoint: mcp_services has no service 'style_judge'")


def test_build_rubric_reports_an_unknown_private_key():
    assert refused(Plain, {"longest": 1}, private=("longst",)) == [
        "private[0]: the config has no key 'longst'; did you mean 'longest'?"
    ]
    assert build_rubric(entry(Plain, {"longest": 1}, private=("ratio",)))
    assert build_rubric(entry(Loose, {}, private=("anything",)))


def test_build_rubric_refuses_an_async_factory():
    async def factory(): ...

    assert "is async; a function that makes a rubric must be sync" in refused(factory)[0]


def test_build_rubric_refuses_a_config_for_a_rubric_object():
    assert "is a rubric, which takes no config" in refused(Scored(), {"x": 1})[0]


def test_build_rubric_accepts_extra_keys_of_an_open_model():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    class Rub(Scored):
        def __init__(self, config):
            super().__init__()
            self.config = config

    Rub.__init__.__annotations__["config"] = Open
    assert build_rubric(entry(Rub, {"x": 1}, private=("y",))).config.x == 1


def test_build_rubric_ignores_types_that_cannot_be_resolved():
    class Odd(Scored):
        def __init__(self, thing: "Nowhere" = None):  # noqa: F821
            super().__init__()
            self.thing = thing

    assert build_rubric(entry(Odd, {"thing": 3})).thing == 3


# Whole files ---------------------------------------------------------------------------------

BAD = """\
per_turn:
  - name: a
    rubric: ToxicityRubric
    weight: .nan
    config: {treshold: 1}
  - name: b
    rubric: ToxicityRubri
  - {name: a, rubric: RegexMatch, config: {pattern: "("}}
episode_end:
  - {rubric: guerdon.rubrics.ExactMach}
  - {name: c, rubric: ToxicityRubric, config: {threshold: high}}
  - 3
schema_version: "1.0"
"""


def test_check_document_reports_mistakes_of_rubrics_beside_the_others():
    document = parse_document(BAD, file="r.yaml")
    found = check_document(document)
    reported = str(document.error(found)).split("\n")
    expected = [
        ("r.yaml:4: per_turn[0].weight: ", ".nan is not a finite number"),
        ("r.yaml:5: per_turn[0].config.treshold: ", "did you mean 'threshold'?"),
        ("r.yaml:7: per_turn[1].rubric: ", "did you mean 'ToxicityRubric'?"),
        ("r.yaml:8: per_turn[2].name: ", "must be unique; per_turn[0] is also named 'a'"),
        ("r.yaml:8: per_turn[2].config.pattern: ", "must be a regular expression"),
        ("r.yaml:10: episode_end[0].name: ", "is required"),
        ("r.yaml:10: episode_end[0].rubric: ", "did you mean 'ExactMatch'?"),
        ("r.yaml:11: episode_end[1].config.threshold: ", "must be a finite number"),
        ("r.yaml:12: episode_end[2]: ", "must be a mapping"),
    ]
    assert len(reported) == len(expected)
    for line, (start, part) in zip(reported, expected, strict=True):
        assert line.startswith(start)
        assert part in line


WRONG_SERVICE = """\
schema_version: "1.0"
per_turn:
  - {name: a, rubric: LLMJudge, config: {prompt_template: "{action}", endpoint: style}}
  - {name: b, rubric: needing, config: {service: style}}
  - {name: c, rubric: needing, config: {service: stile}}
  - {name: d, rubric: LLMJudge, config: {prompt_template: "{action}", endpoint: 5}}
mcp_services:
  style: {type: openai_llm, endpoint: "http://localhost:1", modle: m}
"""


def test_check_document_reports_an_invalid_service_once():
    def needing(mcp_client, service):
        return Scored()

    registry = RubricRegistry()
    registry.register("needing", needing)
    registry.register("LLMJudge", LLMJudge)
    document = parse_document(WRONG_SERVICE)
    found = check_document(document, registry=registry)
    assert str(document.error(found)).split("\n") == [
        "line 5: per_turn[2].config.service: mcp_services has no service 'stile'; "
        "did you mean 'style'?",
        "line 6: per_turn[3].config.endpoint: must be a string, got 5; write it in quotes",
        "line 6: per_turn[3].config.endpoint: must be a list, got 5",
        "line 8: mcp_services.style.modle: unknown key; did you mean 'model'?",
        "line 8: mcp_services.style.model: is required",
    ]


def test_build_rubrics_reports_lines_of_the_file():
    config = RewardConfig.from_yaml(
        "schema_version: '1.0'\nper_turn:\n  - {name: a, rubric: nothing}\n"
        "  - name: b\n    rubric: RegexMatch\n    config: {patern: x}\n"
    )
    with pytest.raises(RewardConfigError) as caught:
        build_rubrics(config)
    assert [each.split(": ")[0] for each in caught.value.problems] == ["line 3", "line 6", "line 6"]


def test_build_rubrics_keeps_the_order_of_the_file():
    config = RewardConfig(
        per_turn=[RubricEntry(name="z", rubric=Scored)],
        episode_end=[RubricEntry(name="a", rubric=Scored)],
    )
    assert list(build_rubrics(config)) == ["z", "a"]


# Names ---------------------------------------------------------------------------------------


def test_build_rubrics_finds_a_python_file_beside_the_reward(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def scored(action, observation):\n    return 0.25\n")
    path = tmp_path / "reward.yaml"
    path.write_text('schema_version: "1.0"\nper_turn: [{name: a, rubric: "beside.py:scored"}]')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert build_rubrics(RewardConfig.from_file(path))["a"]("x", None) == 0.25


def test_build_rubrics_finds_a_module_beside_the_reward(tmp_path, monkeypatch):
    (tmp_path / "beside_rubrics.py").write_text(
        "def scored(action, observation):\n    return 0.25\n"
    )
    path = tmp_path / "reward.yaml"
    path.write_text('schema_version: "1.0"\nper_turn: [{name: a, rubric: beside_rubrics.scored}]\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert build_rubrics(RewardConfig.from_file(path))["a"]("x", None) == 0.25
    assert str(tmp_path) in sys.path[1:]  # after what is installed, so that it hides nothing of it


def test_build_rubric_resolves_nested_classes(tmp_path, monkeypatch):
    (tmp_path / "inner_rubrics.py").write_text(
        textwrap.dedent("""
            class Group:
                @staticmethod
                def scored(action, observation):
                    return 0.25
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build_rubric(entry("inner_rubrics.Group.scored"))("x", None) == 0.25


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "guerdon.rubrics.ToxicityRubri",
            "guerdon.rubrics has no 'ToxicityRubri'; did you mean 'T",
        ),
        ("guerdon.rubric.ToxicityRubric", "no module 'guerdon.rubric' here or installed; did you"),
        ("nowhere.rubrics.Thing", "no module 'nowhere.rubrics' here or installed; for a file"),
        ("a b.c", "must be a registered name, package.module.Class or file.py:name, got 'a b.c'"),
        ("guerdon.rubrics.RegexMatch.froward", "rubrics.RegexMatch has no 'froward'; did you mean"),
        ("nofile.py:x", "there is no file"),
        ("zzz", "there is no rubric 'zzz'; known: 'CallBudget', 'CalledTool'"),
    ],
)
def test_build_rubric_suggests_names(path, message):
    assert message in refused(path)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n1 / 0\n", "importing it raised ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:\n", "importing it raised SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "importing it raised SystemExit: 3"),
        ("x = 1\nimport no_such_module\n", "importing it raised ModuleNotFoundError"),
    ],
    ids=["error", "syntax", "exit", "import"],
)
@pytest.mark.parametrize("form", ["{0}.Thing", "{1}:Thing"])
def test_build_rubric_reports_the_raising_line(form, text, message, tmp_path, monkeypatch):
    path = tmp_path / "raising_rubrics.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (reported,) = refused(form.format("raising_rubrics", path))
    assert message in reported
    assert reported.endswith(f"({path}:2)")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("builtins.exec", "must not be in Python's standard library, got 'builtins.exec'"),
        ("os:system", "must not be in Python's standard library, got 'os:system'"),
        ("this.s", "must not be in Python's standard library, got 'this.s'"),
        ("numpy.fromfile", "must be a rubric or a reward function, as numpy is an installed"),
        ("yaml.YAMLObject", "must be a rubric or a reward function, as yaml is an installed"),
        ("{}:os.system", "must be a rubric or a reward function, as os is an installed module"),
        ("a\0b.py:x", r"'a\x00b.py:x' can't be a file: embedded null byte"),
        ("\ud800.py:x", r"'\ud800.py:x' can't be a file: "),
        ("x" * 300 + ".py:x", "can't be a file: "),
    ],
)
def test_build_rubric_calls_nothing_of_python_and_installed_packages(path, message, tmp_path):
    (tmp_path / "own.py").write_text("import os\n")
    (reported,) = refused(path.format(tmp_path / "own.py"), {"command": "exit 1"})
    assert message in reported


@pytest.mark.parametrize(
    "path",
    [
        "openenv.rubrics.NumericAnswer",
        "openenv.core.rubrics.NumericAnswer",
        "openenv.core.rubrics.checks.NumericAnswer",
        "openenv.rubrics:NumericAnswer",
    ],
)
def test_build_rubric_reads_a_rubric_of_openenv_as_ours_with_one_warning(path, caplog):
    registry = RubricRegistry()
    config = {"per_turn": [{"name": name, "rubric": path} for name in ("first", "second")]}
    rubrics = build_rubrics(RewardConfig(**config), registry=registry)
    assert type(rubrics["first"]) is NumericAnswer
    assert [each.getMessage() for each in caplog.records] == [
        f"{path} is read as guerdon.rubrics.NumericAnswer; write that in the reward file"
    ]
    assert "openenv" not in sys.modules


def test_build_rubric_reports_a_rubric_of_openenv_that_is_none_of_ours():
    with pytest.raises(RewardConfigError, match=r"guerdon\.rubrics has no 'NumericAnswr'"):
        build_rubric(RubricEntry("a", "openenv.rubrics.NumericAnswr"))


def test_build_rubric_calls_what_a_file_imports(tmp_path):
    (tmp_path / "own.py").write_text("from math import dist\n")
    assert build_rubric(entry(f"{tmp_path / 'own.py'}:dist"))([1.0], [3.0]) == 2.0


def test_rubric_registry_path_that_is_registered_may_name_any_function():
    registry = RubricRegistry()
    registry.register("distance", "math.dist")
    assert registry.resolve("distance")([1.0], [3.0]) == 2.0


def test_rubric_registry_refuses_duplicates_and_invalid_names():
    registry = RubricRegistry()
    registry.register("scored", Scored)
    with pytest.raises(ValueError, match="rubric 'scored' is already registered"):
        registry.register("scored", Plain)
    registry.register("scored", Plain, replace=True)
    assert registry.resolve("scored") is Plain
    assert isinstance(build_rubric(entry("scored", {"longest": 1}), registry=registry), Plain)
    for name, rubric in (("a b", Scored), ("", Scored), ("a", 3), ("a", "x")):
        with pytest.raises(ValueError, match=r"`name` must consist|`rubric` must be"):
            registry.register(name, rubric)


def test_rubric_registry_finds_entry_points(monkeypatch):
    class EntryPoint:
        name, value = "theirs", "their.package:Rubric"

        def load(self):
            return Scored

    class Exits(EntryPoint):
        name = "exits"

        def load(self):
            raise SystemExit(3)

    class Broken(EntryPoint):
        name = "broken"

        def load(self):
            raise ImportError("no")

    offered = [EntryPoint(), Broken(), Exits()]

    def entry_points(group, name=None):
        assert group == "guerdon.rubrics"
        return [each for each in offered if name in (None, each.name)]

    monkeypatch.setattr("guerdon._registry.entry_points", entry_points)
    registry = RubricRegistry()
    assert registry.names() == ["broken", "exits", "theirs"]
    assert registry.resolve("theirs") is Scored
    for name in ("broken", "exits"):
        with pytest.raises(
            RewardConfigError, match=rf"can't import rubric '{name}' \(their.package:Rubric\)"
        ):
            registry.resolve(name)


def test_rubric_registry_has_the_ready_made_rubrics():
    made = build_rubric(entry("RegexMatch", {"pattern": "please"}))
    assert made("please come", None) == 1.0
