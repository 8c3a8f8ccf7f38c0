"""Environments of the tests of pools, which actors import."""

import os
import time

import ray

from guerdon import Action, Environment, Observation, RegexMatch, State


class Do(Action):
    """What an environment does in a step."""

    do: str = ""
    seconds: float = 0.0


class Where(Observation):
    """Where a step ran, and how many the episode had before."""

    node: str = ""
    process: int = 0
    steps: int = 0


class World(Environment[Do, Where, State]):
    """An environment that sleeps, and ends its process if it is asked to."""

    state = State()

    def __init__(self):
        super().__init__(rubric=RegexMatch(".*", field="do"))
        self.steps = 0

    def reset(self, seed=None):
        self.steps = 0
        return self._where()

    def step(self, action):
        time.sleep(action.seconds)
        if action.do == "exit":
            os._exit(3)
        if action.do == "raise":
            raise OSError("the world ended")
        self.steps += 1
        return self.score(action, self._where())

    def _where(self):
        node = ray.get_runtime_context().get_node_id()
        return Where(node=node, process=os.getpid(), steps=self.steps)
