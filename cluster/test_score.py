"""``guerdon score --engine ray``: the rows of one machine, whatever happens to the cluster."""

import json
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import ray

from guerdon.errors import LoadError, ScoringError
from guerdon.rollouts import CreditSettings, ScoringJob

PATIENCE = 120  # seconds

SLOW = """
    import time
    from guerdon import NumericAnswer

    class Slow(NumericAnswer):
        def forward(self, action, observation):
            time.sleep(0.005)
            return super().forward(action, observation)

    reward = Slow()
"""


def score(tmp_path, rollouts, out, reward="guerdon:NumericAnswer", **options):
    path = tmp_path / out
    options = {"workers": 2, **options}
    return ScoringJob(rollouts, reward, str(path), **options).run(), path.read_bytes()


def wait_until(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("credit", [None, CreditSettings("gigpo")], ids=["", "credit"])
def test_scoring_job_on_ray_writes_the_rows_of_one_machine(cluster, tmp_path, rollouts, credit):
    path = rollouts(2_000)
    alone, rows = score(tmp_path, path, "alone.jsonl", credit=credit)
    report, same = score(tmp_path, path, "ray.jsonl", engine="ray", credit=credit)
    assert same == rows
    assert report.summary.to_dict() == alone.summary.to_dict()
    assert report.summary.failed == 200
    assert not ray.is_initialized()


def test_scoring_job_on_ray_reads_and_writes_parquet(cluster, tmp_path, rollouts):
    path = rollouts(200)
    score(tmp_path, path, "alone.parquet")
    _, rows = score(tmp_path, path, "alone.jsonl")
    scored = ray.data.from_items(list(map(json.loads, Path(path).read_text().splitlines())))
    scored.repartition(1).write_parquet(str(tmp_path / "rollouts"))
    ray.shutdown()
    [file] = (tmp_path / "rollouts").iterdir()
    _, same = score(tmp_path, str(file), "ray.jsonl", engine="ray")
    assert same == rows
    _, stored = score(tmp_path, path, "ray.parquet", engine="ray")
    assert stored == (tmp_path / "alone.parquet").read_bytes()


def test_score_on_ray_resumes_after_its_driver_was_killed(cluster, tmp_path, rollouts, reward):
    path, spec, out = rollouts(1_000), reward(SLOW), tmp_path / "ray.jsonl"
    command = [sys.executable, "-m", "guerdon", "score", path, "-r", spec, "-o", str(out)]
    with subprocess.Popen([*command, "--engine", "ray", "-w", "2"]) as driver:
        wait_until(lambda: lines_of(out) > 100)
        driver.send_signal(signal.SIGKILL)
    report, rows = score(tmp_path, path, "ray.jsonl", spec, engine="ray", resume=True)
    assert report.resumed > 100
    assert report.resumed + report.scored == 1_000
    assert rows == score(tmp_path, path, "alone.jsonl", spec)[1]


def test_score_on_ray_keeps_finished_rows_after_ctrl_c(cluster, tmp_path, rollouts, reward):
    path, spec, out = rollouts(2_000), reward(SLOW), tmp_path / "ray.jsonl"
    command = [sys.executable, "-m", "guerdon", "score", path, "-r", spec, "-o", str(out)]
    with subprocess.Popen([*command, "--engine", "ray", "-w", "2"]) as driver:
        wait_until(lambda: lines_of(out) > 100)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(PATIENCE) == 130
    rows = out.read_bytes()
    assert rows.endswith(b"\n")
    _, every = score(tmp_path, path, "alone.jsonl", spec)
    assert every.startswith(rows)
    assert 100 < rows.count(b"\n") < 2_000


def test_scoring_job_on_ray_scores_each_row_once_though_a_node_is_lost(
    cluster, node, tmp_path, rollouts, reward
):
    path, spec, out = rollouts(1_500), reward(SLOW), tmp_path / "ray.jsonl"
    finished = threading.Event()

    def remove():
        wait_until(lambda: lines_of(out) > 200 or finished.is_set())
        cluster.remove_node(node, allow_graceful=False)

    removing = threading.Thread(target=remove)
    removing.start()
    try:
        report, rows = score(tmp_path, path, "ray.jsonl", spec, engine="ray", workers=3)
    finally:
        finished.set()
        removing.join()
    assert node not in cluster.worker_nodes
    assert report.scored == 1_500
    assert rows == score(tmp_path, path, "alone.jsonl", spec)[1]


def test_scoring_job_on_ray_fails_if_a_reward_ends_its_process(cluster, tmp_path, rollouts, reward):
    spec = reward("""
        import os
        from guerdon import NumericAnswer

        class Ends(NumericAnswer):
            def forward(self, action, observation):
                os._exit(3)

        reward = Ends()
    """)
    with pytest.raises(ScoringError, match="a worker process died"):
        score(tmp_path, rollouts(10), "ray.jsonl", spec, engine="ray")
    assert not ray.is_initialized()


def test_scoring_job_on_ray_fails_if_the_cluster_has_too_few_cpus(
    cluster, tmp_path, rollouts, monkeypatch
):
    monkeypatch.setattr("guerdon.rollouts.scoring.ray_engine.START_S", 1.0)
    with pytest.raises(ScoringError, match="no 50 free CPUs within 1 s; use fewer workers"):
        score(tmp_path, rollouts(10), "ray.jsonl", engine="ray", workers=50)
    assert not ray.is_initialized()


class Judge(BaseHTTPRequestHandler):
    """A chat model that counts the requests that it answers at the same time."""

    lock = threading.Lock()
    now = most = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            Judge.now += 1
            Judge.most = max(Judge.most, Judge.now)
        time.sleep(0.05)
        with self.lock:
            Judge.now -= 1
        message = {"role": "assistant", "content": '{"score": 0.5}'}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        answer = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m",
                             "choices": choices}).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def judged(reward):
    """The reward of a judge that answers at most four requests at once."""
    Judge.now = Judge.most = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Judge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield reward(f"""
            from guerdon import LLMJudge
            from guerdon.services import ChatModel

            model = ChatModel("http://127.0.0.1:{server.server_port}", "m", concurrency=4)
            reward = LLMJudge("Rate it: {{action}}", model)
        """)
        server.shutdown()


