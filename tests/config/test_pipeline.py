"""`RewardPipeline`: a configuration that builds rubrics, with their services."""

import pytest

from guerdon import MCPClient, RewardConfig, RewardPipeline
from guerdon.errors import InvalidArgumentError

ENTRY = {"name": "polite", "rubric": "RegexMatch", "config": {"pattern": "please"}}
SERVICE = {"type": "openai_llm", "endpoint": "http://localhost:8000", "model": "m"}


def config(**more):
    return {"schema_version": "1.0", "per_turn": [ENTRY], **more}


def test_pipeline_of_accepts_config_dict_and_file(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(RewardConfig.from_dict(config()).to_yaml())
    pipeline = RewardPipeline.of(config())
    assert RewardPipeline.of(pipeline) is pipeline
    for given in (config(), RewardConfig.from_dict(config()), path, str(path)):
        assert RewardPipeline.of(given).config == pipeline.config
    with pytest.raises(InvalidArgumentError, match="`reward` must be"):
        RewardPipeline.of(5)


def test_pipeline_make_builds_a_new_tree_each_time():
    pipeline = RewardPipeline.of(config())
    one, two = pipeline.make(), pipeline.make()
    assert one is not two
    assert one.polite is not two.polite
    assert one.fingerprint() == two.fingerprint()


@pytest.mark.parametrize(
    "change", [{"model": "n"}, {"temperature": 0.5}, {"prompt": "Rate {action}"}], ids=str
)
def test_pipeline_fingerprint_includes_services(change):
    def fingerprint(service):
        with RewardPipeline.of(config(mcp_services={"judge": service})) as pipeline:
            return pipeline.make().fingerprint()

    assert fingerprint(SERVICE) == fingerprint(SERVICE) != fingerprint({**SERVICE, **change})


def test_pipeline_does_not_close_services_of_the_caller():
    with MCPClient({"judge": SERVICE}) as client:
        with RewardPipeline(RewardConfig.from_dict(config()), mcp=client) as pipeline:
            assert pipeline.mcp is client
        assert client.services == ("judge",)
