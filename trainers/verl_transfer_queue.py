"""``python -m trainers.verl_transfer_queue``: verl's worker, replay buffer and trainer with ray.

The agent loop and the trainer of `trainers.verl_extension` on verl's TransferQueue, without a GPU:
a client gives the answers of the model. Of three prompts, one has a rollout whose reward fails.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ["VERL_USE_EXTERNAL_MODULES"] = "trainers.verl_extension"  # of all processes

import ray
import transfer_queue
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls

from guerdon.credit import StepBatch, gigpo
from trainers.locks import Lock, Turn
from trainers.verl_worker import Client, make_batch, make_config, make_tokenizer

# The answers of each rollout by seed. The digit 9 breaks the scale, so verl replaces its prompt.
PLAYS = {
    37: [["3", "5", "7"], ["3", "7"]],
    12: [["1", "2"], ["9"]],
    44: [["4", "4"], ["5", "4", "4"]],
}
FAILED, REPLACEMENT = 12, 44
SETTINGS = (
    "trainer.v1.trainer_mode=gigpo", "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.rollout.n=2", "algorithm.rollout_correction.bypass_mode=True",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)  # fmt: skip


def expected() -> dict[str, list[float]]:
    """Return the advantages of the steps of each rollout, played without verl, by its answers."""
    rows = defaultdict[str, list[Any]](list)
    for seed in (37, REPLACEMENT):
        for answers in PLAYS[seed]:
            lock = Lock()
            seen = lock.reset(seed)
            for number, answer in enumerate(answers):
                rows["state"].append(seen.text)
                seen = lock.step(Turn(digit=int(answer)))
                rows["rewards"].append(seen.reward)
                rows["trajectory"].append(" ".join(answers))
                rows["step"].append(number)
                rows["group"].append(seed)
    credit = gigpo(StepBatch.from_arrays(**rows), gamma=0.95)
    found = defaultdict[str, list[float]](list)
    for answers, advantage in zip(rows["trajectory"], credit.advantage.tolist(), strict=True):
        found[answers].append(advantage)
    return found


def make_trainer(folder: Path) -> Any:
    """Return verl's trainer with an agent loop manager, and without the workers that need a GPU.

    Args:
        folder: Where the tokenizer is written.
    """
    config = make_config(folder, *SETTINGS)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    transfer_queue.init(config.transfer_queue)
    trainer = get_trainer_cls("gigpo")(config)
    trainer.global_steps = 1
    trainer._next_train_batch = lambda prompts: make_batch([REPLACEMENT] * prompts, "lock")
    trainer.agent_loop_manager = AgentLoopManagerTQ.create(config=config, llm_client=Client(PLAYS))
    return trainer


def stored(batch: Any) -> dict[str, list[float]]:
    """Return the advantages in the queue by the answers of a rollout."""
    tags = zip(batch.keys, batch.tags, strict=True)
    keys = sorted(key for key, tag in tags if not tag.get("is_padding"))
    fields = ["responses", "advantages"]
    data = transfer_queue.kv_batch_get(keys, batch.partition_id, fields)
    tokenizer = make_tokenizer()
    answers, advantages = defaultdict[str, list[str]](list), defaultdict[str, list[float]](list)
    for key, tokens, of_tokens in zip(keys, *(data[name].unbind() for name in fields), strict=True):
        rollout = key.rsplit("_", 1)[0]
        answers[rollout].append(tokenizer.decode(tokens, skip_special_tokens=True))
        [advantage] = set(of_tokens.tolist())  # the same for all tokens of an action
        advantages[rollout].append(advantage)
    return {" ".join(answers[rollout]): advantages[rollout] for rollout in answers}


def main() -> None:
    """Play, compute advantages, and compare them with those of `gigpo`."""
    start = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(Path(folder))
        started = perf_counter() - start
        trainer._submit_batch_to_rollout(make_batch([37, FAILED], "lock"))
        batch, metrics = trainer.replay_buffer.sample(1, "train", batch_size=2)
    played = perf_counter() - start
    batch = upsample_batch_to_divisible_size(batch, 8, make_tokenizer().eos_token_id)
    trainer._compute_advantage(trainer._compute_old_log_prob(batch, {}), {})
    found, wanted = stored(batch), expected()
    transfer_queue.close()
    ray.shutdown()
    if found.keys() != wanted.keys() or metrics["training/rollout_failure/evicted_samples"] != 1:
        raise AssertionError(f"the wrong rollouts: {list(found)}, {metrics}")
    pairs = (zip(found[answers], wanted[answers], strict=True) for answers in wanted)
    difference = max(abs(a - b) for pair in pairs for a, b in pair)
    if difference > 1e-6:
        raise AssertionError(f"the advantages differ by {difference}")
    print(
        f"verl, TransferQueue: started in {started:.0f} s, played in {played - started:.0f} s, "
        f"advantages differ from those of gigpo by {difference:.1e}"
    )


if __name__ == "__main__":
    main()
