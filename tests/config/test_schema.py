"""`RewardConfig`: reading files, and reporting every mistake with its line."""

import contextlib
import copy
import itertools
import logging
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import RewardPipeline, Rubric
from guerdon._loading import (
    load_object,
)
from guerdon._problems import Problem
from guerdon.config.builder import check_document
from guerdon.config.loader import Document
from guerdon.config.schedules import PiecewiseLinearSchedule
from guerdon.config.schema import RewardConfig, RubricEntry
from guerdon.errors import RewardConfigError

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


def test_from_file_reads_yaml(tmp_path):
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
    assert config.folder == tmp_path


def test_from_file_reads_json(tmp_path):
    path = tmp_path / "reward.json"
    path.write_text(RewardConfig.from_yaml(FILE).to_json())
    assert RewardConfig.from_file(path) == RewardConfig.from_yaml(FILE)


def test_reward_config_accepts_entries():
    entry = RubricEntry(name="brief", rubric=len, weight=2, schedule=[[0, 1], [9, 0]])
    config = RewardConfig(per_turn=[entry], normalize=False)
    assert config.per_turn == (entry,)
    assert isinstance(entry.schedule, PiecewiseLinearSchedule)
    assert type(entry.weight) is float


def test_rubric_entry_accepts_name_rubric_and_weight_by_position():
    entry = RubricEntry("format", "RegexMatch", 0.5, config={"pattern": "a"})
    assert (entry.name, entry.rubric, entry.weight) == ("format", "RegexMatch", 0.5)
    with pytest.raises(TypeError, match="only name, rubric, weight are positional, got 4"):
        RubricEntry("format", "RegexMatch", 0.5, {})


def test_reward_config_can_be_copied_and_pickled():
    config = RewardConfig.from_yaml(FILE)
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config
        assert other.error([Problem(("per_turn", 0, "weight"), "x")]).problems == (
            "line 6: per_turn[0].weight: x",
        )


def test_reward_config_is_immutable():
    config = RewardConfig.from_yaml(FILE)
    with pytest.raises(ValueError, match=r"frozen"):
        config.normalize = True
    with pytest.raises(ValueError, match=r"frozen"):
        config.per_turn[0].weight = 3.0


# Mistakes ------------------------------------------------------------------------------------

