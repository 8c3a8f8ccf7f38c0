"""The tasks of an environment, by split."""

import pytest

from guerdon.errors import EnvDefinitionError
from tests.envs.server.worlds import Counter, Say

TASKS = [{"goal": number} for number in range(3)]


class Tasked(Counter):
    """Has tasks."""

    public_tasks = {"train": TASKS, "hard": (Say(text="x"), "y")}  # noqa: RUF012

    def reset(self, seed=None, episode_id=None, split="train", index=0, **kwargs):
        return self.begin(f"Reach {self.public_tasks[split][index]}.")


@pytest.fixture
def tasked(serve):
    return serve(Tasked, env_name="Our Env")


def test_splits_have_names_and_types(tasked):
    for name in ("Our Env", "our env", "OUR%20ENV"):
        answer = tasked.http.get(f"/{name}/splits")
        assert answer.json() == [
            {"name": "train", "type": "train"},
            {"name": "hard", "type": "validation"},
        ]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("tasks", {"split": "train"}, {"tasks": TASKS, "env_name": "Our Env"}),
        ("num_tasks", {"split": "hard"}, {"num_tasks": 2}),
        ("task", {"split": "train", "index": 1}, {"task": TASKS[1]}),
        ("task", {"split": "train", "index": -1}, {"task": TASKS[2]}),
        (
            "task",
            {"split": "hard", "index": 0},
            {"task": {"text": "x", "loud": False, "metadata": {}}},
        ),
        ("task_range", {"split": "train"}, {"tasks": TASKS}),
        ("task_range", {"split": "train", "start": 1, "stop": None}, {"tasks": TASKS[1:]}),
        ("task_range", {"split": "train", "start": 5, "stop": 9}, {"tasks": []}),
    ],
)
def test_tasks_are_answered(tasked, path, body, expected):
    answer = tasked.http.post(f"/our env/{path}", json=body)
    assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("our env/tasks", {"split": "tran"}, 404, "did you mean 'train'?"),
        ("our env/task", {"split": "train", "index": 3}, 400, "the split has 3 tasks"),
        ("our env/task", {"split": "train", "index": -4}, 400, "Invalid task index"),
        ("our env/task", {"split": "train", "index": 10**30}, 400, "Invalid task index"),
        ("our env/task", {"split": "train"}, 422, "index"),
        ("our env/task", {"split": "train", "index": 1.5}, 422, "index"),
        ("our env/num_tasks", {}, 422, "split"),
        ("our env/num_tasks", {"split": 1}, 422, "split"),
        ("our env/num_tasks", {"split": "train", "more": 1}, 422, "more"),
        ("our env/num_tasks", [], 422, "the body"),
        ("other/num_tasks", {"split": "train"}, 404, "unknown environment 'other'"),
        ("mcp/tasks", {"split": "train"}, 404, "unknown environment"),
    ],
)
def test_tasks_report_what_is_wrong(tasked, path, body, status, text):
    answer = tasked.http.post(f"/{path}", json=body)
    assert answer.status_code == status
    assert text in answer.text or status == 422


def test_tasks_report_a_body_that_is_not_json(tasked):
    assert tasked.http.post("/our env/tasks", content=b"{").status_code == 422
    assert tasked.http.get("/our env/tasks").status_code == 405


def test_tasks_without_public_tasks_are_not_implemented(serve):
    served = serve(Counter)
    answer = served.http.get("/counter/splits")
    assert answer.status_code == 501
    assert "public_tasks" in answer.json()["detail"]


def test_tasks_of_a_sequence_are_the_split_train(serve):
    class Listed(Counter):
        public_tasks = (1, 2)

    answer = serve(Listed).http.get("/listed/splits")
    assert answer.json() == [{"name": "train", "type": "train"}]


def test_tasks_of_an_answer_are_limited(serve, monkeypatch):
    monkeypatch.setattr("guerdon.envs.server.tasks.MAX_TASKS", 2)
    served = serve(Tasked)
    answer = served.http.post("/tasked/tasks", json={"split": "train"})
    assert (answer.status_code, "task_range" in answer.json()["detail"]) == (400, True)
    body = {"split": "train", "stop": 2}
    assert served.http.post("/tasked/task_range", json=body).json()["tasks"] == TASKS[:2]


@pytest.mark.parametrize("tasks", ["text", 5, {"train": 5}, {"train": {"a": 1}}, {1: [2]}])
def test_server_does_not_start_with_public_tasks_of_another_type(serve, tasks):
    class Wrong(Counter):
        public_tasks = tasks

    with pytest.raises(EnvDefinitionError, match="public_tasks must be a sequence"):
        serve(Wrong)