@pytest.mark.parametrize("engine", ["ray", "processes"])
def test_scoring_job_workers_share_the_concurrency_of_a_judge(
    cluster, tmp_path, rollouts, judged, engine
):
    report, _ = score(tmp_path, rollouts(100), "out.jsonl", judged, engine=engine, workers=2)
    assert (report.summary.rows, report.summary.failed) == (100, 0)
    assert 1 < Judge.most <= 4


def test_scoring_job_on_ray_rejects_more_workers_than_calls_of_a_judge(
    cluster, node, tmp_path, rollouts, judged
):
    spec = judged.removesuffix(":reward")
    text = Path(spec).read_text().replace("concurrency=4", "concurrency=2")
    Path(spec).write_text(text)
    with pytest.raises(LoadError, match="use at most 2 workers"):
        score(tmp_path, rollouts(10), "ray.jsonl", judged, engine="ray", workers=3)


def test_score_on_ray_prints_what_rewards_print_to_standard_error(
    cluster, tmp_path, rollouts, reward
):
    spec = reward("""
        from guerdon import NumericAnswer

        class Prints(NumericAnswer):
            def forward(self, action, observation):
                print("a word in between")
                return super().forward(action, observation)

        reward = Prints()
    """)
    command = [sys.executable, "-m", "guerdon", "score", rollouts(20), "-r", spec, "-o", "-"]
    command += ["--engine", "ray", "-w", "2"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert len(list(map(json.loads, done.stdout.splitlines()))) == 20
