"""The page of a served environment in Chromium, with the real server."""

import json
import math
from typing import Literal

import httpx
import pytest
from pydantic import BaseModel, Field

from guerdon import (
    Action,
    Environment,
    Observation,
    RLRolloutWorker,
    Rubric,
    RubricComposer,
    State,
    ToolEnvironment,
    as_rubric,
    create_app,
    tool,
)
from guerdon.envs import ServerLimits
from guerdon.rollouts import ScoringJob, ScriptedPolicy
from tests.envs.server.conftest import Served
from tests.viewer import page as pages
from tests.viewer.page import HOSTILE, PATIENCE_S, violations, wait_for

pytestmark = pytest.mark.browser

RESET, STEP = "form.reset [type=submit]", "form.action [type=submit]"


# Environments -------------------------------------------------------------------------------------


class Guess(Action):
    number: int = Field(ge=1, le=100)


class Hint(Observation):
    text: str = ""


class Near(Rubric):
    """The nearer, the better."""

    score_range = (0.0, 1.0)

    def forward(self, action, observation):
        if action.number == 13:
            raise ConnectionError("the judge is down")
        return 1 - abs(action.number - 42) / 100


class Guessing(Environment[Guess, Hint, State]):
    """Guess a number."""

    def __init__(self):
        found = as_rubric(lambda action, observation: observation.done)
        super().__init__(
            rubric=RubricComposer({"near": Near(), "found": found}, {"near": 0.5, "found": 1.0})
        )

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Hint(text=f"a number from 1 to 100 {seed} {kwargs}")

    def step(self, action, **kwargs):
        if action.number == 99:
            raise RuntimeError("out of guesses")
        text = {-1: "higher", 0: "found", 1: "lower"}[(action.number > 42) - (action.number < 42)]
        return self.score(action, Hint(text=text, done=text == "found"))

    @property
    def state(self):
        return State()


class Point(BaseModel):
    x: int
    y: float = 0.5


class Everything(Action):
    text: str
    short: str = Field(default="", max_length=20)
    share: float | None = None
    color: Literal["red", "green"]
    kind: Literal["only"] = "only"
    sure: bool = False
    point: Point
    other: Point | None = None
    tags: list[str] = Field(default_factory=list)
    finish: Literal["matt", "gloss"] | None = None


class Seen(Observation):
    action: str = ""
    board: list[str] = Field(default_factory=list)
    grid: list[list[int]] = Field(default_factory=list)
    image: list[list[list[int]]] = Field(default_factory=list)
    nested: dict[str, object] = Field(default_factory=dict)


class Forms(Environment[Everything, Seen, State]):
    """Shows everything."""

    def __init__(self):
        super().__init__(rubric=as_rubric(lambda action, observation: 1.0))

    def reset(self, seed=None, episode_id=None, **kwargs):
        image = [[[x * 8, y * 8, 0] for x in range(20)] for y in range(16)]
        nested = {"a": {"b": [1, {"c": 2**62 + 1}]}}
        grid = [[row * column for column in range(4)] for row in range(3)]
        return Seen(board=["..X", "OX.", "..."], grid=grid, image=image, nested=nested)

    def step(self, action, **kwargs):
        shown = action.model_dump_json(exclude_unset=True)
        return self.score(action, Seen(action=shown, done="end" in shown))

    @property
    def state(self):
        return State()


class Bookings(ToolEnvironment):
    """Flight bookings of one airline."""

    def __init__(self):
        super().__init__(rubric=as_rubric(lambda action, observation: observation.done))

    def reset(self, seed=None, episode_id=None, **kwargs):
        return self.begin("Book a seat on HAT271.", episode_id=episode_id)

    @tool
    def seats_left(self, flight: str) -> int:
        """Count the free seats."""
        return {"HAT271": 2}[flight]

    @tool(ends=True)
    def book(self, flight: str, seats: int = 1) -> str:
        """Book seats."""
        return f"booked {seats} on {flight}"


