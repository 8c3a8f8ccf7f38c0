r"""Finding the answer that a text states.

The rule:

1. reasoning between tags such as `<think>` is no answer, and neither is code in a fence, unless it
   stands alone below a label;
2. the last explicit form counts: a box (`\boxed{…}`, `\boxed 18`, `<answer>…</answer>`), a label
   (`A:`, `Answer:`, `Final answer:`) or `####`. A label begins a line, after any decoration, or a
   sentence. One without a text behind it refers to the next line that isn't empty;
3. if there is none, the last sentence that says what the answer is: "The answer is 18." One that
   remarks on an answer ("The answer is 100% correct", "If the answer is 5", "The answer is not 5")
   states none;
4. if there is neither, the whole text, if it is only a number.

`####`, `Answer =` and a label without a colon may mean something else (a heading, a line of code),
so they count only before a number or another expression that is no prose. `A:` above `B:` is an
option.

The last number of a text is never its answer: a solution that was cut off before its answer line
has none, and a box that was never closed was cut off too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from guerdon.rubrics.checks.fences import without_fences
from guerdon.rubrics.checks.quantity import read_quantity
from guerdon.types.reasoning import REASONING_TAGS, split_reasoning

__all__ = ["extract_answer"]

_SYMBOLS = "\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f"
_DECORATION = re.compile(
    rf"(?:[\s>*_`#|~$(\[{{\"“（【「•·–—+{_SYMBOLS}-]|[0-9]{{1,2}}[.)]\s|Step\s[0-9]{{1,2}}[.:]\s|\([a-z0-9]\)\s|</?\w[^<>]*>"
    r"|\\[\[(]|\\text\w*\s*\{)*+"
)
_LEADS = (
    r"so|thus|hence|therefore|finally|then|now|and|but|wait|no|actually|instead|correction|sorry"
    r"|oops|hmm|ok|okay|well|is|here's|that|gives?|gets?|obtain|have|think|believe|conclude"
)
_BOUNDARY = re.compile(
    rf"(?:[.!?;:,…—–)\]$*_\"'][\s*_\"')]*|\b(?:{_LEADS})[\s*_]+)\Z", re.IGNORECASE
)
_CONDITION = re.compile(
    r"(?:n't|\b(?:mistake\sis\sto|tempt\w+\sto|if|whether|suppose|supposing|assum\w+|unless|until|imagine|not|why|how|doubt"
    r"|false|untrue|thought|may|might|could))"
    r"(?:\s(?:think|believe|say|mean|sure|clear))?(?:\sthat)?[\s*_]*\Z",
    re.IGNORECASE,
)
_HYPOTHESIS = re.compile(r"(?i)\bif\b[^.!?]*\Z")
_CORRECTION = re.compile(
    r"(?i)\b(?:wait|correct(?:ion|ed)|sorry|oops|actually|hold\son|(?:made|my)\s(?:an?\s)?(?:\w+\s)?"
    r"(?:mistake|error))\b[^.!?]*(?:[.!]\s[^.!?]*)?\Z"
)
_RETRACTION = re.compile(
    r"(?i)[\s*_]*(?:oops\b|(?:(?:oh|wait|hmm)\W{1,4})?"
    r"(?:no(?:pe)?(?:\s*[,.!:…—–]|\s+-|\s+wait\b|\s*$)"
    r"|(?:that|this|it)(?:['’]s|\s(?:is|was))\s(?:not\s(?:right|correct)|wrong|incorrect)))"
)
_BEFORE = 40  # how many characters before a label are looked at
_IS = (
    r"(?:is\s(?:found\sto\sbe|given\sby|equal\sto)|is|was|(?:must|should|would|will|has\sto)\sbe|equals"
    r"|becomes|comes\s(?:out\s)?to|turns\sout\sto\sbe)\b"
    r"(?:,?\s{1,3}(?:therefore|thus|hence|then|so|simply|just|now|actually|also|indeed|probably"
    r"|(?:most\s)?likely|clearly|still|in\sfact)\b,?){0,2}\s?[:：]?"
)
_USUAL_LINE = re.compile(
    r"[>*_ ]{0,6}+(?:(?P<explicit>####|#{0,4} ?(?:A|(?:[Ff]inal )?[Aa]nswer)[*_]{0,3}:)"
    r"|(?:(?:So|Thus|Hence|Therefore),? )?[Tt]he (?:final )?answer is:?)"
    r"[*_ ]{0,4}(?P<number>-?\$?[0-9](?:[0-9.,]*[0-9])?)[*_]{0,3}\.?[*_]{0,3}"
)
_OPENING = re.compile(
    r"(?<![\w/])(?P<article>(?:the|my|our)\s{1,3})?"
    r"(?P<quality>(?:(?:final|correct|right|best|numeric(?:al)?|integer|exact|short|simplified|overall"
    r"|required|desired|(?:most\s)?(?:likely|appropriate|suitable))\s{1,3}){0,2})\Z",
    re.IGNORECASE,
)
_LABEL = re.compile(
    rf"""(?P<letter>A\s?[*_]{{0,3}}[:：])
      | (?:答案|(?i:respuesta(?:\sfinal)?|(?:endg\w+\s)?antwort))\s?
        (?P<other>[:：]|[是为选]\s?[:：]?)
      | (?i:(?:ans(?:wers?)?\b\.?|(?P<choice>(?:option|choice|result)\b)|(?P<fix>correction))
        (?:\s(?:to|for|of|in|we)\s[^.!?:：=\n]{{1,60}}?|,\s[^.!?:：=\n]{{1,40}}?,)??
        (?:\s?\([^()\n]{{1,40}}\))?
        (?:</\w{{1,10}}>|[\s*_`)\]}}"]){{0,8}}+
        (?:(?P<strong>[:：]|(?<=ns\.\s))
          | (?P<weak>=>?|[→⇒|]|(?<=\s)[-–—]\s)
          | (?P<says>(?<=[\s*_]){_IS}|['’]s\s)))
    """,
    re.VERBOSE,
)
# What labels contain; "A:" is looked for by itself.
_SIGNS = ("ns", "####", "NS", "orrect", "hoice", "ption", "esult", "答案", "espuesta", "ntwort")
_KEY_WORD = re.compile(
    r"[Aa]ns|ANS|A\s?[*_]{0,3}[:：]|(?:option|choice|[Cc]orrection|[Rr]esult)\b"
    r"|答案|[Rr]espuesta\b|[Aa]ntwort\b"
)
_REVERSED = re.compile(
    r"(?:^|[\s*_($])(?P<value>[A-H]|-?[$€£]?[0-9][0-9,.]*)[)*_$]{0,4} is (?:correct|right"
    r"|the (?:(?:final|correct|right|best) )?(?:answer|option|choice|one))\b(?! for| if)"
)
_LABEL_ALONE = re.compile(
    r"(?i)(?:the\s|my\s)?(?:(?:final|correct)\s)?ans(?:wer)?(?:</\w{1,10}>|[\s*_`|\]}])*+"
)
_OPTION_B = re.compile(r"(?:^|\s)[\s>*_(#-]{0,6}B\s?[*_]{0,2}[.):：]")
_SENTENCE_END = re.compile(r"(?<!approx)(?<!\bRs)(?<!\bNo)[.!?](?=[\s*_`\"'”)]*(?:\s|$))")
_REMARK = re.compile(
    r"""(?ix)\W*(?:(?:[0-9.,]+\s?%|a|an|very|quite|also|now|really|indeed|definitely|certainly
      |completely|totally|absolutely|most|more|exactly|clearly|likely|probably|already|not)\s+)*
      (?:(?:in)?correct|right|wrong|reasonable|plausible|final|valid|verified|confirmed|consistent|clear
      |obvious|simple|sensible|sound|true|accurate|complete|unique|good|fine|as\s+follows|below|above
      |given|shown|found|obtained|computed|calculated|rounded|expressed|written|stated|boxed
      |in\s(?:dollars|units|the|terms|line)|based|the\s(?:same|one|number\sof|value\sof|sum\sof)
      |supported|close\s|easy|[0-9]+\s+(?:digits?|characters|letters|words|decimal\s|significant\s)
      |[0-9.]+\s+times\s|(?:greater|larger|less|smaller|more|higher|lower)\s+than)\b
    """
)
_DENIAL = re.compile(r"(?i)\W*(?:definitely |certainly |clearly )?not\b\W*")
_PROSE = re.compile(r"\W*[A-Za-z]{2,}\s+\w|[^\\\w]*[A-Z]?[a-z]{3,}\s*$")
_OPTION = re.compile(r"\W{0,3}[A-Z][).:]\s")
_CONTRAST = re.compile(r",\s+(?:and\s+)?not\s|,?\s+(?:rather\s+than|instead\s+of)\s")
_EMPTY = " \t\r*_`$|"
_OPENERS, _CLOSERS = "([{（【「“", ")]}）】」”"
_END_TOKEN = re.compile(r"<(?:[|｜](?!end_of_box)[^<>\s]{1,40}[|｜]|/s|eos|end_of_turn)>\s*\Z")
_RULE = re.compile(r"[\s|:*_~$`-]*|\s*\\[\[(]\s*|\s*\\begin\{\w{1,20}\*?\}\s*")
_TAGS = re.compile(r"\A(?:<[A-Za-z][^<>]{0,80}>){1,4}|(?:</?[A-Za-z][^<>]{0,80}>){1,4}\Z")
_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}")
_BULLET = re.compile(r"[\s>]*(?:[-*+•·–]|[0-9]{1,2}[.)]|\([a-z]\))\s+")

