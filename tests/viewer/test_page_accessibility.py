"""axe-core finds nothing against WCAG 2.2 AA on the page of ``guerdon view``.

The pictures of what was checked are in ``.bench/page``.
"""

import pytest

from tests.viewer.conftest import write_log
from tests.viewer.page import REPOSITORY, go, viewed, violations

pytestmark = pytest.mark.browser

SCREENS = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 800}}


def check(page, name):
    page.wait_for_timeout(150)  # some plots are drawn later
    page.screenshot(path=REPOSITORY / ".bench" / "page" / f"{name}.png")
    assert violations(page) == [], name


@pytest.fixture(scope="session")
def training(tmp_path_factory):
    """The address of two logs."""
    folder = tmp_path_factory.mktemp("logs")
    with viewed([write_log(folder, name, 40) for name in ("first", "second")]) as address:
        yield address


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_views_of_rows_have_no_violation(show, recorded, screen, theme):
    rows = recorded.files["failing"].rows
    failed = next(place for place, row in enumerate(rows) if not row["is_score_valid"])
    states = {
        "overview": ("failing", "by=model&f.score=none&f.score=(0,1]"),
        "list": ("failing", "view=list&sort=-score"),
        "rollout": ("tau", "view=rollout&row=22"),
        "rollout-failed": ("failing", f"view=rollout&row={failed}"),
        "rollout-tree": ("gsm8k", "view=rollout&row=0"),
        "group": ("tau", "view=group&group=11"),
        "diff": ("diff", "row=2"),
    }
    page = show(recorded.address, viewport=SCREENS[screen], color_scheme=theme)
    for name, (file, state) in states.items():
        go(page, f"#file={recorded.file(file)}&{state}")
        check(page, f"{name}-{screen}-{theme}")
    page.keyboard.press("?")
    page.wait_for_selector("dialog")
    check(page, f"help-{screen}-{theme}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_views_of_logs_and_arenas_have_no_violation(show, training, arena, screen, theme):
    for name, address in (("training", training), ("arena", arena[0])):
        page = show(address, viewport=SCREENS[screen], color_scheme=theme)
        check(page, f"{name}-{screen}-{theme}")
