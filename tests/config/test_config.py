"""`RewardConfig`: read whole, refused whole, and every mistake told with its line."""

import contextlib
import copy
import itertools
import logging
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import Rubric
from guerdon._loading import (
    load_object,
)
from guerdon.config.checking import problems_of_document
from guerdon.config.config import RewardConfig, RubricEntry
from guerdon.config.documents import Document
from guerdon.config.schedules.schedules import PiecewiseLinearSchedule
from guerdon.config.versions import ConfigMigrations
from guerdon.errors import InvalidArgumentError, RewardConfigError

FILE = """\
schema_version: "1.0"
normalize: false
per_turn:
  - name: toxicity_check
    rubric: guerdon.rubrics.ToxicityRubric
    weight: -10.0
    config:
      threshold: 0.8
    private: [threshold]
episode_end:
  - {name: task_completion, rubric: coding_env.rubrics.TestPassRubric,
     config: {partial_credit: true}}
  - name: code_style
    rubric: coding_env.rubrics.StyleRubric
    weight: 0.3
    config: {llm_service: style_judge}
    schedule:
      piecewise: [[0, 1.0], [1000, 1.0], [5000, 0.0]]
mcp_services:
  style_judge:
    type: openai_llm
    endpoint: http://localhost:8000
    model: my-model
curriculum:
  - name: first
    weights: {code_style: 0.0}
    until: {episodes: 100}
  - name: second
"""


def problems(text, read=RewardConfig.from_yaml):
    with pytest.raises(RewardConfigError) as caught:
        read(text)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return list(caught.value.problems)


def with_line(number, line):
    """The file with another line, or none, in place of one."""
    lines = FILE.splitlines()
    lines[number - 1 : number] = [] if line is None else [line]
    return "\n".join(lines)


