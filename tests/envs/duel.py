"""A game of two agents, `asker` and `teller`, for tests of rewards by agent."""

from guerdon import Action, Environment, Observation, Rubric, RubricComposer, State
from guerdon.types.agents import AGENT, AGENT_REWARDS

AGENTS = ("asker", "teller")


class Say(Action):
    text: str


class Heard(Observation):
    text: str


class Letters(Rubric):
    """How often the text contains a letter."""

    def __init__(self, letter):
        super().__init__()
        self.letter = letter

    def forward(self, action, observation):
        if "!" in action.text:
            raise OSError("the counter is down")
        return float(action.text.count(self.letter))


def by_letter(**others):
    rubrics = {"asker": Letters("a"), "teller": Letters("t"), **others}
    return RubricComposer(rubrics, dict.fromkeys(rubrics, 1.0), normalize=False)


class Duel(Environment[Say, Heard, State]):
    """The agents speak in turn; "bye" ends the game, and "again" keeps the turn."""

    agents = AGENTS

    def __init__(self, rubric=None):
        super().__init__(rubric=rubric or by_letter())
        self.turn = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._reset_rubric()
        self.turn = 0
        return Heard(text="begin", metadata={AGENT: AGENTS[0]})

    def step(self, action, timeout_s=None, **kwargs):
        self.turn += action.text != "again"
        return self.score(action, self.heard(action))

    def heard(self, action):
        heard = Heard(text=f"heard {action.text}", done=action.text == "bye")
        heard.metadata[AGENT] = AGENTS[self.turn % 2]
        return heard

    @property
    def state(self):
        return State()


class ByHand(Duel):
    """Rewards that the environment sets: what a JSON text says."""

    given: object = None

    def __init__(self):
        super().__init__(rubric=Letters("x"))

    def step(self, action, timeout_s=None, **kwargs):
        heard = super().step(action)
        if self.given is not None:
            heard.metadata[AGENT_REWARDS] = self.given
        return heard
