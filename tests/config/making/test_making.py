"""Making rubrics of entries: what is injected, what is checked, and what is told of mistakes."""

import sys
import textwrap
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from guerdon import EvaluateResult, LLMJudge, Rubric, Sequential, TrajectoryRubric, reward_function
from guerdon.config.checking import problems_of_document
from guerdon.config.config import RewardConfig, RubricEntry
from guerdon.config.making.making import make_rubric, make_rubrics
from guerdon.config.making.registry import RubricRegistry
from guerdon.config.reading import parse_document
from guerdon.errors import RewardConfigError


class Services:
    """Stands for a client: making rubrics needs no more of it than its names."""

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


class Counting(TrajectoryRubric):
    def score_trajectory(self, trajectory):
        return float(len(trajectory))

    def compute_step_rewards(self):
        return [1.0] * len(self.trajectory)


def entry(rubric, config=None, **options):
    return RubricEntry(name="it", rubric=rubric, config=config or {}, **options)


def refused(rubric, config=None, *, mcp=None, **options):
    with pytest.raises(RewardConfigError) as caught:
        make_rubric(entry(rubric, config, **options), mcp=mcp)
    return list(caught.value.problems)


# What is given -------------------------------------------------------------------------------


def test_a_class_is_given_its_config_and_the_services_by_the_names_of_its_parameters():
    made = make_rubric(entry(Style, {"llm_service": "style_judge", "words": ["a"]}), mcp=MCP)
    assert made.config == StyleConfig("style_judge", 0.5, ("a",))
    assert made.mcp is MCP


def test_a_config_of_pydantic_is_one_too_also_where_it_is_optional():
    assert make_rubric(entry(Passes, {"partial_credit": True})).config.partial_credit is True


def test_a_config_without_an_annotation_is_a_dict_of_its_own():
    config = {"x": 1}
    made = make_rubric(entry(Loose, config))
    assert made.config == config
    assert made.config is not config
    assert made.mcp is None


def test_a_config_that_only_holds_config_classes_is_a_dict():
    class Many(Scored):
        def __init__(self, config: dict[str, PassConfig]):
            super().__init__()
            self.config = config

    assert make_rubric(entry(Many, {"x": {}})).config == {"x": PassConfig()}


def test_without_such_a_parameter_the_keys_are_the_arguments():
    made = make_rubric(entry(Plain, {"longest": 3, "ratio": 1, "rest": [1]}))
    assert (made.longest, made.strict, made.ratio, made.rest) == (3, False, 1.0, [1])


def test_a_function_is_a_rubric_and_its_other_arguments_come_from_the_config():
    def brief(action, observation, *, longest: int = 9):
        return float(len(action) < longest)

    assert make_rubric(entry(brief))("12345", None) == 1.0
    assert make_rubric(entry(brief, {"longest": 3}))("12345", None) == 0.0


def test_a_factory_is_called_with_the_config():
    def factory(longest: int):
        return lambda action, observation: float(longest)

    assert make_rubric(entry(factory, {"longest": 3}))("a", None) == 3.0


def test_a_factory_may_take_config_and_services():
    def factory(config: StyleConfig, mcp_client):
        return Style(config, mcp_client)

    made = make_rubric(entry(factory, {"llm_service": "style_judge"}), mcp=MCP)
    assert made.mcp is MCP


def test_a_reward_function_on_messages_is_a_rubric():
    @reward_function
    def answered(messages, ground_truth=None):
        return EvaluateResult(score=0.5)

    assert isinstance(make_rubric(entry(answered)), Rubric)
    assert refused(answered, {"x": 1}) == [
        f"config: {answered!r:.60} is a reward function on messages, and takes no config; "
        "leave it out"
    ]


def test_a_callable_class_makes_callables():
    class Brief:
        def __init__(self, longest):
            self.longest = longest

        def __call__(self, action, observation):
            return float(len(action) < self.longest)

    assert make_rubric(entry(Brief, {"longest": 3}))("ab", None) == 1.0