def test_a_file_says_what_the_reward_is(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(FILE)
    config = RewardConfig.from_file(path)
    assert [entry.name for entry in config.entries] == [
        "toxicity_check", "task_completion", "code_style",
    ]  # fmt: skip
    assert config.per_turn[0].weight == -10.0
    assert config.per_turn[0].private == ("threshold",)
    assert config.episode_end[0].weight == 1.0
    assert config.episode_end[1].schedule(3000) == 0.5
    assert config.mcp_services["style_judge"].model == "my-model"
    assert config.curriculum[0].until.episodes == 100
    assert config.normalize is False
    assert config.document.file == str(path)


def test_a_file_of_json_says_the_same(tmp_path):
    path = tmp_path / "reward.json"
    path.write_text(RewardConfig.from_yaml(FILE).to_json())
    assert RewardConfig.from_file(path) == RewardConfig.from_yaml(FILE)


def test_in_python_it_is_made_of_entries():
    entry = RubricEntry(name="brief", rubric=len, weight=2, schedule=[[0, 1], [9, 0]])
    config = RewardConfig(per_turn=[entry], normalize=False)
    assert config.per_turn == (entry,)
    assert isinstance(entry.schedule, PiecewiseLinearSchedule)
    assert type(entry.weight) is float


def test_it_can_be_copied_and_pickled():
    config = RewardConfig.from_yaml(FILE)
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config
        assert other.document.line_of(("per_turn", 0, "weight")) == 6


def test_it_cannot_be_changed():
    config = RewardConfig.from_yaml(FILE)
    with pytest.raises(ValueError, match=r"frozen"):
        config.normalize = True
    with pytest.raises(ValueError, match=r"frozen"):
        config.per_turn[0].weight = 3.0


# Mistakes ------------------------------------------------------------------------------------

# Line, what stands there instead, and what is said.
MUTATIONS = [
    (2, "normalize: no", 'normalize: it is the text "no"; true or false is needed'),
    (2, "normalize: 1", "normalize: it is the number 1; true or false is needed"),
    (2, "normalise: true", "normalise: there is no such key; did you mean 'normalize'?"),
    (3, "per_trun:", "per_trun: there is no such key; did you mean 'per_turn'?"),
    (4, "  - naem: toxicity_check", "per_turn[0].naem: there is no such key; did you mean 'name'?"),
    (4, "  - nam: toxicity_check", "per_turn[0].name: it is missing; text is needed"),
    (4, "  - name: code_style", "the name 'code_style' is taken by per_turn[0]"),
    (4, "  - name: a b", 'per_turn[0].name: the text "a b" can\'t be a name; it takes up to 100'),
    (4, "  - name: a.b", "can't be a name"),
    (4, "  - name: forward", "per_turn[0].name: 'forward' is a name of RubricComposer's own"),
    (4, "  - name: weights", "is a name of RubricComposer's own"),
    (4, "  - name: 1.0", "name: it is the number 1.0; text is needed; write it in quotes"),
    (4, "  - name:", "per_turn[0].name: it is empty (null); text is needed"),
    (5, "    rubric: 3", "per_turn[0].rubric: it is the number 3; it takes a registered name"),
    (5, "    rubric: ' '", "per_turn[0].rubric: it is the text"),
    (5, "    rubrik: x", "per_turn[0].rubrik: there is no such key; did you mean 'rubric'?"),
    (6, "    weight: .nan", "per_turn[0].weight: .nan is no finite number"),
    (6, "    weight: nan", 'per_turn[0].weight: it is the text "nan"; a finite number is needed'),
    (6, "    weight: '1'", 'per_turn[0].weight: it is the text "1"; a finite number is needed'),
    (6, "    weight: 1_000", 'it is the text "1_000"; a finite number is needed'),
    (6, "    weight: 1:30", 'it is the text "1:30"; a finite number is needed'),
    (6, "    weight: true", "per_turn[0].weight: it is true; a finite number is needed"),
    (6, "    weight: yes", 'per_turn[0].weight: it is the text "yes"'),
    (6, "    weight:", "per_turn[0].weight: it is empty (null); a finite number is needed"),
    (6, "    weight: [1]", "per_turn[0].weight: it is a list; a finite number is needed"),
    (6, "    weight: 012", "'012' is octal to some readers"),
    (6, "    wieght: 1.0", "per_turn[0].wieght: there is no such key; did you mean 'weight'?"),
    (6, "    name: other", "per_turn[0].name: it comes twice, first on line 4"),
    (9, "    private: threshold", 'per_turn[0].private: it is the text "threshold"; a list'),
    (9, "    private: [1]", "per_turn[0].private[0]: it is the number 1; text is needed"),
    (28, "  - task", 'curriculum[1]: it is the text "task"; a mapping is needed'),
    (28, "  - {weights: {}}", "curriculum[1].name: it is missing; text is needed"),
    (16, "    config: [x]", "episode_end[1].config: it is a list; a mapping is needed"),
    (16, "    config:", "episode_end[1].config: it is empty (null); a mapping is needed"),
    (18, "      piecewise: [[0, 1.0], [9, 1.0], [5, 0.0]]", "piecewise[2][0]: the position 5"),
    (18, "      pieces: [[0, 1.0], [9, 1.0]]", "there is no kind of schedule 'pieces'"),
    (20, "  style judge:", "mcp_services['style judge']: the text \"style judge\" can't be a name"),
    (21, "    type: openai", 'mcp_services.style_judge.type: it is the text "openai"; did'),
    (21, "    tipe: openai_llm", "style_judge.tipe: there is no such key; did you mean 'type'?"),
    (22, "    endpoint: localhost", "mcp_services.style_judge.endpoint: "),
    (22, "    endpont: http://x", "endpont: there is no such key; did you mean 'endpoint'"),
    (23, "    model: 3.5", "model: it is the number 3.5; text is needed; write it in quotes"),
    (26, "    weights: {code_stile: 0.0}", "no entry 'code_stile'; did you mean 'code_style'"),
    (26, "    weights: {code_style: x}", 'weights.code_style: it is the text "x"; a finite number'),
    (27, "    until: {episode: 100}", "curriculum[0].until.episode: there is no such key; did you"),
    (27, "    until: {component: task, mean_above: 0, over: 3}", "there is no entry 'task'"),
    (28, "  - nome: second", "curriculum[1].nome: there is no such key; did you mean 'name'?"),
]  # fmt: skip


IDS = [f"{line} {instead.strip()}" for line, instead, _ in MUTATIONS]


@pytest.mark.parametrize(("line", "instead", "said"), MUTATIONS, ids=IDS)
def test_a_mistake_is_told_with_its_line_and_what_would_be_accepted(line, instead, said):
    found = problems(with_line(line, instead))
    at_line = [each for each in found if each.startswith(f"line {line}: ")]
    # Two of one name are told where the second is.
    assert any(said in each for each in (found if "is taken by" in said else at_line)), found


KEYS = {
    1: "schema_version", 2: "normalize", 4: "name", 5: "rubric", 6: "weight", 7: "config",
    9: "private", 14: "rubric", 15: "weight", 17: "schedule", 18: "piecewise", 21: "type",
    22: "endpoint", 23: "model", 26: "weights", 27: "until",
}  # fmt: skip


@settings(deadline=None)  # the first takes its time
@given(st.sampled_from(sorted(KEYS)), st.text("abcdefgh", min_size=1, max_size=12))
def test_every_key_that_is_misspelt_is_told_with_its_line(line, key):
    text = FILE.splitlines()[line - 1].replace(KEYS[line], "q" + key, 1)
    assert any(each.startswith(f"line {line}: ") for each in problems(with_line(line, text)))


@settings(deadline=None)  # the first takes its time
@given(st.sampled_from(sorted(KEYS)), st.sampled_from(["[[]]", ".nan", "!x y", "[{}]"]))
def test_every_value_of_another_kind_is_told_with_its_line(line, value):
    text = FILE.splitlines()[line - 1].partition(":")[0]
    lines = with_line(line, f"{text}: {value}").splitlines()
    depth = len(text) - len(text.lstrip(" -"))
    while line < len(lines) and len(lines[line]) - len(lines[line].lstrip(" ")) > depth:
        del lines[line]  # what stood beneath it
    assert any(each.startswith(f"line {line}: ") for each in problems("\n".join(lines)))


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "reward.yaml"
    text = FILE.replace("weight: -10.0", "weight: .inf").replace("model:", "modell:")
    path.write_text(text.replace("rubric: coding_env.rubrics.StyleRubric", "rubric: []"))
    found = [each.removeprefix(str(path)) for each in problems(path, RewardConfig.from_file)]
    assert [each.split(":")[1] for each in found] == ["6", "14", "20", "23"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([
                "name", "rubric", "weight", "config", "type", "endpoint", "until", "weights",
                "piecewise", "schedule", "private", "component", "x", 1, None,
            ]),
            inner, max_size=4,
        )
    ),
    max_leaves=10,
)  # fmt: skip
PLACES = ["per_turn", "episode_end", "mcp_services", "curriculum", "normalize", "schema_version"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*PLACES, "self", "data", 1]), ODD))
def test_whatever_is_said_is_taken_or_refused_in_words(data):
    with contextlib.suppress(RewardConfigError):
        RewardConfig.from_dict(data)
    for problem in problems_of_document(Document(data)) if data.keys() <= set(PLACES[:-1]) else ():
        assert problem.said


