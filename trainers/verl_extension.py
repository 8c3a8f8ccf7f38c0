"""A module of ``VERL_USE_EXTERNAL_MODULES``: an agent loop and a trainer for verl."""

from functools import partial

from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from guerdon.credit import gigpo
from guerdon.integrations.verl import StepCredit, agent_loop
from trainers.locks import Lock

agent_loop(Lock, name="lock")


@register_trainer("gigpo")
class GiGPOTrainer(StepCredit, PPOTrainerSync):
    """verl's synchronous trainer with the advantages of GiGPO."""

    method = partial(gigpo, gamma=0.95)