_BOX = re.compile(
    r"\\f?boxed\s{0,3}(?:\{|(?P<bare>(?=[-+.]?[0-9])))|\\fbox\s{0,3}\{"
    r"|(?P<tag><(?:final[_ -]?)?answer>|(?-i:<SOLUTION>)|<\|begin_of_box\|>"
    r"|\[answer\](?!\W{0,4}[:：]))",
    re.IGNORECASE,
)
_TAG_NAMES = ("nswer>", "NSWER>", "nswer]", "NSWER]", "SOLUTION>", "of_box|>")
_BARE_END = re.compile(r"[$\\\n]|[.!?](?=\s|$)")
_TAG_END = re.compile(
    r"[<\[]/(?:final[_ -]?)?answer[>\]]|</SOLUTION>|<\|end_of_box\|>", re.IGNORECASE
)
_BOX_BEFORE = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}[\s$]*(?:,|,?\s*(?:and|or)\b)[\s$]*\Z")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_PLACEHOLDER = re.compile(
    r"(?i)[\s.…_?{}\[\]<>-]*+(?:(?:your|the|final|my)\s+)*(?:answer|number|result|letter)?"
    r"(?:\s+here)?[\s.…_?{}\[\]<>-]*"
)


def extract_answer(text: str, *, reasoning_tags: Sequence[str] = REASONING_TAGS) -> str | None:
    r"""Return the answer that a text states, as it is written there.

    Args:
        text: What a model wrote, of any length; the time is linear in it.
        reasoning_tags: The tags around reasoning, which is left out, as for `split_reasoning`.

    Returns:
        The stated answer, stripped, which need not be a number; None if there is none.

    Example:
        >>> extract_answer("16 - 3 - 4 = 9 eggs\n9 * 2 = $18\nA: 18\nThe answer is correct.")
        '18'
        >>> extract_answer("so there are 16 - 3 - 4 = 9") is None
        True
    """
    if text.isdigit():
        return text
    text = answer_part(text, reasoning_tags)
    last_line = text.rfind("\n") + 1
    usual = _USUAL_LINE.fullmatch(text, last_line)
    if usual and (usual["explicit"] or not ("\\" in text or _may_state(text[:last_line]))):
        return usual["number"]
    start, stated = _last_statement(text, *_last_box(text))
    if start < 0:
        if reversed_forms := _REVERSED.findall(text):
            return str(reversed_forms[-1])
        whole = text.strip()
        prose_before_equals = _WORD.search(whole.rpartition("=")[0])
        return whole if read_quantity(whole) is not None and not prose_before_equals else None
    if stated is None or stated.isdigit():
        return stated
    return _last_statement(stated, -1, None)[1] or stated