def test_of_a_dict_there_are_places_but_no_lines():
    found = problems({"schema_version": "1.0", "per_turn": [{"name": "a"}]}, RewardConfig.from_dict)
    assert found == ["per_turn[0].rubric: it is missing"]
    with pytest.raises(RewardConfigError, match=r"normalize: it is the number 3; true or false"):
        RewardConfig(per_turn=[{"name": "a", "rubric": "b"}], normalize=3)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), True, "1", None])
def test_a_weight_is_a_finite_number(weight):
    with pytest.raises(
        RewardConfigError, match=r"per_turn\[0\]\.weight: .*a finite number is needed"
    ):
        RewardConfig(per_turn=[{"name": "a", "rubric": "b", "weight": weight}])
    with pytest.raises(ValueError, match=r"weight"):
        RubricEntry(name="a", rubric="b", weight=weight)


@pytest.mark.parametrize("text", ["[]", "3", "per_turn", "[{name: a}]"])
def test_what_is_no_mapping_is_no_reward(text):
    assert "a reward is a mapping" in problems(text)[-1]


@pytest.mark.parametrize("text", ["normalize: true", "per_turn: []\nepisode_end: []"])
def test_a_reward_without_an_entry_is_refused(text):
    assert problems(text) == [
        "line 1: there is no entry; a reward needs one in per_turn or episode_end"
    ]


