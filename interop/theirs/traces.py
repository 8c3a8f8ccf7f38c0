"""Their traces as rollouts, and advantages at their tokens: ``python -m interop.theirs.traces``.

It runs in the interpreter with ``openenv``, with guerdon's source on its path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from openenv.core.harness import TrainingTrace
from openenv.core.harness.capture.contract import to_trace_entries
from openenv.core.harness.capture.graph import RolloutGraph, TurnNode

from guerdon import Rollout
from guerdon.credit import to_token_advantages
from guerdon.rollouts import (
    AlignedRollout,
    apply_credit,
    read_openenv_trace,
    to_training_trace,
)
from guerdon.rollouts import to_trace_entries as our_trace_entries
from interop.checks import check, main, same

ASKED = {"role": "user", "content": "Where is the key?"}
TURNS = {  # tokens of the prompt and those that were sampled, turn by turn
    "finds": [([1, 2, 3], [40, 41]), ([1, 2, 3, 40, 41, 4], [42, 43, 44])],
    "gives up": [([1, 2, 3], [50])],
}


def trace_entries(texts: list[tuple[list[int], list[int]]]) -> list[dict[str, Any]]:
    """Capture model calls as their proxy does, and return its entries."""
    graph, messages = RolloutGraph(), [ASKED]
    for number, (prompt, sampled) in enumerate(texts):
        answer = {"role": "assistant", "content": f"turn {number}"}
        graph.add_turn(
            TurnNode(
                node_id=str(number),
                prompt_ids=prompt,
                sampled_ids=sampled,
                sampled_logprobs=[-0.1] * len(sampled),
                request_messages=list(messages),
                response_message=answer,
            )
        )
        messages += [answer, {"role": "user", "content": "Go on."}]
    path = {"role": "agent", "node_ids": [str(number) for number in range(len(texts))]}
    return to_trace_entries(graph, {"sequences": [path]})


def rollout_of(entries: Any) -> Rollout:
    """Return the rollout of a trace."""
    [rollout] = read_openenv_trace(entries)
    return rollout


def without_ours(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return turns or entries without what guerdon adds to them."""
    for turn in turns:
        turn.pop("reward", None)
        turn["metadata"] = {**turn["metadata"]}
        for name in ("guerdon", "finish_reason"):
            turn["metadata"].pop(name, None)
    return turns


@check("read_openenv_trace, to_trace_entries: their entries → a rollout → the same entries")
def entries_and_back() -> None:
    """Read the entries of their capture proxy, write them, and let their class check them."""
    for turns in TURNS.values():
        rollout = rollout_of(trace_entries(turns))
        same("reward", rollout.columns["reward"], None)
        sampled = [step.step_info["completion_token_ids"] for step in rollout.to_step_data()]
        same("sampled tokens", sampled, [each for _, each in turns])
        written = our_trace_entries(rollout)
        TrainingTrace.from_entries(written)
        same("entries", without_ours(written), trace_entries(turns))


@check("read_openenv_trace, to_training_trace: their TrainingTrace → a rollout → the same trace")
def training_trace_and_back() -> None:
    """Read a model of their class, and validate what is written with it."""
    for turns in TURNS.values():
        trace = TrainingTrace.from_entries(trace_entries(turns))
        scored = {**rollout_of(trace).columns, "reward": 0.5, "group": "key"}
        written = TrainingTrace.model_validate(to_training_trace(Rollout.from_row(scored)))
        again = rollout_of(written.model_dump(mode="json"))
        same("columns", dict(again.columns), scored)
        same("turns", without_ours(written.model_dump()["turns"]), trace.model_dump()["turns"])


@check("to_token_advantages: each sampled token of a TraceEntry has its turn's advantage")
def tokens_of_traces() -> None:
    """Give two rollouts their credit, and spread it over the tokens of their entries."""
    traces = [trace_entries(turns) for turns in TURNS.values()]
    scored = [
        AlignedRollout(number, rollout_of(entries).to_step_data(), score, is_score_valid=True)
        for number, (entries, score) in enumerate(zip(traces, (1.0, 0.0), strict=True))
    ]
    credit = apply_credit(scored, "grpo", normalize="mean", group=lambda rollout: "key")
    entries = [entry for trace in traces for entry in trace]
    masks = [entry["loss_mask"] for entry in entries]
    mask = np.zeros((len(masks), max(map(len, masks))), int)
    for row, own in zip(mask, masks, strict=True):
        row[: len(own)] = own
    found = to_token_advantages(credit.advantage, mask)
    expected = [[0, 0, 0, 0.5, 0.5], [0] * 6 + [0.5] * 3, [0, 0, 0, -0.5]]
    padded = [[float(each) for each in row] + [0.0] * (9 - len(row)) for row in expected]
    same("advantages", found.tolist(), padded)
    counts = [len(entry["completion_token_ids"]) for entry in entries]
    same("tokens with an advantage", np.count_nonzero(found, axis=1).tolist(), counts)


if __name__ == "__main__":
    main()
