"""Playing rollouts: policies, and the worker that plays them in an environment."""

from guerdon.rollouts.playing.openai_policy import OpenAIPolicy
from guerdon.rollouts.playing.policies import (
    AgentPolicy,
    PolicyOutput,
    ReplayPolicy,
    ScriptedPolicy,
)
from guerdon.rollouts.playing.record import RolloutRecord
from guerdon.rollouts.playing.worker import RLRolloutWorker

__all__ = [
    "AgentPolicy",
    "OpenAIPolicy",
    "PolicyOutput",
    "RLRolloutWorker",
    "ReplayPolicy",
    "RolloutRecord",
    "ScriptedPolicy",
]
