"""What a fingerprint has of a file: what a class or a function consists of, and nothing else."""

import textwrap

import pytest

from guerdon.rubrics.functions.loading import load_reward
from guerdon.rubrics.source import bare

FILE = '''
    """Rewards."""
    import json
    import re
    from math import sqrt as root

    from guerdon import Rubric, WeightedSum, reward_function

    # How long a text may be.
    LIMIT = 60
    UNUSED = 1
    PATTERN = re.compile("a|b")
    WORDS = {"please": 1.0}
    WORDS["thanks"] = 0.5
    CHECKS = {}


    def check(function):
        CHECKS[function.__name__] = function
        return function


    def timed(function):
        return function


    @check
    def is_short(text):
        return len(text) < 5


    def helper(text):
        found = []
        found.append(len(text) / deeper(LIMIT))
        return found[0]


    def deeper(number):
        return root(number)


    class Base(Rubric):
        def words(self, text):
            return [WORDS.get(word, 0.0) for word in text.split()]


    class Mine(Base):
        """Mine."""

        high = LIMIT

        @timed
        def forward(self, action, observation):
            # The first try.
            found = self.words(action.content)
            found.append(helper(action.content))
            return sum(found) + bool(PATTERN.search(action.content))


    class Other(Base):
        def forward(self, action, observation):
            found = []
            found.append(PATTERN.sub("", action.content))
            return float(len(found[0]) + UNUSED)


    class Checked(Rubric):
        def forward(self, action, observation):
            return float(all(check(action.content) for check in CHECKS.values()))


    @reward_function
    @timed
    def answered(messages):
        return helper(messages[-1].text)


    def plain(action, observation):
        return float(UNUSED)


    tree = WeightedSum([Mine(), Other()], [1.0, 0.5])
    short = lambda action, observation: float(len(action.content) < LIMIT)
'''


@pytest.fixture
def fingerprint(tmp_path):
    """The fingerprint of a reward in a version of the file."""
    numbers = iter(range(1000))

    def fingerprint(name, text=FILE):
        path = tmp_path / f"reward_{next(numbers)}.py"
        path.write_text(textwrap.dedent(text))
        reward = load_reward(f"{path}:{name}")
        found = reward.fingerprint
        return found() if callable(found) else found

    return fingerprint


REWARDS = ("Mine", "Other", "answered", "plain", "tree", "short")


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        # what no reward uses
        ('"""Rewards."""', '"""Some rewards."""', ""),
        ("import json\n", "import json, os\n", ""),
        ("# How long a text may be.", "# How many characters.\n\n", ""),
        ("# The first try.", "", ""),
        ("# The first try.", "# The second try: it's better", ""),
        ("class Mine(Base):", "class Unused(Base):\n        x = 1\n\n\n    class Mine(Base):", ""),
        ("is_short(text):", "is_short(text):  # noqa", ""),
        # a class itself
        ('"""Mine."""', '"""My own."""', "Mine tree"),
        ("sum(found) + bool", "sum(found) - bool", "Mine tree"),
        ("class Other(Base):", "class Other(Base):\n        x = 1\n", "Other tree"),
        ("float(UNUSED)", "float(UNUSED + 1)", "plain"),
        # what it uses
        ("LIMIT = 60", "LIMIT = 61", "Mine answered tree short"),
        ("UNUSED = 1", "UNUSED = 2", "Other plain tree"),
        ('"a|b"', '"a|c"', "Mine Other tree"),
        ('"please": 1.0', '"please": 2.0', "Mine Other tree"),
        ('WORDS["thanks"] = 0.5', 'WORDS["thanks"] = 0.25', "Mine Other tree"),
        ("len(text) / deeper", "len(text) // deeper", "Mine answered tree"),
        ("return root(number)", "return 2 * root(number)", "Mine answered tree"),
        ("sqrt as root", "cbrt as root", "Mine answered tree"),
        ("text.split()", "text.split(' ')", "Mine Other tree"),
        ("len(text) < 5", "len(text) < 6", ""),
        ("[1.0, 0.5]", "[1.0, 0.75]", "tree"),
    ],
)
def test_fingerprint_changes_with_what_a_reward_uses_in_its_file(fingerprint, old, new, changed):
    assert FILE.count(old) == 1
    text = FILE.replace(old, new)
    different = [name for name in REWARDS if fingerprint(name) != fingerprint(name, text)]
    assert different == [name for name in REWARDS if name in changed.split()]


@pytest.mark.parametrize(
    ("old", "new", "is_changed"),
    [("len(text) < 5", "len(text) < 6", True), ("# The first try.", "", False)],
)
def test_fingerprint_is_of_the_whole_file_if_functions_change_a_table_that_it_uses(
    fingerprint, old, new, is_changed
):
    text = FILE.replace(old, new)
    assert (fingerprint("Checked") != fingerprint("Checked", text)) is is_changed


def test_fingerprint_is_of_the_whole_file_if_a_reward_may_use_any_name(fingerprint):
    text = FILE.replace("float(UNUSED)", 'float(globals()["UN" + "USED"])')
    assert fingerprint("plain", text) != fingerprint(
        "plain", text.replace("LIMIT = 60", "LIMIT = 1")
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ""),
        ("x = 1", "x = 1"),
        ("# a\n\nx = 1  # b\n\n\n# c\n", "x = 1"),
        ("x = '# no'  # yes\n", "x = '# no'"),
        ('x = """\n\n# no\n"""  # yes\n', 'x = """\n\n# no\n"""'),
        ("f(1,  # one\n\n  2)\n", "f(1,\n  2)"),
        ("def f(:  # not valid\n", "def f(:  # not valid\n"),
        ("x = '''# never closed", "x = '''# never closed"),
    ],
)
def test_bare_leaves_out_comments_and_blank_lines(source, expected):
    assert bare(source) == expected