class Hostile(Environment[Everything, Seen, State]):
    """Sends each hostile text in turn, in all that it sends."""

    def __init__(self):
        super().__init__(rubric=as_rubric(self._fail))
        self._steps = 0

    def _fail(self, action, observation):
        raise RuntimeError(self._text())

    def _text(self):
        return HOSTILE[self._steps % len(HOSTILE)]

    def _seen(self):
        text = self._text()
        cells = [[ord(letter) for letter in text[:3]]] * 2
        return Seen(action=text, board=[text, text], grid=cells, nested={text: {text: text}})

    def reset(self, seed=None, episode_id=None, **kwargs):
        return self._seen()

    def step(self, action, **kwargs):
        self._steps += 1
        return self.score(action, self._seen())

    @property
    def state(self):
        return State()


# The browser --------------------------------------------------------------------------------------


@pytest.fixture
def serve():
    """Serves an environment with its page."""
    running = []

    def serve(factory=Guessing, **options):
        running.append(Served(create_app(factory, web=True, **options)))
        return running[-1]

    yield serve
    for served in running:
        served.join()


def opened(chromium, served, path="web/", **options):
    """The page, with a session; it must not report an error while it is open."""
    return pages.opened(chromium, f"{served.url}/{path}", ready="text=connected", **options)


def field(page, *path):
    """The input of a field of the action."""
    at = json.dumps(path, separators=(",", ":"))
    return page.locator(f"form.action [data-path='{at}'] > :is(input, textarea, select)")


def reset_field(page, name):
    """The input of a field of the reset."""
    return page.locator(f"""form.reset [data-path='["{name}"]'] > :is(input, textarea)""")


def reset(page):
    page.click(RESET)
    page.wait_for_selector(".past .messages > li")


def guess(page, number):
    """Take a step of `Guessing`."""
    steps = page.locator(".beside").count()
    field(page, "number").fill(str(number))
    field(page, "number").press("Enter")
    page.wait_for_selector(f"[data-step='{steps}']")


def text_of(page, selector):
    return page.locator(selector).first.inner_text()


# Playing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"mode": "production", "processes": 2}], ids=str)
def test_play_an_environment_to_its_end(chromium, serve, options):
    with opened(chromium, serve(**options)) as page:
        assert text_of(page, ".bar .file") == "Guessing"
        assert page.locator(STEP).is_disabled()
        reset_field(page, "seed").fill("7")
        reset_field(page, "arguments").fill('{"split": "train"}')
        reset(page)
        assert text_of(page, ".now .body") == "a number from 1 to 100 7 {'split': 'train'}"
        guess(page, 50)
        assert text_of(page, ".now .body").startswith("lower")
        guess(page, 42)
        assert text_of(page, ".now .body").startswith("found")
        summary = text_of(page, ".now .controls")
        assert f"sum of rewards\u00a0{0.46 + 1.5:.3f}".replace("\u00a0", " ") in summary
        assert "done" in summary
        assert page.locator(STEP).is_disabled()
        assert [text_of(page, f".beside >> nth={step} >> b") for step in (0, 1)] == [
            "0.460",
            "1.500",
        ]


def test_play_shows_the_tree_of_the_chosen_step(chromium, serve):
    with opened(chromium, serve()) as page:
        reset(page)
        guess(page, 50)
        guess(page, 42)
        tree = text_of(page, ".side .tree").split()
        assert [each for each in tree if "." in each] == ["1.500", "0.5", "1.000", "1.000"]
        page.click(".beside >> nth=0")
        tree = text_of(page, ".side .tree").split()
        assert [each for each in tree if "." in each] == ["0.460", "0.5", "0.920", "0.000"]
        assert text_of(page, ".now .body").startswith("lower")
        assert "near" in tree
        assert "found" in tree


def test_play_shows_a_failed_reward_without_a_number(chromium, serve):
    with opened(chromium, serve()) as page:
        reset(page)
        guess(page, 13)
        assert "failed" in text_of(page, ".beside")
        assert page.locator(".beside b").count() == 0
        assert "the judge is down" in text_of(page, ".side .tree .failed .error")
        assert "1 failed" in text_of(page, ".now .controls")
        assert "sum of rewards" not in text_of(page, ".now .controls")
        assert page.locator(STEP).is_enabled()


def test_play_a_step_that_failed_ends_the_episode(chromium, serve):
    with opened(chromium, serve()) as page:
        reset(page)
        guess(page, 99)
        assert "RuntimeError: out of guesses" in text_of(page, ".now .note.is-failed")
        assert page.locator(STEP).is_disabled()
        page.click(RESET)
        page.wait_for_selector(f"{STEP}:enabled")


