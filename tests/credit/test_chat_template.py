"""Advantages at tokens of conversations with tools, by a real tokenizer and its chat template."""

import json

import numpy as np
import pytest

from guerdon import Rollout
from guerdon.credit import to_token_advantages
from guerdon.rollouts import AlignedRollout, apply_credit

jinja2 = pytest.importorskip("jinja2")
tokenizers = pytest.importorskip("tokenizers")

# ChatML, with tools in the system message, calls as JSON between tags, and results as the user's.
TEMPLATE = """\
{% if tools %}<|im_start|>system
# Tools
{{ tools | tojson }}<|im_end|>
{% endif %}{% for message in messages %}\
{% if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content or "" }}{% for call in message.tool_calls or [] %}\
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"room": "string"}}}]


def call(room, number):
    arguments = json.dumps({"room": room})
    function = {"name": "look", "arguments": arguments}
    return {"id": f"call {number}", "type": "function", "function": function}


def answered(text, number):
    return {"role": "tool", "content": text, "tool_call_id": f"call {number}"}


WON = [
    {"role": "system", "content": "You look for the cheese."},
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": None, "tool_calls": [call("hall", 0), call("cellar", 1)]},
    answered("nothing", 0),
    answered("a locked chest 🧀", 1),
    {"role": "assistant", "content": "The chest — its key?", "tool_calls": [call("kitchen", 2)]},
    answered('{"fridge": ["key"]}', 2),
    {"role": "assistant", "content": "In the chest."},
    {"role": "user", "content": "Are you sure?"},
    {"role": "assistant", "content": "Yes. I looked: 🧀."},
]
LOST = [
    *WON[:2],
    {"role": "assistant", "content": "I look.", "tool_calls": [call("hall", 0)]},
    answered("nothing", 0),
    {"role": "assistant", "content": "There is none."},
]


@pytest.fixture(scope="module")
def tokenizer():
    """A byte-level BPE with the template's marks as special tokens, trained on the spot."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [render(messages) for messages in (WON, LOST)]
    made.train_from_iterator([*texts * 20, "one\n\n\ntwo" * 20], trainer)
    return made


def render(messages, add_generation_prompt=False):
    template = jinja2.Environment(keep_trailing_newline=True).from_string(TEMPLATE)
    return template.render(
        messages=messages, tools=TOOLS, add_generation_prompt=add_generation_prompt
    )


def spans(messages):
    """Where the text of each assistant turn is, from the generation prompt to its end mark."""
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = render(messages[:place], add_generation_prompt=True)
            text = render(messages[: place + 1]).removesuffix("\n")
            assert text.startswith(prompt)
            assert text.endswith("<|im_end|>")
            yield len(prompt), len(text)


def turns_of_tokens(encoding, messages):
    """The number of the turn that each token is in; -1 for tokens of the template."""
    turns = np.full(len(encoding.ids), -1)
    for turn, (start, end) in enumerate(spans(messages)):
        inside = [start <= first and last <= end for first, last in encoding.offsets]
        turns[inside] = turn
    return turns


def credited(*scores):
    """Rollouts of WON and LOST with these scores, and the credit of all their steps."""
    rollouts = [
        AlignedRollout(
            number,
            Rollout.from_row({"messages": messages}).to_step_data(),
            score,
            score is not None,
        )
        for number, (messages, score) in enumerate(zip((WON, LOST), scores, strict=False))
    ]
    return apply_credit(rollouts, "gigpo", gamma=0.5, omega=0.5, normalize="mean")


def padded(rows, fill):
    table = np.full((len(rows), max(map(len, rows)) + 3), fill)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


