"""How far training is: for all, and for a session that is told something else."""

from guerdon.config import Curriculum
from guerdon.config.live.progress import EpisodeMeans, Progress


def test_a_session_goes_by_the_progress_of_all():
    progress = Progress()
    own = progress.fork()
    progress.report(training_step=5)
    assert (own.training_step, own.begin(), progress.begin(), own.episode) == (5, 0, 1, 2)


def test_what_is_reported_to_a_session_is_for_that_session_alone():
    progress = Progress()
    own, other = progress.fork(), progress.fork()
    own.report(training_step=7, episode=100)
    assert (own.begin(), own.begin(), own.training_step) == (100, 101, 7)
    assert (progress.episode, progress.training_step) == (2, 0)
    assert (other.episode, other.training_step) == (2, 0)
    assert own.told() == {"episode": 102, "training_step": 7, "stage": None}


def test_sessions_share_the_curriculum():
    progress = Progress(Curriculum([{"name": "one", "until": {"episodes": 1}}, {"name": "two"}]))
    own = progress.fork()
    own.curriculum.observe({})
    assert progress.told()["stage"] == own.told()["stage"] == "two"


def test_what_is_too_large_to_be_summed_has_no_mean():
    told = []
    means = EpisodeMeans(told.append)
    means({"a": 1e308, "b": 1.0}, False)
    means({"a": 1e308, "b": 0.0}, True)
    assert told == [{"b": 0.5}]