def test_play_keyboard_steps_and_resets(chromium, serve):
    with opened(chromium, serve(Forms)) as page:
        page.keyboard.press("r")
        page.wait_for_selector(".past li")
        field(page, "text").fill("first\nline")
        field(page, "point", "x").fill("1")
        field(page, "text").press("Control+Enter")
        page.wait_for_selector(".beside")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert "reset" in text_of(page, "dialog.keys")
        page.keyboard.press("Escape")
        page.keyboard.press("w")
        page.wait_for_selector("g-weights")


# Forms --------------------------------------------------------------------------------------------


def test_play_form_has_a_field_for_each_part_of_the_schema(chromium, serve):
    with opened(chromium, serve(Forms)) as page:
        reset(page)
        assert field(page, "metadata").count() == 0
        field(page, "text").fill("end")
        field(page, "short").fill("s")
        field(page, "share").fill("0.25")
        field(page, "color").select_option(label="green")
        field(page, "sure").check()
        field(page, "point", "x").fill("3")
        other = page.locator("""form.action [data-path='["other"]']""")
        other.locator("select").select_option("Point")
        field(page, "other", "x").fill("4")
        field(page, "tags").fill('["a", "b"]')
        page.click(STEP)
        page.wait_for_selector(".beside")
        sent = json.loads(text_of(page, ".now .code"))
        assert sent == {
            "text": "end", "short": "s", "share": 0.25, "color": "green", "kind": "only",
            "sure": True, "point": {"x": 3, "y": 0.5}, "other": {"x": 4, "y": 0.5},
            "tags": ["a", "b"],
        }  # fmt: skip


def test_play_form_leaves_out_what_is_empty(chromium, serve):
    with opened(chromium, serve(Forms)) as page:
        reset(page)
        field(page, "point", "x").fill("3")
        page.click(STEP)
        page.wait_for_selector(".beside")
        assert json.loads(text_of(page, ".now .code")) == {
            "text": "", "color": "red", "kind": "only", "sure": False, "point": {"x": 3, "y": 0.5}
        }  # fmt: skip


def test_play_form_shows_errors_at_their_fields(chromium, serve):
    with opened(chromium, serve(Forms)) as page:
        reset(page)
        page.click(STEP)  # the server requires point.x
        error = page.locator("""form.action [data-path='["point","x"]'] > .error""")
        wait_for(page, lambda: "required" in error.inner_text())
        field(page, "point", "x").fill("3")
        field(page, "tags").fill("[1,")
        page.click(STEP)
        other = page.locator("""form.action [data-path='["tags"]'] > .error""")
        wait_for(page, lambda: "must be JSON" in other.inner_text())
        assert error.inner_text() == ""
        assert field(page, "tags").get_attribute("aria-invalid") == "true"
        assert page.locator(".beside").count() == 0


def test_play_form_of_the_reset_shows_errors(chromium, serve):
    with opened(chromium, serve()) as page:
        for seed in ("-1", "99999999999999999999"):  # which JavaScript would round
            reset_field(page, "seed").fill(seed)
            page.click(RESET)
            page.wait_for_selector("form.reset .error:not(:empty)")
        reset_field(page, "seed").fill("")
        reset_field(page, "arguments").fill("[1]")
        page.click(RESET)
        page.wait_for_selector("text=must be a JSON object")
        reset_field(page, "arguments").fill('{"index": 9007199254740993}')
        page.click(RESET)
        page.wait_for_selector("text=an integer must be within ±(2⁵³ − 1)")


class Walk(Action):
    kind: Literal["walk"] = "walk"
    steps: int


class Wait(Action):
    kind: Literal["wait"] = "wait"


class Either(Action):
    move: Walk | Wait
    amount: int | str = 1


class Moves(Forms):
    """Takes one of two kinds of moves."""

    action_type = Either


