"""`guerdon.integrations.ray` without Ray; ``make cluster`` tests it with Ray."""

import sys

import pytest

from guerdon import NumericAnswer
from guerdon.errors import MissingExtraError
from guerdon.integrations.ray import score_dataset


def test_score_dataset_requires_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"guerdon\[ray\]"):
        score_dataset(object(), NumericAnswer())
