"""Hypothesis strategies: rollouts with everything that the formats have a place for."""

import json

from hypothesis import strategies as st

texts = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
parts = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.just({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
    | st.just({"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}),
    max_size=2,
)
contents = texts | st.none() | parts
arguments = (
    st.dictionaries(texts, json_values, max_size=2).map(json.dumps)
    | st.dictionaries(texts, json_values, max_size=2).map(lambda each: json.dumps(each, indent=1))
    | texts
)
rewards = st.none() | st.floats(-1, 1)


@st.composite
def assistant_turns(draw, number):
    """An assistant message with calls, and the answers of the tools."""
    message = {"role": "assistant", "content": draw(contents)}
    message |= draw(st.sampled_from([{}, {"reasoning_content": "Hm."}, {"name": "ann"}]))
    ids = [f"call_{number}_{place}" for place in range(draw(st.integers(0, 2)))]
    if ids:
        message["tool_calls"] = [
            {"id": each, "type": "function",
             "function": {"name": "look", "arguments": draw(arguments)}} for each in ids
        ]  # fmt: skip
    answered = draw(st.permutations(ids))
    answers = [{"role": "tool", "tool_call_id": each, "content": draw(contents)}
               for each in answered]  # fmt: skip
    return [message, *answers]


@st.composite
def tokens(draw, whole):
    """The tokens of a turn; all of them if they are `whole`."""
    prompt = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))
    sampled = draw(st.lists(st.integers(0, 99), max_size=3))
    mask = [0] * len(prompt) + [draw(st.integers(0, 1)) for _ in sampled]
    logprobs = [draw(st.floats(-5, 0)) for _ in sampled]
    found = {"prompt_token_ids": prompt, "completion_token_ids": sampled,
             "logprobs": logprobs, "loss_mask": mask}  # fmt: skip
    if whole or draw(st.booleans()):
        return found
    return draw(st.sampled_from([None, {"completion_token_ids": sampled, "logprobs": logprobs}]))


@st.composite
def rows(draw, whole=False):
    """A row of a rollout, with a column `reward`."""
    messages = draw(
        st.lists(
            st.builds(
                lambda role, content: {"role": role, "content": content},
                st.sampled_from(["system", "developer", "user"]), contents,
            ),
            max_size=2,
        )
    )  # fmt: skip
    turns = draw(st.integers(1, 3))
    for number in range(turns):
        messages += draw(assistant_turns(number))
        if draw(st.booleans()):
            messages.append({"role": "user", "content": draw(contents)})
    first = draw(st.integers(0, turns - 1))
    row = {"id": draw(texts), "group": draw(json_values), "reward": draw(rewards), "truth": "42",
           "messages": messages}  # fmt: skip
    if first:
        row["first_turn"] = first
    if whole or draw(st.booleans()):
        row["turn_tokens"] = [draw(tokens(whole)) for _ in range(turns - first)]
        if not any(row["turn_tokens"]):
            del row["turn_tokens"]
    if draw(st.booleans()):
        row["tools"] = [{"type": "function", "function": {"name": "look"}}]
    return row