def test_play_form_offers_the_members_of_a_union(chromium, serve):
    with opened(chromium, serve(Moves, action_type=Either, observation_type=Seen)) as page:
        reset(page)
        move = page.locator("""form.action [data-path='["move"]']""")
        assert move.locator("option").all_inner_texts() == ["Walk", "Wait"]
        field(page, "move", "steps").fill("3")
        page.locator("""form.action [data-path='["amount"]'] select""").select_option("string")
        field_of_amount = page.locator("""form.action [data-path='["amount"]'] textarea""")
        field_of_amount.fill("many")
        page.click(STEP)
        page.wait_for_selector(".beside")
        sent = json.loads(text_of(page, ".now .code"))
        assert sent == {"move": {"kind": "walk", "steps": 3}, "amount": "many"}


def test_play_tools_are_forms_of_their_arguments(chromium, serve):
    with opened(chromium, serve(Bookings)) as page:
        reset(page)
        assert text_of(page, ".now .message .prose") == "Book a seat on HAT271."
        kinds = page.locator("[aria-label='What to do'] option").all_inner_texts()
        assert kinds == ["seats_left", "book", "call_tools", "message"]
        field(page, "flight").fill("HAT271")
        page.click(STEP)
        page.wait_for_selector("[data-step='0']")
        assert text_of(page, ".now .message .prose") == "2"
        field(page, "flight").fill("HAT999")  # the tool fails: a result of the step
        page.click(STEP)
        page.wait_for_selector("[data-step='1']")
        assert "HAT999" in text_of(page, ".now .message .is-failed")
        page.select_option("[aria-label='What to do']", "book")
        assert "Book seats." in text_of(page, "form.action")
        field(page, "flight").fill("HAT271")
        field(page, "seats").fill("2")
        page.click(STEP)
        page.wait_for_selector("[data-step='2']")
        assert text_of(page, ".now .message .prose") == "booked 2 on HAT271"
        assert "done" in text_of(page, ".now .controls")


def test_play_observations_are_text_tables_images_or_json(chromium, serve):
    with opened(chromium, serve(Forms)) as page:
        reset(page)
        board, grid = page.locator(".now .cells").all()
        assert board.locator("td").all_inner_texts() == list("..XOX....")
        assert grid.locator("tr").nth(2).inner_text().split() == ["0", "2", "4", "6"]
        pixel = """canvas => [canvas.width, canvas.height,
            ...canvas.getContext("2d").getImageData(3, 2, 1, 1).data]"""
        assert page.locator(".now canvas").evaluate(pixel) == [20, 16, 24, 16, 0, 255]
        # JavaScript would round the integer.
        assert json.loads(text_of(page, ".now .code")) == {"a": {"b": [1, {"c": str(2**62 + 1)}]}}


# Transcripts --------------------------------------------------------------------------------------


def downloaded(page, path):
    with page.expect_download() as download:
        page.click("text=Download as a rollout")
    download.value.save_as(path)
    [row] = map(json.loads, path.read_text().splitlines())
    return row


def recorded(factory, actions, seed):
    """The row that the rollout worker writes for the same actions."""
    worker = RLRolloutWorker(factory, ScriptedPolicy(actions), max_steps=len(actions))
    return worker.run_sync(seed=seed).to_row()


def test_play_transcript_is_the_rollout_of_the_worker(chromium, serve, tmp_path):
    actions = [{"number": 13}, {"number": 50}, {"number": 42}]
    with opened(chromium, serve()) as page:
        reset_field(page, "seed").fill("7")
        reset_field(page, "episode_id").fill("played")
        reset(page)
        for action in actions:
            guess(page, action["number"])
        row = downloaded(page, tmp_path / "rollout.jsonl")
    expected = recorded(Guessing, actions, 7)
    assert row == {**expected, "id": "played", "group": "played"}


def test_play_transcript_of_tools_is_the_rollout_of_the_worker(chromium, serve, tmp_path):
    def call(name, **arguments):
        return {"type": "call_tool", "tool_name": name, "arguments": arguments}

    with opened(chromium, serve(Bookings)) as page:
        reset(page)
        for flight in ("HAT271", "none"):
            steps = page.locator(".beside").count()
            field(page, "flight").fill(flight)
            page.click(STEP)
            page.wait_for_selector(f"[data-step='{steps}']")
        row = downloaded(page, tmp_path / "rollout.jsonl")
    actions = [call("seats_left", flight="HAT271"), call("seats_left", flight="none")]
    expected = recorded(Bookings, actions, None)
    assert row == {**expected, "id": row["id"], "group": row["id"], "seed": None}
    assert row["ended"] == "max_steps"