# Versions ------------------------------------------------------------------------------------

ENTRY = "per_turn: [{name: a, rubric: b}]\n"


@pytest.mark.parametrize("written", ["1.0", "'1.0'", '"1.0"'])
def test_the_same_version_is_accepted_with_quotes_or_without(written, caplog):
    assert RewardConfig.from_yaml(f"schema_version: {written}\n{ENTRY}").schema_version == "1.0"
    assert caplog.records == []


def test_the_same_version_is_accepted_as_a_number_of_json_and_of_python():
    data = {"schema_version": 1.0, "per_turn": [{"name": "a", "rubric": "b"}]}
    assert RewardConfig.from_dict(data).schema_version == "1.0"
    text = '{"schema_version": 1.0, "per_turn": [{"name": "a", "rubric": "b"}]}'
    assert RewardConfig.from_json(text).schema_version == "1.0"


@pytest.mark.parametrize("written", ["2.0", "1.10", "1", '"1.1"', "1.00", "v1.0"])
def test_another_version_is_refused_naming_both(written):
    with pytest.raises(RewardConfigError) as caught:
        RewardConfig.from_yaml(f"\nschema_version: {written}\nper_turn: 3")
    version = written.strip('"')
    assert (caught.value.found, caught.value.known) == (version, "1.0")
    said = f"schema_version: it is of version {version!r}; this guerdon reads '1.0'"
    assert caught.value.problems == (f"line 2: {said}",)


@pytest.mark.parametrize("written", ["", "[1.0]", "true"])
def test_what_is_no_version_is_refused(written):
    with pytest.raises(RewardConfigError, match=r"this guerdon reads '1.0'"):
        RewardConfig.from_yaml(f"schema_version: {written}\n{ENTRY}")


def test_a_missing_version_is_the_present_one_with_a_warning(caplog, tmp_path):
    (tmp_path / "reward.yaml").write_text(ENTRY)
    with caplog.at_level(logging.WARNING, "guerdon"):
        config = RewardConfig.from_file(tmp_path / "reward.yaml")
        RewardConfig.from_file(tmp_path / "reward.yaml")
    assert config.schema_version == "1.0"
    (record,) = caplog.records  # once a file
    said = "reward.yaml has no schema_version, and is read as one of version 1.0; write"
    assert said in record.getMessage()


def test_in_code_no_version_is_needed(caplog):
    RewardConfig(per_turn=[RubricEntry(name="a", rubric="b")])
    assert caplog.records == []
    with pytest.raises(RewardConfigError):
        RewardConfig(per_turn=[RubricEntry(name="a", rubric="b")], schema_version="3")


def test_migrations_are_done_one_after_the_other():
    steps = ConfigMigrations()
    steps.register("0.9", "1.0", lambda data: {"per_turn": data["rubrics"]})
    steps.register("0.8", "0.9", lambda data: {"rubrics": data["r"]})
    assert steps.known() == ["1.0", "0.8", "0.9"]
    assert steps.upgrade({"r": [1]}, "0.8") == {"per_turn": [1], "schema_version": "1.0"}


