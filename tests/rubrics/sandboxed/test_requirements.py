"""What a reward requires is checked against what is installed, before anything is started."""

import importlib.metadata

import pytest

from guerdon.errors import LoadError
from guerdon.rubrics.sandboxed.source import check_requirements

PYDANTIC = importlib.metadata.version("pydantic")


@pytest.mark.parametrize(
    "line",
    [
        "pydantic",
        "Pydantic>=2",
        f"pydantic == {PYDANTIC}",
        "no-such-thing; python_version < '3'",
        "",
        "httpx[http2]; sys_platform == 'no-such-platform'",
    ],
)
def test_check_requirements_accepts_what_is_installed(line):
    check_requirements([line], "r")


def test_check_requirements_names_all_unmet_ones():
    with pytest.raises(LoadError) as caught:
        check_requirements(["pydantic>=999", "numpy", "no-such-thing", "pytest<1"], "reward.py:r")
    lines = str(caught.value).splitlines()
    assert lines == [
        "reward.py:r has requirements that are not met:",
        f"  pydantic>=999: version {PYDANTIC} is installed",
        "  no-such-thing: it isn't installed",
        f"  pytest<1: version {pytest.__version__} is installed",
        "pip install 'pydantic>=999' no-such-thing 'pytest<1'",
    ]


def test_check_requirements_names_an_invalid_line():
    with pytest.raises(LoadError, match="r has the invalid requirement 'numpy and more'"):
        check_requirements(["numpy and more"], "r")


def test_check_requirements_refuses_an_address():
    with pytest.raises(LoadError, match=r"it names an address; name a version, as in numpy>=1"):
        check_requirements(["numpy @ https://example.org/numpy.whl"], "r")


def test_check_requirements_names_an_unknown_extra():
    with pytest.raises(LoadError, match=f"version {PYDANTIC} has no extra 'nosuch'"):
        check_requirements(["pydantic[nosuch]"], "r")


class Distribution:
    """One that needs what isn't there, for an extra."""

    version = "1.0rc1"
    metadata = importlib.metadata.metadata("pydantic")
    requires = ("no-such-thing>=2; extra == 'email'", "numpy")


def test_check_requirements_includes_those_of_extras(monkeypatch):
    def distribution(name):
        if name != "odd":
            raise importlib.metadata.PackageNotFoundError
        return Distribution

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    check_requirements(["odd>=0.9"], "r")
    with pytest.raises(LoadError, match=r"no-such-thing>=2.*it isn't installed"):
        check_requirements(["odd[email]"], "r")
