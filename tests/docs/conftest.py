"""The flag that runs the documentation itself; without it only the harness is tested."""

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--docs", action="store_true", help="run every code block and every docstring's example"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "docs: runs the documentation; only with --docs")


def pytest_collection_modifyitems(config, items):
    # Where the whole suite runs, this file is read too late for its option to be known.
    if config.getoption("--docs", default=False):
        return
    left_out = [item for item in items if item.get_closest_marker("docs")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """Examples may write files; they land here."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