def test_to_token_advantages_of_a_chat_template_with_tools(tokenizer):
    # Steps in an order of their own: 0 to 3 are WON's, 4 and 5 LOST's.
    advantage = np.array([0.5, 0.25, -1.0, 2.0, -0.75, -3.0])
    encodings = [tokenizer.encode(render(messages)) for messages in (WON, LOST)]
    turns = [turns_of_tokens(*pair) for pair in zip(encodings, (WON, LOST), strict=True)]
    steps = [turns[0], np.where(turns[1] < 0, -1, turns[1] + 4)]
    index = padded(steps, -1)
    tokens = to_token_advantages(advantage, index >= 0, index=index)
    for row, (encoding, messages) in enumerate(zip(encodings, (WON, LOST), strict=True)):
        text, values = render(messages), tokens[row, : len(encoding.ids)]
        between, done = "", 0
        for turn, (start, end) in enumerate(spans(messages)):
            own = [
                token
                for token, value in zip(encoding.ids, values, strict=True)
                if value == advantage[turn + 4 * row]
            ]
            assert tokenizer.decode(own, skip_special_tokens=False) == text[start:end]
            between, done = between + text[done:start], end
        rest = [token for token, value in zip(encoding.ids, values, strict=True) if value == 0]
        assert tokenizer.decode(rest, skip_special_tokens=False) == between + text[done:]
        assert not tokens[row, len(encoding.ids) :].any()
    assert sum(turn.max() + 1 for turn in turns) == len(advantage)


def test_to_token_advantages_turns_are_the_runs_of_the_mask(tokenizer):
    for messages in (WON, LOST):
        turns = turns_of_tokens(tokenizer.encode(render(messages)), messages)
        mask = turns >= 0
        runs = np.cumsum(np.diff(mask, prepend=False) & mask) - 1
        np.testing.assert_array_equal(runs[mask], turns[mask])


def recorded(tokenizer, messages):
    """The ids of the prompt and of the completion at each turn, as an engine returns them.

    The model wrote the first turn one byte at a time, as no encoder would.
    """
    text = render(messages)
    for turn, (start, end) in enumerate(spans(messages)):
        prompt = tokenizer.encode(text[:start]).ids
        own = text[start:end].removesuffix("<|im_end|>")
        pieces = own if turn == 0 else [own]
        completion = [token for piece in pieces for token in tokenizer.encode(piece).ids]
        yield prompt, [*completion, tokenizer.token_to_id("<|im_end|>")]


def test_to_token_advantages_of_recorded_token_ids(tokenizer):
    credit = credited(1.0, 0.0)
    turns = [pair for messages in (WON, LOST) for pair in recorded(tokenizer, messages)]
    mask = padded([[0] * len(prompt) + [1] * len(own) for prompt, own in turns], 0)
    tokens = to_token_advantages(credit.advantage, mask)
    for row, value, (prompt, own) in zip(tokens, credit.advantage, turns, strict=True):
        assert value != 0
        assert row[len(prompt) : len(prompt) + len(own)].tolist() == [value] * len(own)
        assert np.count_nonzero(row) == len(own)
    first = tokenizer.encode(render(WON))
    assert len(turns[0][1]) > np.count_nonzero(turns_of_tokens(first, WON) == 0)


def test_to_token_advantages_an_invalid_rollout_has_none(tokenizer):
    credit = credited(1.0, None)
    turns = [pair for messages in (WON, LOST) for pair in recorded(tokenizer, messages)]
    mask = padded([[0] * len(prompt) + [1] * len(own) for prompt, own in turns], 0)
    tokens = to_token_advantages(credit.advantage, mask & credit.mask[:, None])
    assert credit.mask.tolist() == [True] * 4 + [False] * 2
    assert not tokens[4:].any()


def test_to_token_advantages_a_token_across_the_boundary_is_of_the_template(tokenizer):
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "\n\ntwo"}]
    encoding = tokenizer.encode(render(messages))
    [(start, end)] = spans(messages)
    [across] = [
        place for place, (first, last) in enumerate(encoding.offsets) if first < start < last
    ]
    assert encoding.tokens[across] == "ĊĊ"  # the template's newline, and the turn's
    turns = turns_of_tokens(encoding, messages)
    [tokens] = to_token_advantages([2.0], [turns >= 0], index=[turns])
    assert tokens[across] == 0.0
    own = [token for token, value in zip(encoding.ids, tokens, strict=True) if value]
    assert tokenizer.decode(own, skip_special_tokens=False) == "\ntwo<|im_end|>"
    # The ids that the engine sampled have both newlines.
    prompt = tokenizer.encode(render(messages[:1], add_generation_prompt=True)).ids
    sampled = tokenizer.encode(render(messages)[start:end]).ids
    assert tokenizer.decode(sampled, skip_special_tokens=False) == "\n\ntwo<|im_end|>"
    mask = [[0] * len(prompt) + [1] * len(sampled)]
    assert to_token_advantages([2.0], mask).sum() == 2.0 * len(sampled)