def test_play_transcript_of_a_failed_step_has_its_error(chromium, serve, tmp_path):
    with opened(chromium, serve()) as page:
        reset(page)
        guess(page, 50)
        guess(page, 99)
        row = downloaded(page, tmp_path / "rollout.jsonl")
    assert (row["ended"], row["env_rewards"][1]) == ("error", None)
    assert row["env_rewards"][0] == pytest.approx(0.46)
    assert "step 1: " in row["error"]
    assert "out of guesses" in row["error"]


def test_play_transcript_is_scored_by_guerdon_score(chromium, serve, tmp_path):
    with opened(chromium, serve()) as page:
        reset_field(page, "arguments").fill('{"split": "train"}')
        reset(page)
        guess(page, 50)
        guess(page, 42)
        row = downloaded(page, tmp_path / "rollout.jsonl")
    (tmp_path / "reward.py").write_text(
        "import json\n"
        "from guerdon import as_rubric\n"
        "def near(action, observation):\n"
        "    return 1 - abs(json.loads(action.content)['number'] - 42) / 100\n"
        "reward = as_rubric(near)\n"
    )
    out = tmp_path / "scored.jsonl"
    ScoringJob(str(tmp_path / "rollout.jsonl"), f"{tmp_path}/reward.py:reward", str(out)).run()
    [scored] = map(json.loads, out.read_text().splitlines())
    assert scored["id"] == row["id"]
    assert row["split"] == "train"
    assert scored["step_rewards"] == pytest.approx([0.92, 1.0])


# The reward and the server ------------------------------------------------------------------------


def set_slider(page, name, value):
    page.locator(f"[aria-label='slider of the weight of {name}']").evaluate(
        """(slider, value) => {
            slider.value = value;
            slider.dispatchEvent(new Event("input"));
            slider.dispatchEvent(new Event("change"));
        }""",
        value,
    )


def test_play_slider_changes_a_weight(chromium, serve):
    served = serve()
    with opened(chromium, served, "web/#reward") as page:
        page.wait_for_selector(".entries")
        set_slider(page, "near", 0.8)
        page.wait_for_selector(".audit")
        assert text_of(page, ".audit tbody tr").split()[-3:] == [
            "per_turn.near.weight",
            "0.5",
            "0.8",
        ]
        [change] = served.http.get("/config/audit").json()
        assert change["changes"] == [{"what": "per_turn.near.weight", "from": 0.5, "to": 0.8}]
        assert change["by"] == "the page at /web"
        page.click("text=Play")
        reset(page)
        guess(page, 42)
        assert text_of(page, ".beside b") == "1.800"


def test_play_slider_refuses_a_change_of_another_version(chromium, serve):
    served = serve()
    with opened(chromium, served, "web/#reward", tolerated="412") as page:
        page.wait_for_selector(".entries")
        served.http.post("/config", json={"weights": {"found": 3}}).raise_for_status()
        set_slider(page, "near", 0.8)
        page.wait_for_selector("text=not changed")
        assert "version" in text_of(page, "g-weights .note")
        weights = {
            each["name"]: each["weight"] for each in served.http.get("/config").json()["per_turn"]
        }
        assert weights == {"near": 0.5, "found": 3}
        wait_for(page, lambda: page.locator("[aria-label='weight of found']").input_value() == "3")
        set_slider(page, "near", 0.8)  # the newest configuration was loaded
        wait_for(page, lambda: len(served.http.get("/config/audit").json()) == 2)
        page.wait_for_selector("text=not changed", state="detached")


def test_play_slider_sends_changes_one_after_the_other(chromium, serve):
    served = serve()
    with opened(chromium, served, "web/#reward") as page:
        page.wait_for_selector(".entries")
        for value in (0.6, 0.7, 0.8):  # before the first one is answered
            set_slider(page, "near", value)
        wait_for(page, lambda: len(served.http.get("/config/audit").json()) == 3)
        page.wait_for_selector(".audit tbody tr >> nth=2")
        assert page.locator("[aria-label='weight of near']").input_value() == "0.8"
        assert page.locator("text=not changed").count() == 0


