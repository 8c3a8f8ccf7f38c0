import pytest

from guerdon.sandbox.testing.units import units_of

CASE = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): f(1)\n"
TEXTS = {
    "assert f(1) == 1": [""],
    "": [""],
    "# nothing": [""],
    "def test_a(): f(1)\ndef test_b(): f(2)\ndef helper(): pass": ["test_a", "test_b"],
    "async def test_a(): f(1)": ["test_a"],
    "def test_a(): f(1)\ntest_a()": [""],
    "def test_a(): f(1)\ndef test_b(): f(2)\ntest_a()": ["", "test_b"],
    "def test_a(): f(1)\nassert f(2)": ["", "test_a"],
    "x = f(1)\ndef test_a(): assert x": ["test_a"],
    "def check(candidate): candidate(1)": ["check"],
    "def check(candidate): candidate(1)\ncheck(f)": [""],
    "def check(): f(1)": [""],
    CASE: ["T.test_a"],
    CASE + "if __name__ == '__main__':\n    unittest.main()": ["T.test_a"],
    CASE + "unittest.main(exit=False)": ["T.test_a"],
    CASE + "import logging\nlogging.disable()": ["T.test_a"],
    CASE + "T('test_a').debug()": [""],
    CASE + "class U(T):\n    def test_b(self): f(2)": ["T.test_a", "U.test_a", "U.test_b"],
    "from unittest import IsolatedAsyncioTestCase\n"
    "class T(IsolatedAsyncioTestCase):\n    async def test_a(self): f(1)": ["T.test_a"],
    "class Helper:\n    def test_a(self): pass\nassert f(1)": [""],
}


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_units_of_names_what_is_counted(text):
    assert units_of(text, "f") == TEXTS[text]