# The number of a line, its replacement, and a part of the message.
MUTATIONS = [
    (2, "normalize: no", 'normalize: must be true or false, got "no"'),
    (2, "normalize: 1", "normalize: must be true or false, got 1"),
    (2, "normalise: true", "normalise: unknown key; did you mean 'normalize'?"),
    (3, "per_trun:", "per_trun: unknown key; did you mean 'per_turn'?"),
    (4, "  - naem: toxicity_check", "per_turn[0].naem: unknown key; did you mean 'name'?"),
    (4, "  - nam: toxicity_check", "per_turn[0].name: is required"),
    (4, "  - name: code_style", "must be unique; per_turn[0] is also named 'code_style'"),
    (4, "  - name: a b", "per_turn[0].name: must consist of up to 100 letters"),
    (4, "  - name: a.b", "must consist of up to 100 letters"),
    (4, "  - name: forward", "per_turn[0].name: must not be 'forward', which is an attribute of"),
    (4, "  - name: weights", "which is an attribute of RubricComposer"),
    (4, "  - name: 1.0", "name: must be a string, got 1.0; write it in quotes"),
    (4, "  - name:", "per_turn[0].name: must be a string, got null"),
    (5, "    rubric: 3", "per_turn[0].rubric: must be a registered name, a class path such as"),
    (5, "    rubric: ' '", "per_turn[0].rubric: must be a registered name"),
    (5, "    rubrik: x", "per_turn[0].rubrik: unknown key; did you mean 'rubric'?"),
    (6, "    weight: .nan", "per_turn[0].weight: .nan is not a finite number"),
    (6, "    weight: nan", 'per_turn[0].weight: must be a finite number, got "nan"'),
    (6, "    weight: '1'", 'per_turn[0].weight: must be a finite number, got "1"'),
    (6, "    weight: 1_000", 'must be a finite number, got "1_000"'),
    (6, "    weight: 1:30", 'must be a finite number, got "1:30"'),
    (6, "    weight: true", "per_turn[0].weight: must be a finite number, got true"),
    (6, "    weight: yes", 'per_turn[0].weight: must be a finite number, got "yes"'),
    (6, "    weight:", "per_turn[0].weight: must be a finite number, got null"),
    (6, "    weight: [1]", "per_turn[0].weight: must be a finite number, got a list"),
    (6, "    weight: 012", "'012' is ambiguous"),
    (6, "    wieght: 1.0", "per_turn[0].wieght: unknown key; did you mean 'weight'?"),
    (6, "    name: other", "per_turn[0].name: duplicate key, first on line 4"),
    (9, "    private: threshold", 'per_turn[0].private: must be a list, got "threshold"'),
    (9, "    private: [1]", "per_turn[0].private[0]: must be a string, got 1"),
    (28, "  - task", 'curriculum[1]: must be a mapping, got "task"'),
    (28, "  - {weights: {}}", "curriculum[1].name: is required"),
    (16, "    config: [x]", "episode_end[1].config: must be a mapping, got a list"),
    (16, "    config:", "episode_end[1].config: must be a mapping, got null"),
    (18, "      piecewise: [[0, 1.0], [9, 1.0], [5, 0.0]]", "piecewise[2][0]: positions must"),
    (18, "      pieces: [[0, 1.0], [9, 1.0]]", "pieces: unknown kind of schedule; did you"),
    (20, "  style judge:", "mcp_services['style judge']: must consist of up to 100 letters"),
    (21, "    type: openai", 'mcp_services.style_judge.type: unknown type "openai"; did you mean'),
    (21, "    tipe: openai_llm", "style_judge.tipe: unknown key; did you mean 'type'?"),
    (22, "    endpoint: localhost", "mcp_services.style_judge.endpoint: "),
    (22, "    endpont: http://x", "endpont: unknown key; did you mean 'endpoint'"),
    (23, "    commnd: x", "style_judge.commnd: unknown key; known: 'api_key_env', 'concurrency'"),
    (23, "    model: 3.5", "model: must be a string, got 3.5; write it in quotes"),
    (26, "    weights: {code_stile: 0.0}", "unknown entry 'code_stile'; did you mean 'code_style'"),
    (26, "    weights: {code_style: x}", 'weights.code_style: must be a finite number'),
    (27, "    until: {episode: 100}", "curriculum[0].until.episode: unknown key; did you"),
    (27, "    until: {component: task, mean_above: 0, over: 3}", "unknown entry 'task'"),
    (28, "  - nome: second", "curriculum[1].nome: unknown key; did you mean 'name'?"),
]  # fmt: skip


IDS = [f"{line} {instead.strip()}" for line, instead, _ in MUTATIONS]


@pytest.mark.parametrize(("line", "instead", "message"), MUTATIONS, ids=IDS)
def test_from_yaml_reports_a_mistake_with_its_line_and_what_is_accepted(line, instead, message):
    found = problems(with_line(line, instead))
    at_line = [each for each in found if each.startswith(f"line {line}: ")]
    # Duplicate names are reported where the second is.
    assert any(message in each for each in (found if "must be unique" in message else at_line)), (
        found
    )


KEYS = {
    1: "schema_version", 2: "normalize", 4: "name", 5: "rubric", 6: "weight", 7: "config",
    9: "private", 14: "rubric", 15: "weight", 17: "schedule", 18: "piecewise", 21: "type",
    22: "endpoint", 23: "model", 26: "weights", 27: "until",
}  # fmt: skip


@given(st.sampled_from(sorted(KEYS)), st.text("abcdefgh", min_size=1, max_size=12))
def test_from_yaml_reports_every_misspelt_key_with_its_line(line, key):
    text = FILE.splitlines()[line - 1].replace(KEYS[line], "q" + key, 1)
    assert any(each.startswith(f"line {line}: ") for each in problems(with_line(line, text)))


@given(st.sampled_from(sorted(KEYS)), st.sampled_from(["[[]]", ".nan", "!x y", "[{}]"]))
def test_from_yaml_reports_every_value_of_another_type_with_its_line(line, value):
    text = FILE.splitlines()[line - 1].partition(":")[0]
    lines = with_line(line, f"{text}: {value}").splitlines()
    depth = len(text) - len(text.lstrip(" -"))
    while line < len(lines) and len(lines[line]) - len(lines[line].lstrip(" ")) > depth:
        del lines[line]  # its nested lines
    assert any(each.startswith(f"line {line}: ") for each in problems("\n".join(lines)))


def test_from_file_reports_all_mistakes_in_the_order_of_the_file(tmp_path):
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