@pytest.mark.parametrize(("found", "made"), [(1.0, "1.1"), ("1.0", None), ("", "1.0")])
def test_a_version_is_text(found, made):
    steps = ConfigMigrations("2.0")
    with pytest.raises(InvalidArgumentError, match="is no version; it takes text"):
        steps.register(found, made, lambda data: data)
    assert steps.known() == ["2.0"]


def test_a_migration_changes_nothing_that_it_was_given():
    def migrate(data):
        data["per_turn"][0]["name"] = "other"
        return data

    steps = ConfigMigrations()
    steps.register("0.9", "1.0", migrate)
    data = {"schema_version": "0.9", "per_turn": [{"name": "a", "rubric": "b"}]}
    assert steps.upgrade(data, "0.9")["per_turn"][0]["name"] == "other"
    assert data["per_turn"][0]["name"] == "a"


def test_a_migration_that_fails_says_so():
    steps = ConfigMigrations()
    steps.register("0.9", "1.0", lambda data: data["rubrics"])
    with pytest.raises(RewardConfigError, match=r"to version '1\.0' raised KeyError: 'rubrics'"):
        steps.upgrade({}, "0.9")
    with pytest.raises(RewardConfigError, match=r"to version '1\.0' gave \[\]"):
        steps.upgrade({"rubrics": []}, "0.9")


def test_migrations_neither_go_round_nor_replace_each_other():
    steps = ConfigMigrations("3")
    steps.register("1", "2", dict)
    for found, made in (("1", "3"), ("2", "1"), ("3", "4"), ("5", "5")):
        with pytest.raises(ValueError, match=r"read already|leads back"):
            steps.register(found, made, dict)
    with pytest.raises(RewardConfigError, match=r"version '1'; this guerdon reads '3'"):
        steps.upgrade({}, "1")


# Writing -------------------------------------------------------------------------------------


def test_what_is_written_is_short_and_reads_back():
    config = RewardConfig.from_yaml(FILE)
    assert RewardConfig.from_yaml(config.to_yaml()) == config
    told = config.to_dict()
    assert told["episode_end"][0] == {
        "name": "task_completion",
        "rubric": "coding_env.rubrics.TestPassRubric",
        "weight": 1.0,
        "config": {"partial_credit": True},
    }
    assert told["mcp_services"]["style_judge"] == {
        "type": "openai_llm", "endpoint": "http://localhost:8000", "model": "my-model",
    }  # fmt: skip


class Brief(Rubric):
    def forward(self, action, observation):
        return 1.0


def brief(action, observation):
    return 1.0


def test_a_class_and_a_function_are_written_by_their_path():
    config = RewardConfig(per_turn=[
        {"name": "a", "rubric": Brief}, {"name": "b", "rubric": brief},
    ])  # fmt: skip
    names = [entry["rubric"] for entry in config.to_dict()["per_turn"]]
    assert names == [f"{__name__}.Brief", f"{__name__}.brief"]


@pytest.mark.parametrize(
    "rubric", [Brief(), lambda action, observation: 1.0], ids=["object", "lambda"]
)
def test_what_a_file_cannot_name_is_not_written(rubric):
    config = RewardConfig(per_turn=[{"name": "a", "rubric": rubric}])
    with pytest.raises(RewardConfigError, match=r"a: rubric: it is .* which a file can't hold"):
        config.to_dict()


def test_what_stands_in_a_file_is_written_by_its_path_in_it(tmp_path):
    (tmp_path / "own.py").write_text("def scored(action, observation):\n    return 0.25\n")
    scored = load_object(f"{tmp_path / 'own.py'}:scored")
    written = RewardConfig(per_turn=[RubricEntry(name="a", rubric=scored)]).to_dict()
    assert written["per_turn"][0]["rubric"] == "own.py:scored"