def answer_part(text: str, reasoning_tags: Sequence[str]) -> str:
    """Return a text without reasoning and fenced code; an answer alone in a fence stays."""
    text = split_reasoning(text, reasoning_tags)[1]
    if text[-1:] in "> \n":
        end = len(text)
        while token := _END_TOKEN.match(text, max(text.rfind("<", 0, end), 0), end):
            end = token.start()
        text = text[:end]
    if ("`" in text and "```" in text) or ("~" in text and "~~~" in text):
        return without_fences(text, kept=_is_answer_in_fence)
    return text


def _is_answer_in_fence(above: str, inside: str) -> bool:
    """Whether the only line in a fence is an answer, as the line above or the line itself says."""
    statements = _statements(above, f"{above}\n{inside}", len(above))
    return inside.startswith("\\boxed") or (bool(statements) and statements[-1].content == inside)


def _last_box(text: str) -> tuple[int, str | None]:
    """The start of the last box (-1: none), and its content (None: never closed)."""
    last = max(text.rfind("\\boxed"), text.rfind("\\fbox")) if "\\" in text else -1
    if "<" in text or "[" in text:
        last = 0 if any(map(text.count, _TAG_NAMES)) else last
    # Nearly always the last box is the answer; otherwise all are read, from the last one.
    for begin in dict.fromkeys((last, 0)) if last >= 0 else ():
        limit = len(text)
        for opened in reversed([*_BOX.finditer(text, begin)]):
            content = _content_of(text, opened, limit)
            is_mention = text[max(opened.start() - 1, 0)] == "`" or opened[0][0] == "["
            is_empty = content is not None and _PLACEHOLDER.fullmatch(content[:60])
            if not is_empty and (content is not None or not is_mention):
                return opened.start(), _with_boxes_before(text, opened.start(), content)
            limit = opened.start()
    return -1, None