@pytest.mark.parametrize("key", ["self", "given", 1])
def test_from_dict_reports_a_key_that_no_field_of_an_entry_has(key):
    with pytest.raises(RewardConfigError, match=rf"per_turn\[0\]\W*{key}"):
        RewardConfig.from_dict({"per_turn": [{"name": "a", "rubric": "RegexMatch", key: 1}]})


@given(st.dictionaries(st.sampled_from([*PLACES, "self", "data", 1]), ODD))
def test_from_dict_accepts_any_data_or_reports_why_not(data):
    with contextlib.suppress(RewardConfigError):
        RewardConfig.from_dict(data)
    for problem in check_document(Document(data)) if data.keys() <= set(PLACES[:-1]) else ():
        assert problem.message


def test_from_dict_reports_places_without_lines():
    found = problems({"schema_version": "1.0", "per_turn": [{"name": "a"}]}, RewardConfig.from_dict)
    assert found == ["per_turn[0].rubric: is required"]
    with pytest.raises(RewardConfigError, match=r"normalize: must be true or false, got 3"):
        RewardConfig(per_turn=[{"name": "a", "rubric": "b"}], normalize=3)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), True, "1", None])
def test_rubric_entry_requires_a_finite_weight(weight):
    with pytest.raises(RewardConfigError, match=r"per_turn\[0\]\.weight: must be a finite number"):
        RewardConfig(per_turn=[{"name": "a", "rubric": "b", "weight": weight}])
    with pytest.raises(ValueError, match=r"weight"):
        RubricEntry(name="a", rubric="b", weight=weight)


@pytest.mark.parametrize("text", ["[]", "3", "per_turn", "[{name: a}]"])
def test_from_yaml_requires_a_mapping(text):
    assert "must be a mapping" in problems(text)[-1]


@pytest.mark.parametrize("text", ["normalize: true", "per_turn: []\nepisode_end: []"])
def test_from_yaml_requires_an_entry(text):
    assert problems(text) == ["line 1: must have at least one entry in per_turn or episode_end"]


def test_reward_config_without_entries_can_be_extended_before_a_reward_is_built():
    config = RewardConfig()
    assert config.entries == ()
    with pytest.raises(RewardConfigError, match="must have at least one entry in per_turn or"):
        RewardPipeline(config).make()
    extended = config.model_copy(update={"per_turn": [RubricEntry("sum", "NumericAnswer")]})
    assert extended == RewardConfig(per_turn=[RubricEntry("sum", "NumericAnswer")])
    assert list(RewardPipeline(extended).make().named_children()) != []


def test_reward_config_model_copy_checks_the_fields_and_keeps_the_folder(tmp_path):
    (tmp_path / "reward.yaml").write_text(FILE)
    config = RewardConfig.from_file(tmp_path / "reward.yaml")
    assert config.model_copy() == config
    assert config.model_copy(update={"normalize": True}).folder == tmp_path
    with pytest.raises(RewardConfigError, match=r"per_turn\[1\].name: must be unique"):
        config.model_copy(update={"per_turn": [RubricEntry("a", "b"), RubricEntry("a", "b")]})


# Versions ------------------------------------------------------------------------------------

ENTRY = "per_turn: [{name: a, rubric: b}]\n"


@pytest.mark.parametrize("written", ["1.0", "'1.0'", '"1.0"'])
def test_schema_version_is_accepted_with_quotes_or_without(written, caplog):
    assert RewardConfig.from_yaml(f"schema_version: {written}\n{ENTRY}").schema_version == "1.0"
    assert caplog.records == []


def test_schema_version_is_accepted_as_a_number():
    data = {"schema_version": 1.0, "per_turn": [{"name": "a", "rubric": "b"}]}
    assert RewardConfig.from_dict(data).schema_version == "1.0"
    text = '{"schema_version": 1.0, "per_turn": [{"name": "a", "rubric": "b"}]}'
    assert RewardConfig.from_json(text).schema_version == "1.0"


@pytest.mark.parametrize("written", ["2.0", "1.10", "1", '"1.1"', "1.00", "v1.0"])
def test_schema_version_other_than_the_present_is_refused(written):
    with pytest.raises(RewardConfigError) as caught:
        RewardConfig.from_yaml(f"\nschema_version: {written}\nper_turn: 3")
    version = written.strip('"')
    message = f"schema_version: must be '1.0', got \"{version}\""
    assert caught.value.problems == (f"line 2: {message}",)


@pytest.mark.parametrize("written", ["", "[1.0]", "true"])
def test_schema_version_must_be_a_string(written):
    with pytest.raises(RewardConfigError, match=r"schema_version: must be '1.0', got"):
        RewardConfig.from_yaml(f"schema_version: {written}\n{ENTRY}")


