"""guerdon validate: every mistake in a reward's file."""

import json
import textwrap

import pytest

pytestmark = pytest.mark.edge  # real processes

GOOD = """\
schema_version: "1.0"
per_turn:
  - {name: polite, rubric: "reward.py:polite", weight: 0.5}
episode_end:
  - {name: judged, rubric: judged.Judged, config: {llm_service: style_judge}}
mcp_services:
  style_judge: {type: openai_llm, endpoint: "http://localhost:1", model: my-model}
"""

BAD = """\
schema_version: 1.0
per_turn:
  - {name: polite, rubric: "reward.py:polit", weight: .nan}
  - {name: polite, rubric: RegexMatch, config: {patern: x}}
episode_end:
  - {name: judged, rubric: judged.Judged, config: {llm_service: stile_judge}}
mcp_services:
  style_judge: {type: openai_llm, endpoint: "http://localhost:1"}
"""

JUDGED = """
    from dataclasses import dataclass

    from guerdon import Rubric

    print("imported")

    @dataclass
    class Config:
        llm_service: str

    class Judged(Rubric):
        def __init__(self, config: Config, mcp_client=None):
            super().__init__()

        def forward(self, action, observation):
            return 1.0
"""


@pytest.fixture(autouse=True)
def _files(rewards, tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "judged.py").write_text(textwrap.dedent(JUDGED))


def test_validate_prints_the_fingerprint_of_a_valid_file(guerdon):
    done = guerdon("validate", "good.yaml")
    assert (done.returncode, done.stderr) == (0, "imported\n")
    first, second = done.stdout.splitlines()
    assert first == "good.yaml: OK"
    assert second.startswith("reward ")
    assert guerdon("validate", "good.yaml").stdout == done.stdout


def test_validate_prints_all_mistakes_with_their_lines(guerdon):
    done = guerdon("validate", "bad.yaml")
    assert done.returncode == 1
    assert [line.split(": ")[:2] for line in done.stdout.splitlines()] == [
        ["bad.yaml:3", "per_turn[0].weight"],
        ["bad.yaml:3", "per_turn[0].rubric"],
        ["bad.yaml:4", "per_turn[1].name"],
        ["bad.yaml:4", "per_turn[1].config.patern"],
        ["bad.yaml:4", "per_turn[1].config.pattern"],
        ["bad.yaml:6", "episode_end[0].config.llm_service"],
        ["bad.yaml:8", "mcp_services.style_judge.model"],
    ]
    assert "did you mean 'polite'?" in done.stdout
    assert "did you mean 'style_judge'?" in done.stdout


def test_validate_prints_json(guerdon):
    data = json.loads(guerdon("validate", "good.yaml", "--json").stdout)
    assert data["ok"] is True
    assert data["problems"] == []
    assert data["fingerprint"]
    done = guerdon("validate", "bad.yaml", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["ok"], data["fingerprint"]) == (1, False, None)
    assert len(data["problems"]) == 7


def test_validate_reports_another_version(guerdon, tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD.replace("1.0", "2.0"))
    done = guerdon("validate", "good.yaml")
    assert done.returncode == 1
    assert done.stdout == "good.yaml:1: schema_version: must be '1.0', got \"2.0\"\n"


def test_validate_reports_invalid_yaml_with_its_line(guerdon, tmp_path):
    (tmp_path / "good.yaml").write_text("a: 1\nb:\n\tc: 1\n")
    done = guerdon("validate", "good.yaml")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("good.yaml:3: indentation must consist of spaces, got a tab")


def test_validate_fails_on_a_missing_file(guerdon):
    done = guerdon("validate", "absent.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: absent.yaml: No such file or directory" in done.stderr


def test_validate_escapes_control_characters(guerdon, tmp_path):
    (tmp_path / "good.yaml").write_text('per_turn: []\n"\\e[2J": 1\nschema_version: "1.0"\n')
    done = guerdon("validate", "good.yaml")
    assert "\x1b" not in done.stdout
    assert "x1b[2J" in done.stdout


@pytest.mark.edge
def test_validate_score_and_diff_warn_once_of_a_missing_version(guerdon, tmp_path):
    text = GOOD.partition("\n")[2].partition("episode_end")[0]
    (tmp_path / "good.yaml").write_text(f"normalize: false\n{text}")
    rows = '{"messages": [{"role": "assistant", "content": "please"}]}\n' * 3
    (tmp_path / "rows.jsonl").write_text(rows)
    warning = "warning: good.yaml has no schema_version and is read as version 1.0; add"
    for args in (
        ["validate", "good.yaml"],
        ["score", "rows.jsonl", "-r", "good.yaml", "-w", "2"],
        ["diff", "good.yaml", "good.yaml", "rows.jsonl"],
    ):
        done = guerdon(*args)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("schema_version") == 2  # as it names it twice
        assert done.stderr.startswith(warning)


@pytest.mark.parametrize("name", ["a\\0b.py:x", "\\ud800.py:x", "\\ud800"])
def test_validate_reports_names_that_no_file_can_have(guerdon, tmp_path, name):
    name = name.replace("\\0", "\\u0000")
    entry = f'{{"name": "{name}", "rubric": "{name}"}}'
    text = f'{{"schema_version": "1.0", "per_turn": [{entry}]}}'
    (tmp_path / "odd.json").write_text(text)
    done = guerdon("validate", "odd.json")
    assert (done.returncode, done.stderr) == (1, "")
    assert "odd.json:1: per_turn[0].rubric: " in done.stdout


@pytest.mark.parametrize(
    "rubric", ["Unknown{}", "a.{}" + "b" * 150, "RegexMatch, config: {{x: 1}}"]
)
def test_validate_prints_a_bounded_number_of_mistakes(guerdon, tmp_path, rubric):
    entries = [f"  - {{name: n{n}, rubric: {rubric.format(n)}}}\n" for n in range(4000)]
    (tmp_path / "many.yaml").write_text(f'schema_version: "1.0"\nper_turn:\n{"".join(entries)}')
    done = guerdon("validate", "many.yaml")
    *lines, last = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (1, 50)
    assert last in ("and 3,950 more problems", "and 7,950 more problems")


def test_validate_runs_no_function_of_python(guerdon, tmp_path):
    (tmp_path / "run.yaml").write_text(
        'schema_version: "1.0"\nper_turn:\n'
        '  - {name: run, rubric: builtins.exec, config: {source: \'open("ran", "w")\'}}\n'
    )
    done = guerdon("validate", "run.yaml")
    assert (done.returncode, (tmp_path / "ran").exists()) == (1, False)
    assert "run.yaml:3: per_turn[0].rubric: must not be in Python's standard" in done.stdout