def test_each_tree_has_its_own_copy_of_a_rubric():
    rubric = Counting()
    config = RewardConfig(per_turn=[entry(rubric)])
    first, second = make_rubrics(config)["it"], make_rubrics(config)["it"]
    assert len({id(rubric), id(first), id(second)}) == 3


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rubric", "config", "said"),
    [
        (Plain, {"longst": 3}, "config.longst: there is no such key; did you mean 'longest'?"),
        (Plain, {}, "config.longest: it is missing, and has no default"),
        (Plain, {"longest": "3"}, 'config.longest: it is the text "3"; a whole number is needed'),
        (Plain, {"longest": 3.5}, "config.longest: it is the number 3.5; a whole number is needed"),
        (Plain, {"longest": True}, "config.longest: it is true; a whole number is needed"),
        (
            Plain,
            {"longest": 1, "strict": "no"},
            'config.strict: it is the text "no"; true or false is needed',
        ),
        (
            Plain,
            {"longest": -1},
            "config.longest: making Plain raised ValueError: longest is below",
        ),
        (Style, {}, "config.llm_service: it is missing, and has no default"),
        (
            Style,
            {"llm_service": "style_judge", "treshold": 1},
            "config.treshold: there is no such key; did you mean 'threshold'?",
        ),
        (
            Style,
            {"llm_service": "style_judge", "threshold": 2.0},
            "config.threshold: making StyleConfig raised ValueError: threshold is over 1",
        ),
        (
            Style,
            {"llm_service": "style_judge", "words": ["a", 3]},
            "config.words[1]: it is the number 3; text is needed",
        ),
        (
            Style,
            {"llm_service": "stile_judge"},
            "config.llm_service: there is no service 'stile_judge' in mcp_services; did you mean",
        ),
        (Passes, {"partial_credt": 1}, "config.partial_credt: there is no such key; did you mean"),
        (Passes, {"partial_credit": 3}, "config.partial_credit: it is the number 3"),
        (BaseModel, {}, "rubric: BaseModel is a class, but no Rubric"),
        ("ExactMach", {}, "rubric: there is no rubric 'ExactMach'; did you mean 'ExactMatch'?"),
        (lambda a: 1.0, {}, "config.a: it is missing, and has no default"),
        (lambda: 3, {}, "rubric: 3 (int) is no rubric"),
        (Rubric, {}, "rubric: Rubric can't be made"),
    ],
)
def test_a_mistake_is_told_with_its_place(rubric, config, said):
    found = refused(rubric, config, mcp=MCP)
    assert any(each.startswith(said) for each in found), found


def test_services_that_are_needed_and_not_given_are_told():
    assert refused(Style, {"llm_service": "x"}) == [
        "config.llm_service: there is no service 'x' in mcp_services; there are none",
        "rubric: Style takes mcp_client, and no mcp_services are given",
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"endpoint": "stile_judge"}, "config.endpoint: there is no service 'stile_judge' in"),
        (
            {"endpoint": "style_judge", "judges": ["style_judge", "other"]},
            "config.judges: there is no service 'other' in mcp_services; there are 'style_judge'",
        ),
    ],
)
def test_a_judge_asks_services_that_there_are(config, said):
    config = {"prompt_template": "{action}"} | config
    (told,) = refused("LLMJudge", config, mcp=MCP)
    assert told.startswith(said)
    assert make_rubric(
        entry("LLMJudge", config | {"endpoint": "style_judge", "judges": []}), mcp=MCP
    )


def test_a_judge_within_a_factory_asks_services_that_there_are():
    def factory(mcp_client):
        return Sequential(LLMJudge("{action}", "stile_judge", mcp_client=mcp_client))

    assert "did you mean 'style_judge'?" in refused(factory, mcp=MCP)[0]


def test_a_judge_without_services_is_told_what_an_address_is():
    told = refused("LLMJudge", {"prompt_template": "{action}", "endpoint": "style_judge"})[0]
    assert told.startswith("config.endpoint: endpoint is 'style_judge', which is no address")


def test_a_private_key_that_there_is_none_of_is_refused():
    assert refused(Plain, {"longest": 1}, private=("longst",)) == [
        "private[0]: there is no key 'longst' in the config; did you mean 'longest'?"
    ]
    assert make_rubric(entry(Plain, {"longest": 1}, private=("ratio",)))
    assert make_rubric(entry(Loose, {}, private=("anything",)))