def test_a_path_that_leads_elsewhere_is_not_written(monkeypatch):
    def scored(action, observation):
        return 0.25

    for module, name in (("__main__", "scored"), ("json", "dumps"), ("json", "loads.none")):
        scored.__module__, scored.__qualname__ = module, name
        monkeypatch.setattr("__main__.scored", scored, raising=False)
        with pytest.raises(RewardConfigError, match="which a file can't hold"):
            RewardConfig(per_turn=[RubricEntry(name="a", rubric=scored)]).to_dict()


def test_a_config_that_json_cannot_hold_is_not_written():
    entry = {"name": "a", "rubric": "b", "config": {"x": float("nan")}}
    with pytest.raises(RewardConfigError, match=r"a: config: a file can't hold it"):
        RewardConfig(per_turn=[entry]).to_dict()


NAMES = st.from_regex(r"[A-Z][A-Za-z0-9_-]{0,8}", fullmatch=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=8)
SCALARS |= st.sampled_from(["no", "1e-3", "012", "0o7", "1:30", "2026-11-22", ".nan", "~", "a: b"])
POINTS = st.lists(
    st.tuples(st.integers(0, 2**53), st.floats(0.1, 9)), min_size=2, max_size=4,
    unique_by=lambda point: point[0],
).map(lambda points: sorted(map(list, points)))  # fmt: skip
SCHEDULES = st.builds(
    lambda kind, points, by: {kind: points, "by": by},
    st.sampled_from(["piecewise", "cosine", "exponential", "step"]),
    POINTS,
    st.sampled_from(["episode", "training_step"]),
) | FINITE  # fmt: skip
ENTRIES = st.fixed_dictionaries(
    {"rubric": st.text(min_size=1, max_size=12).filter(str.strip)},
    optional={
        "weight": FINITE | st.integers(-(2**53), 2**53),
        "config": st.dictionaries(st.text(max_size=5), SCALARS | st.lists(SCALARS, max_size=3)),
        "schedule": SCHEDULES,
        "private": st.lists(st.text(max_size=5), max_size=2),
    },
)
SERVICES = st.fixed_dictionaries(
    {"type": st.just("openai_llm"), "endpoint": st.just("http://localhost:8000"),
     "model": st.text(min_size=1, max_size=9)},
    optional={"temperature": st.floats(0, 2), "prompt": st.text(min_size=1, max_size=20)},
) | st.just({"type": "mcp", "command": ["judge", "--port", "no"], "tool": "judge"})  # fmt: skip


@st.composite
def configs(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    entries = [draw(ENTRIES) | {"name": name} for name in names]
    cut = draw(st.integers(0, len(entries)))
    data = {"schema_version": "1.0", "per_turn": entries[:cut], "episode_end": entries[cut:]}
    data["normalize"] = draw(st.booleans())
    data["mcp_services"] = draw(st.dictionaries(NAMES, SERVICES, max_size=2))
    if draw(st.booleans()):
        first = {"name": "first", "weights": {names[0]: draw(FINITE)}, "until": {"episodes": 3}}
        data["curriculum"] = [first, {"name": "second"}]
    return data


@settings(deadline=None, max_examples=50)
@given(configs())
def test_a_configuration_survives_yaml_json_and_dict(data):
    config = RewardConfig.from_dict(data)
    assert RewardConfig.from_dict(config.to_dict()) == config
    assert RewardConfig.from_yaml(config.to_yaml()) == config
    assert RewardConfig.from_json(config.to_json()) == config
    assert RewardConfig.from_yaml(config.to_yaml()).to_dict() == config.to_dict()


def test_the_order_of_entries_is_kept():
    names = ["".join(each) for each in itertools.permutations("cab")]
    config = RewardConfig(per_turn=[{"name": name, "rubric": "x"} for name in names])
    assert [entry.name for entry in RewardConfig.from_yaml(config.to_yaml()).entries] == names