def _with_boxes_before(text: str, start: int, content: str | None) -> str | None:
    """The contents of a box and of its neighbours above, joined by commas."""
    while content is not None and (before := _BOX_BEFORE.search(text, max(start - 400, 0), start)):
        start = before.start()
        content = content if before[1] == content else f"{before[1]}, {content}"
    return content


def _content_of(text: str, opened: re.Match[str], limit: int) -> str | None:
    """What a box contains, stripped; None if it isn't closed before a limit."""
    depth, start = 1, opened.end()
    if opened["bare"] is not None:
        end = _BARE_END.search(text, start)
        return text[start : end.start() if end else None].strip()
    if opened["tag"]:
        end = _TAG_END.search(text, start, limit)
        return text[start : end.start()].strip() if end else None
    for brace in _BRACE.finditer(text, start, limit):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start : brace.start()].strip()
    return None


def _last_statement(text: str, start: int, stated: str | None) -> tuple[int, str | None]:
    """The start and the content of the last answer line behind a box, or of the box.

    If there is neither, the start and the content of the last sentence that states an answer; -1
    and None without any. A sentence that corrects an earlier answer counts before a box above it.
    """
    denied: set[str] = set()
    sentence: tuple[int, str | None] | None = None
    after, end = start, len(text) if _may_state(text) else start
    while end > after:
        begin = text.rfind("\n", 0, end) + 1
        line = text[begin:end]
        for label in reversed(_statements(line, text, end) if _may_state(line) else []):
            content = _cleaned(label.content)
            if begin + label.offset < after:
                break
            statement = begin + label.offset, content or None
            if label.denied:
                denied.add(content)
            elif content not in denied:
                sentence = sentence or statement
                if label.explicit or label.corrects:
                    return statement if label.explicit else sentence
        end = begin - 1
    return (start, stated) if start >= 0 or sentence is None else sentence


class _Statement(NamedTuple):
    offset: int
    content: str
    explicit: bool
    denied: bool = False
    corrects: bool = False  # whether it counts before what is above it, such as a box


def _may_state(text: str) -> bool:
    """Whether a text may contain a label, at once."""
    return any(map(text.__contains__, _SIGNS)) or ("A" in text and bool(_KEY_WORD.search(text)))


