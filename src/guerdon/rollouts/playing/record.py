"""`RolloutRecord`: a recorded episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from guerdon.rollouts.json_forms import as_json
from guerdon.types.agents import AGENT, AGENT_REWARDS
from guerdon.types.message import Message
from guerdon.types.observation import TRUNCATED
from guerdon.types.rollout import Rollout, StepData

__all__ = ["RolloutRecord"]

Ending: TypeAlias = Literal["done", "max_steps", "terminate", "pattern", "error"]


@dataclass(slots=True)
class RolloutRecord:
    """An episode that `RLRolloutWorker` played.

    Each step is one assistant turn of the conversation. Its ``step_info`` contains
    ``assistant_turn_index`` (the number of that turn in the conversation, from 0, counting
    examples at the beginning), ``env_reward`` (the environment's reward, or None),
    ``env_metadata`` (other data of the environment), ``policy_info`` (other data of the policy),
    ``group``, ``truncated`` (true) on a last step with which the environment ended the episode for
    another reason than its own, ``error`` on a step that failed, ``episode_error`` on the last step
    if something failed after it, and on the first step ``reset_metadata`` (other data of the
    reset). With several agents, it also contains ``agent`` (the one that acted) and
    ``agent_rewards`` (the reward of each by name; None on a step that failed).
    ``is_done`` is true on a last step with which the environment or the policy ended the episode,
    and on no other: an episode that was cut off isn't done.

    Example:
        >>> from guerdon import Message, StepData
        >>> from guerdon.rollouts import RolloutRecord
        >>> record = RolloutRecord("q7-0", group="q7", ground_truth="42")
        >>> record.messages.append(Message(role="assistant", content="42"))
        >>> record.steps.append(StepData(system_step_index=0, step_info={"env_reward": 1.0}))
        >>> record.ended = "done"
        >>> record.to_row()["messages"], record.env_rewards
        ([{'role': 'assistant', 'content': '42'}], [1.0])

    Attributes:
        id: Its name.
        group: The group of episodes of the same task and seed.
        steps: The steps, in order.
        messages: The whole conversation.
        ground_truth: The task's answer, if it is known.
        ended: Why the episode ended: ``done`` (by the environment), ``terminate`` (by the
            policy), ``pattern`` (the output matched the stop pattern), ``max_steps``, or
            ``error``.
        error: What failed; None unless `ended` is ``error``.
        seed: The seed of the environment's reset; None if the reset accepts none.
        columns: Other columns of the task, which rows have, too.
        first_turn: The number of assistant turns that the conversation began with; the first step
            is the turn of that number.
    """

    id: str
    group: Any = None
    steps: list[StepData] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    ground_truth: Any = None
    ended: Ending = "error"
    error: str | None = None
    seed: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    first_turn: int = 0

    @property
    def env_rewards(self) -> list[float | None]:
        """The environment's own rewards, one for each step; None for a step without one."""
        return [step.step_info.get("env_reward") for step in self.steps]

    @property
    def truncated(self) -> bool:
        """Whether the environment ended the episode for another reason than its own."""
        return any(step.step_info.get(TRUNCATED) is True for step in self.steps)

    def to_rollout(self) -> Rollout:
        """Return the episode as a rollout, ready to be scored.

        Raises:
            RolloutError: The episode has no turn.
        """
        return Rollout.from_row(self.to_row())

    def to_row(self) -> dict[str, Any]:
        """Return the episode as a row of JSONL, which ``guerdon score`` and `Rollout` read."""
        row: dict[str, Any] = {
            **self.columns,
            "id": self.id,
            "group": self.group,
            "messages": [message.to_openai() for message in self.messages],
            "ended": self.ended,
            "error": self.error,
            "seed": self.seed,
            "env_rewards": self.env_rewards,
            "first_turn": self.first_turn,
        }
        if any(AGENT in step.step_info for step in self.steps):
            row["agents"] = [step.step_info.get(AGENT) for step in self.steps]
            row[AGENT_REWARDS] = [step.step_info.get(AGENT_REWARDS) for step in self.steps]
        if self.truncated:
            row[TRUNCATED] = True
        if self.ground_truth is not None:
            row["ground_truth"] = self.ground_truth
        return {name: as_json(value) for name, value in row.items()}