def test_an_async_factory_is_refused():
    async def factory(): ...

    assert "is async; what makes a rubric is a plain function" in refused(factory)[0]


def test_a_rubric_that_is_made_takes_no_config():
    assert "is a rubric that is made already, and takes no config" in refused(Scored(), {"x": 1})[0]


def test_a_model_that_takes_more_takes_more():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    class Rub(Scored):
        def __init__(self, config):
            super().__init__()
            self.config = config

    Rub.__init__.__annotations__["config"] = Open
    assert make_rubric(entry(Rub, {"x": 1}, private=("y",))).config.x == 1


def test_a_type_that_only_a_checker_knows_is_no_hindrance():
    class Odd(Scored):
        def __init__(self, thing: "Nowhere" = None):  # noqa: F821
            super().__init__()
            self.thing = thing

    assert make_rubric(entry(Odd, {"thing": 3})).thing == 3


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


def test_mistakes_of_making_are_told_beside_the_others():
    document = parse_document(BAD, file="r.yaml")
    found = problems_of_document(document)
    told = str(document.error(found)).split("\n")
    expected = [
        ("r.yaml:4: per_turn[0].weight: ", ".nan is no finite number"),
        ("r.yaml:5: per_turn[0].config.treshold: ", "did you mean 'threshold'?"),
        ("r.yaml:7: per_turn[1].rubric: ", "did you mean 'ToxicityRubric'?"),
        ("r.yaml:8: per_turn[2].name: ", "is taken by per_turn[0]"),
        ("r.yaml:8: per_turn[2].config.pattern: ", "accepted is a regular expression"),
        ("r.yaml:10: episode_end[0].name: ", "it is missing"),
        ("r.yaml:10: episode_end[0].rubric: ", "did you mean 'ExactMatch'?"),
        ("r.yaml:11: episode_end[1].config.threshold: ", "a finite number is needed"),
        ("r.yaml:12: episode_end[2]: ", "a mapping is needed"),
    ]
    assert len(told) == len(expected)
    for line, (begins, holds) in zip(told, expected, strict=True):
        assert line.startswith(begins)
        assert holds in line


WRONG_SERVICE = """\
schema_version: "1.0"
per_turn:
  - {name: a, rubric: LLMJudge, config: {prompt_template: "{action}", endpoint: style}}
  - {name: b, rubric: needing, config: {service: style}}
  - {name: c, rubric: needing, config: {service: stile}}
  - {name: d, rubric: LLMJudge, config: {prompt_template: "{action}", endpoint: [style]}}
mcp_services:
  style: {type: openai_llm, endpoint: "http://localhost:1", modle: m}
"""


def test_a_service_that_is_wrong_is_told_where_it_stands_alone():
    def needing(mcp_client, service):
        return Scored()

    registry = RubricRegistry()
    registry.register("needing", needing)
    registry.register("LLMJudge", LLMJudge)
    document = parse_document(WRONG_SERVICE)
    found = problems_of_document(document, registry=registry)
    assert str(document.error(found)).split("\n") == [
        "line 5: per_turn[2].config.service: there is no service 'stile' in mcp_services; "
        "did you mean 'style'?",
        "line 6: per_turn[3].config.endpoint: it is a list; text is needed",
        "line 8: mcp_services.style.model: it is missing; text is needed",
        "line 8: mcp_services.style.modle: there is no such key; did you mean 'model'?",
    ]


def test_making_tells_the_lines_of_the_file():
    config = RewardConfig.from_yaml(
        "schema_version: '1.0'\nper_turn:\n  - {name: a, rubric: nothing}\n"
        "  - name: b\n    rubric: RegexMatch\n    config: {patern: x}\n"
    )
    with pytest.raises(RewardConfigError) as caught:
        make_rubrics(config)
    assert [each.split(": ")[0] for each in caught.value.problems] == ["line 3", "line 6", "line 6"]


def test_the_order_of_the_file_is_that_of_the_rubrics():
    config = RewardConfig(
        per_turn=[RubricEntry(name="z", rubric=Scored)],
        episode_end=[RubricEntry(name="a", rubric=Scored)],
    )
    assert list(make_rubrics(config)) == ["z", "a"]


