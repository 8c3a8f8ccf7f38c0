"""Calling an estimator with the columns of its batch and its options side by side."""

from guerdon.credit import StepBatch

COLUMNS = {
    "group",
    "trajectory",
    "step",
    "state",
    "action",
    "values",
    "episode_score",
    "components",
    "valid",
    "default_step_reward",
}


def run(estimator, rewards, **arguments):
    """Call an estimator on `StepBatch.from_arrays`; arguments that aren't columns are options."""
    columns = {name: value for name, value in arguments.items() if name in COLUMNS}
    options = {name: value for name, value in arguments.items() if name not in COLUMNS}
    return estimator(StepBatch.from_arrays(rewards, **columns), **options)
