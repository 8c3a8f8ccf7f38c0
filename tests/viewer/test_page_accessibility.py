"""axe-core finds nothing against WCAG 2.2 AA on the page of ``guerdon view``."""

import pytest

from tests.viewer.conftest import write_log
from tests.viewer.page import go, viewed, violations

pytestmark = pytest.mark.browser

SCREENS = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 800}}
STATES = {
    "overview": "#file=2&f.score=none",
    "list": "#file=2&view=list&sort=-score",
    "rollout": "#file=0&view=rollout&row=22",
    "rollout-failed": "#file=2&view=rollout&row=54",
    "group": "#file=0&view=group&group=11",
    "diff": "#file=3&row=2",
}


@pytest.fixture(scope="session")
def training(tmp_path_factory):
    """The address of two logs."""
    folder = tmp_path_factory.mktemp("logs")
    with viewed([write_log(folder, name, 40) for name in ("first", "second")]) as address:
        yield address


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_views_of_rows_have_no_violation(show, recorded, screen, theme):
    page = show(recorded.address, viewport=SCREENS[screen], color_scheme=theme)
    for name, state in STATES.items():
        go(page, state)
        assert violations(page) == [], name
    page.keyboard.press("?")
    page.wait_for_selector("dialog")
    assert violations(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_views_of_logs_and_arenas_have_no_violation(show, training, arena, screen, theme):
    for address in (training, arena[0]):
        page = show(address, viewport=SCREENS[screen], color_scheme=theme)
        assert violations(page) == []