def test_play_slider_changes_a_weight_after_the_server_was_away(chromium, serve):
    served = serve()
    with opened(chromium, served, "web/#reward", tolerated="ERR_FAILED") as page:
        page.wait_for_selector(".entries")
        page.route("**/config*/**", lambda route: route.abort())
        page.route("**/config", lambda route: route.abort())
        set_slider(page, "near", 0.8)
        page.wait_for_selector("g-weights .is-failed")
        page.unroute_all()
        set_slider(page, "near", 0.7)
        wait_for(page, lambda: len(served.http.get("/config/audit").json()) == 1)
        page.wait_for_selector("g-weights .is-failed", state="detached")


@pytest.mark.parametrize("typed", ["", "1e400"])
def test_play_weight_that_is_no_number_changes_nothing(chromium, serve, typed):
    served = serve()
    with opened(chromium, served, "web/#reward") as page:
        page.wait_for_selector(".entries")
        exact = page.locator("[aria-label='weight of near']")
        exact.fill("")
        exact.press_sequentially(typed)
        exact.blur()
        assert exact.input_value() == "0.5"
        set_slider(page, "found", 2)
        wait_for(page, lambda: len(served.http.get("/config/audit").json()) == 1)


def test_play_shows_schedules(chromium, serve):
    reward = {
        "schema_version": "1.0",
        "per_turn": [
            {"name": "near", "rubric": "RegexMatch", "weight": 0.5,
             "config": {"pattern": "x"},
             "schedule": {"piecewise": [[0, 0.5], [10, 0.0]], "by": "training_step"}},
        ],
    }  # fmt: skip
    with opened(chromium, serve(reward=reward), "web/#reward") as page:
        page.wait_for_selector(".entries")
        line = text_of(page, ".entries tbody tr")
        assert "piecewise" in line
        assert line.split()[-1] == "0.250"


def test_play_charts_show_the_metrics(chromium, serve):
    served = serve()
    with opened(chromium, served, "web/#server") as page:
        last = page.locator("g-live .last")
        wait_for(page, lambda: last.first.inner_text() == "1")
        served.client()
        served.client()
        wait_for(page, lambda: last.first.inner_text() == "3")
        assert page.locator("g-live path.curve").count() >= 1
        assert last.nth(3).inner_text() == "0"
        page.click("text=Play")
        page.wait_for_selector("g-player")
        page.click("text=Server")
        page.wait_for_selector("g-live .card")
        assert page.locator("g-live .card").count() == 4


# Connections --------------------------------------------------------------------------------------


def test_play_shows_a_lost_connection_and_connects_again(chromium, serve):
    served = serve(limits=ServerLimits(idle_timeout_s=0.5))
    with opened(chromium, served) as page:
        page.wait_for_selector("text=not connected")
        assert page.locator(RESET).is_disabled()
        note = page.locator("g-play > .status")
        assert note.inner_text().startswith("not connected: "), note.inner_text()
        assert "0.5" in note.inner_text()
        page.click("text=Reconnect")
        page.wait_for_selector("text=/^connected$/")
        assert note.inner_text() == ""
        reset(page)


def test_play_requires_a_reset_after_the_connection_was_lost(chromium, serve):
    served = serve()
    with opened(chromium, served) as page:
        reset(page)
        guess(page, 50)
        page.evaluate("window.dispatchEvent(new Event('pagehide'))")
        page.click("text=Reconnect")
        page.wait_for_selector(f"{RESET}:enabled")
        assert page.locator(STEP).is_disabled()
        field(page, "number").press("Enter")  # is no step
        assert page.locator(".beside").count() == 1
        page.click(RESET)
        page.wait_for_selector(f"{STEP}:enabled")


def test_play_ends_its_session_when_it_is_left(chromium, serve):
    served = serve()
    with opened(chromium, served) as page:
        reset(page)
        assert served.sessions() == 1
        page.goto("about:blank")
        served.empty()


def test_play_with_a_token_has_a_cookie(chromium, serve):
    served = serve(token="s3cret/token")
    with opened(chromium, served, "web/?token=s3cret%2Ftoken") as page:
        assert page.url == f"{served.url}/web/"
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        reset(page)
        guess(page, 42)
        page.reload()
        page.wait_for_selector("text=connected")


