"""A reward file: the number of words, and the answer."""

REWARD = """
schema_version: "1.0"
per_turn:
  - {name: words, rubric: "rubrics.py:Words", weight: 0.25}
episode_end:
  - {name: correct, rubric: NumericAnswer, weight: 1.0%s}
normalize: false
"""
WORDS = """
from guerdon import Rubric
class Words(Rubric):
    def forward(self, action, observation):
        return float(len(action.content.split()))
"""


def write_reward(folder, extra=""):
    """Write a reward file into a folder, and return its path."""
    (folder / "rubrics.py").write_text(WORDS)
    path = folder / "reward.yaml"
    path.write_text(REWARD % extra)
    return path