def _statements(line: str, text: str, end: int) -> list[_Statement]:
    """What the labels of a line say, in order.

    Args:
        line: The line.
        text: The text that it is in, for what is below it.
        end: Where it ends there.
    """
    begin = _DECORATION.match(line).end()  # type: ignore[union-attr]
    words = _KEY_WORD.finditer(line)
    labels = [*filter(None, (_label_at(line, word.start(), begin) for word in words))]
    below = _below(text, end)
    statements: list[_Statement] = []
    explicit = corrects = False
    for label, following in zip_longest(labels, labels[1:]):
        content = line[label.end() : following.start() if following else None]
        lead = line[max(label.start() - _BEFORE, 0) : label.start()]
        explicit = explicit or not (label["says"] or label["fix"])
        corrects = corrects or bool(label["fix"] or _CORRECTION.search(lead))
        if sentence_end := _SENTENCE_END.search(content):
            sentence = content[: sentence_end.start()]
            if _RETRACTION.match(content, sentence_end.end()):
                statements.append(_Statement(label.start(), sentence, explicit, denied=True))
                continue
            content = sentence if label["says"] else content
        content = content if content.strip(_EMPTY) else below
        denial = _DENIAL.match(content) if label["says"] and "not" in content else None
        if denial is not None:
            denied, _, content = content[denial.end() :].partition(" but ")
            statements.append(_Statement(label.start(), denied, explicit, denied=True))
        if (content or denial is None) and _counts(label, content, below):
            statements.append(_Statement(label.start(), content, explicit, corrects=corrects))
    if not labels and _LABEL_ALONE.fullmatch(line, begin) and _is_terse(below):
        statements.append(_Statement(begin, below, explicit=True))
    head, marks, tail = line.rpartition("####")
    if marks and (read_quantity(tail) is not None or (not below and _is_terse(tail))):
        statements.append(_Statement(len(head), tail, explicit=True))
    return statements


def _label_at(line: str, start: int, begin: int) -> re.Match[str] | None:
    """The label at an index of a line, if it begins the line or a sentence.

    Args:
        line: The line.
        start: Where the label's key word begins.
        begin: Where the line begins behind its decoration.
    """
    label = _LABEL.match(line, start)
    if label and (label["other"] or (start == begin and label["choice"] in (None, "Result"))):
        return label
    opening = label and _OPENING.search(line, max(start - _BEFORE, 0), start)
    if not label or not opening or (label["choice"] and not opening["quality"]):
        return None
    if opening.start() <= begin:
        return label
    before = line[max(opening.start() - _BEFORE, 0) : opening.start()]
    if label["weak"] or (label["says"] and _CONDITION.search(before)):
        return None
    if "would" in (label["says"] or "") and _HYPOTHESIS.search(line, max(start - 200, 0), start):
        return None
    in_sentence = (label["says"] and opening["article"]) or _BOUNDARY.search(before)
    return label if in_sentence else None


def _counts(label: re.Match[str], content: str, below: str) -> bool:
    """Whether what follows a label is an answer."""
    if label["letter"]:
        return not (_OPTION_B.search(content) or _OPTION_B.match(below))
    if label["says"]:
        return content.strip(" .$*").isdigit() or not _REMARK.match(content[:100])
    if label["fix"]:
        return read_quantity(content) is not None or len(content.split()) == 1
    if label["weak"]:
        return read_quantity(content) is not None or (
            "=" not in label["weak"] and _is_terse(content)
        )
    return True


def _is_terse(text: str) -> bool:
    """Whether a text is a number, an option or an expression rather than prose."""
    return 0 < len(text) < 400 and (_OPTION.match(text) is not None or _PROSE.match(text) is None)


def _below(text: str, end: int) -> str:
    """The next line that isn't empty, without its bullet; of a list with several items, two."""
    while end < len(text):
        begin = end + 1
        end = _line_end(text, begin)
        line = text[begin:end]
        if not _RULE.fullmatch(line):
            bullet = _BULLET.match(line)
            if bullet is None:
                return line.lstrip("> ")
            is_list = _BULLET.match(text, end + 1) is not None
            return text[begin + bullet.end() : _line_end(text, end + 1) if is_list else end]
    return ""


def _line_end(text: str, begin: int) -> int:
    end = text.find("\n", begin)
    return len(text) if end < 0 else end


def _cleaned(content: str) -> str:
    """Strip decoration and closing exclamation marks; in a box they would be a factorial."""
    content = _CONTRAST.split(content, maxsplit=1)[0].strip(" \t\r\n*_`").lstrip("})]:： ")
    if "<" in content:
        content = _TAGS.sub("", content)
    if content.count("|") == 1 or content.startswith("| "):
        content = content.strip("| ")
    opened = sum(map(content.count, _OPENERS)) - content.count('"') % 2
    for _ in range(min(sum(map(content.count, _CLOSERS)) - opened, 4)):  # those of the whole line
        bare = content.rstrip(".*_` ")
        content = bare[:-1] if bare.endswith((*_CLOSERS, '"')) else content
    return content.rstrip("!*_` ") if content.endswith("!") else content.strip(" *_`")
