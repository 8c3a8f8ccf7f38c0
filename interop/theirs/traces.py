"""Advantages at the tokens of their traces: ``python -m interop.theirs.traces``.

It runs in the interpreter with ``openenv``, with guerdon's source on its path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from openenv.core.harness.capture.contract import to_trace_entries
from openenv.core.harness.capture.graph import RolloutGraph, TurnNode

from guerdon import Rollout
from guerdon.credit import to_token_advantages
from guerdon.rollouts import AlignedRollout, apply_credit
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


def rollout_of(entries: list[dict[str, Any]]) -> Rollout:
    """Return the conversation that ends with the last entry's answer."""
    last = entries[-1]
    answer = last["response"]["choices"][0]["message"]
    return Rollout.from_row({"messages": [*last["request"]["messages"], answer]})


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