def test_missing_schema_version_logs_a_warning_once_per_file(caplog, tmp_path):
    (tmp_path / "reward.yaml").write_text(ENTRY)
    with caplog.at_level(logging.WARNING, "guerdon"):
        config = RewardConfig.from_file(tmp_path / "reward.yaml")
        RewardConfig.from_file(tmp_path / "reward.yaml")
    assert config.schema_version == "1.0"
    (record,) = caplog.records  # once a file
    message = "reward.yaml has no schema_version and is read as version 1.0; add"
    assert message in record.getMessage()


def test_reward_config_needs_no_schema_version_in_code(caplog):
    RewardConfig(per_turn=[RubricEntry(name="a", rubric="b")])
    assert caplog.records == []
    with pytest.raises(RewardConfigError):
        RewardConfig(per_turn=[RubricEntry(name="a", rubric="b")], schema_version="3")


# Writing -------------------------------------------------------------------------------------


def test_to_yaml_is_short_and_read_back():
    config = RewardConfig.from_yaml(FILE)
    assert RewardConfig.from_yaml(config.to_yaml()) == config
    data = config.to_dict()
    assert data["episode_end"][0] == {
        "name": "task_completion",
        "rubric": "coding_env.rubrics.TestPassRubric",
        "weight": 1.0,
        "config": {"partial_credit": True},
    }
    assert data["mcp_services"]["style_judge"] == {
        "type": "openai_llm", "endpoint": "http://localhost:8000", "model": "my-model",
    }  # fmt: skip


class Brief(Rubric):
    def forward(self, action, observation):
        return 1.0


def brief(action, observation):
    return 1.0


def test_to_dict_writes_classes_and_functions_by_their_path():
    config = RewardConfig(per_turn=[
        {"name": "a", "rubric": Brief}, {"name": "b", "rubric": brief},
    ])  # fmt: skip
    names = [entry["rubric"] for entry in config.to_dict()["per_turn"]]
    assert names == [f"{__name__}.Brief", f"{__name__}.brief"]


@pytest.mark.parametrize(
    "rubric", [Brief(), lambda action, observation: 1.0], ids=["object", "lambda"]
)
def test_to_dict_refuses_what_a_file_cannot_name(rubric):
    config = RewardConfig(per_turn=[{"name": "a", "rubric": rubric}])
    with pytest.raises(RewardConfigError, match=r"a: rubric: a file can't contain"):
        config.to_dict()


def test_to_dict_writes_a_function_of_a_file_by_its_path(tmp_path):
    (tmp_path / "own.py").write_text("def scored(action, observation):\n    return 0.25\n")
    scored = load_object(f"{tmp_path / 'own.py'}:scored")
    written = RewardConfig(per_turn=[RubricEntry(name="a", rubric=scored)]).to_dict()
    assert written["per_turn"][0]["rubric"] == "own.py:scored"


def test_to_dict_refuses_a_path_that_leads_elsewhere(monkeypatch):
    def scored(action, observation):
        return 0.25

    for module, name in (("__main__", "scored"), ("json", "dumps"), ("json", "loads.none")):
        scored.__module__, scored.__qualname__ = module, name
        monkeypatch.setattr("__main__.scored", scored, raising=False)
        with pytest.raises(RewardConfigError, match="a file can't contain"):
            RewardConfig(per_turn=[RubricEntry(name="a", rubric=scored)]).to_dict()


def test_to_dict_refuses_a_config_that_json_cannot_represent():
    entry = {"name": "a", "rubric": "b", "config": {"x": float("nan")}}
    with pytest.raises(RewardConfigError, match=r"a: config: a file can't contain it"):
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


@settings(max_examples=50)
@given(configs())
def test_reward_config_survives_yaml_json_and_dict(data):
    config = RewardConfig.from_dict(data)
    assert RewardConfig.from_dict(config.to_dict()) == config
    assert RewardConfig.from_yaml(config.to_yaml()) == config
    assert RewardConfig.from_json(config.to_json()) == config
    assert RewardConfig.from_yaml(config.to_yaml()).to_dict() == config.to_dict()


def test_to_yaml_keeps_the_order_of_entries():
    names = ["".join(each) for each in itertools.permutations("cab")]
    config = RewardConfig(per_turn=[{"name": name, "rubric": "x"} for name in names])
    assert [entry.name for entry in RewardConfig.from_yaml(config.to_yaml()).entries] == names
