"""The option --docs, which runs the documentation; without it only the harness is tested."""

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--docs", action="store_true", help="run every code block and every docstring's example"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "docs: runs the documentation; only with --docs")


def pytest_collection_modifyitems(config, items):
    # If the whole suite runs, this file is read too late to register its option.
    if config.getoption("--docs", default=False):
        return
    deselected = [item for item in items if item.get_closest_marker("docs")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    """Run examples in a temporary folder, because they may write files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