def test_play_without_its_token_is_refused(chromium, serve):
    served = serve(token="secret")
    context = chromium.new_context()
    try:
        page = context.new_page()
        assert page.goto(f"{served.url}/web/").status == 401
        assert page.goto(f"{served.url}/web/?token=wrong").status == 401
    finally:
        context.close()


ATTACK = """
async address => {
    const socket = await new Promise(resolve => {
        const opened = new WebSocket(`${address.replace("http", "ws")}/ws`);
        opened.onopen = () => resolve("open");
        opened.onerror = () => resolve("refused");
    });
    const options = { method: "POST", mode: "no-cors", credentials: "include",
                      body: '{"weights": {"near": 9}}' };
    await fetch(`${address}/config`, options).catch(() => null);
    const read = await fetch(`${address}/config`, { credentials: "include" })
        .then(answer => answer.text(), () => "refused");
    const frame = document.createElement("iframe");
    frame.src = `${address}/web/`;
    document.body.append(frame);
    await new Promise(resolve => { frame.onload = resolve; setTimeout(resolve, 2000); });
    return [socket, read];
}
"""


@pytest.mark.parametrize(
    ("site", "token"),
    [
        ("http://evil.test/", None),
        ("http://evil.test/", "secret"),
        ("http://127.0.0.1:9/", "secret"),
        ("http://localhost:9/", "secret"),
    ],
)
def test_play_is_not_reached_by_pages_of_other_sites(chromium, serve, site, token):
    served = serve(token=token)
    context = chromium.new_context()
    context.set_default_timeout(1000 * PATIENCE_S)
    try:
        own, other = context.new_page(), context.new_page()
        own.goto(f"{served.url}/web/?token={token}")
        own.wait_for_selector("text=connected")
        other.route(
            site, lambda route: route.fulfill(body="<!doctype html>", content_type="text/html")
        )
        other.goto(site)
        assert other.evaluate(ATTACK, served.url) == ["refused", "refused"]
        headers = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{served.url}/config/audit", headers=headers).json() == []
        metrics = httpx.get(f"{served.url}/metrics", headers=headers).text
        assert "guerdon_sessions_opened_total 1.0" in metrics
        [frame] = other.frames[1:]
        assert frame.locator("g-play").count() == 0
    finally:
        context.close()


# Hostile text -------------------------------------------------------------------------------------


def test_play_shows_hostile_text_as_text(chromium, serve):
    served = serve(Hostile)
    with opened(chromium, served) as page:
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        reset(page)
        for step, text in enumerate(HOSTILE):
            field(page, "text").fill(text.replace("\x00", ""))
            field(page, "point", "x").fill("1")
            page.click(STEP)
            page.wait_for_selector(f"[data-step='{step}']")
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        page.wait_for_timeout(200)
        assert page.evaluate("window.executed") is None
        active = "script, iframe, object, embed, style, link, meta, base, img, a"
        assert page.locator(f"main :is({active}, [onerror], [onload])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert {httpx.URL(each).host for each in requests} <= {"127.0.0.1"}
        assert page.locator(".invisible").count() > 0


@pytest.mark.parametrize("tab", ["play", "reward", "server"])
def test_play_fits_a_phone_without_layout_shifts(chromium, serve, tab):
    shifts = """
        window.shifts = 0;
        new PerformanceObserver(list => {
            for (const each of list.getEntries()) if (!each.hadRecentInput) shifts += each.value;
        }).observe({ type: "layout-shift", buffered: true });
    """
    size = {"width": 360, "height": 740}
    with opened(chromium, serve(), f"web/#{tab}", viewport=size) as page:
        page.add_init_script(shifts)
        page.reload()
        page.wait_for_selector("text=connected")
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("shifts") < 0.02
        assert not math.isnan(page.evaluate("shifts"))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_play_has_no_violation_of_wcag(chromium, serve, width, theme):
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": theme}
    with opened(chromium, serve(), **options) as page:
        reset(page)
        for number in (50, 13):  # whose reward fails
            guess(page, number)
        for tab in ("play", "reward", "server"):
            page.evaluate("tab => { location.hash = tab }", tab)
            page.wait_for_timeout(200)
            folder = pages.REPOSITORY / ".bench" / "page"
            page.screenshot(path=folder / f"play-{tab}-{width}-{theme}.png")
            assert violations(page) == [], tab