# Names ---------------------------------------------------------------------------------------


def test_a_file_of_python_is_looked_for_beside_the_reward(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def scored(action, observation):\n    return 0.25\n")
    path = tmp_path / "reward.yaml"
    path.write_text('schema_version: "1.0"\nper_turn: [{name: a, rubric: "beside.py:scored"}]')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_rubrics(RewardConfig.from_file(path))["a"]("x", None) == 0.25


def test_a_module_beside_the_reward_is_found_where_no_other_is(tmp_path, monkeypatch):
    (tmp_path / "beside_rubrics.py").write_text(
        "def scored(action, observation):\n    return 0.25\n"
    )
    path = tmp_path / "reward.yaml"
    path.write_text('schema_version: "1.0"\nper_turn: [{name: a, rubric: beside_rubrics.scored}]\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_rubrics(RewardConfig.from_file(path))["a"]("x", None) == 0.25
    assert str(tmp_path) in sys.path[1:]  # behind what is installed, of which it hides nothing


def test_a_class_path_may_go_through_classes(tmp_path, monkeypatch):
    (tmp_path / "inner_rubrics.py").write_text(
        textwrap.dedent("""
            class Group:
                @staticmethod
                def scored(action, observation):
                    return 0.25
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make_rubric(entry("inner_rubrics.Group.scored"))("x", None) == 0.25


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "guerdon.rubrics.ToxicityRubri",
            "guerdon.rubrics has no 'ToxicityRubri'; did you mean 'T",
        ),
        ("guerdon.rubric.ToxicityRubric", "no module 'guerdon.rubric' here or installed; did you"),
        ("nowhere.rubrics.Thing", "no module 'nowhere.rubrics' here or installed; for a file"),
        ("a b.c", "'a b.c' names no rubric; write a registered name, package.module.Class"),
        ("guerdon.rubrics.RegexMatch.froward", "rubrics.RegexMatch has no 'froward'; did you mean"),
        ("nofile.py:x", "there is no file"),
        ("zzz", "there is no rubric 'zzz'; there are 'ExactMatch', 'LLMJudge'"),
    ],
)
def test_a_name_that_nothing_has_is_told_with_near_ones(path, said):
    assert said in refused(path)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n1 / 0\n", "importing it raised ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:\n", "importing it raised SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "importing it raised SystemExit: 3"),
        ("x = 1\nimport no_such_module\n", "importing it raised ModuleNotFoundError"),
    ],
    ids=["error", "syntax", "exit", "import"],
)
@pytest.mark.parametrize("form", ["{0}.Thing", "{1}:Thing"])
def test_a_module_that_raises_is_told_with_its_line(form, text, said, tmp_path, monkeypatch):
    path = tmp_path / "raising_rubrics.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (told,) = refused(form.format("raising_rubrics", path))
    assert said in told
    assert told.endswith(f"({path}:2)")


def test_names_are_registered_once():
    registry = RubricRegistry()
    registry.register("scored", Scored)
    with pytest.raises(ValueError, match="there is a rubric 'scored' already"):
        registry.register("scored", Plain)
    registry.register("scored", Plain, replace=True)
    assert registry.resolve("scored") is Plain
    assert isinstance(make_rubric(entry("scored", {"longest": 1}), registry=registry), Plain)
    for name, rubric in (("a b", Scored), ("a.b", Scored), ("", Scored), ("a", 3), ("a", "x")):
        with pytest.raises(ValueError, match=r"can't be a name|is no rubric"):
            registry.register(name, rubric)


def test_entry_points_of_other_packages_are_names(monkeypatch):
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

    monkeypatch.setattr("guerdon.config.making.registry.entry_points", entry_points)
    registry = RubricRegistry()
    assert registry.names() == ["broken", "exits", "theirs"]
    assert registry.resolve("theirs") is Scored
    for name in ("broken", "exits"):
        with pytest.raises(
            RewardConfigError, match=rf"'{name}' \(their.package:Rubric\) can't be import"
        ):
            registry.resolve(name)


def test_the_ready_made_rubrics_have_names():
    made = make_rubric(entry("RegexMatch", {"pattern": "please"}))
    assert made("please come", None) == 1.0
