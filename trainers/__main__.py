"""``python -m trainers [--only trl]``: install each trainer, and run its tests and its page."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from trainers import homes

ROOT = homes.ROOT


class Trainer(NamedTuple):
    """The packages of a trainer, the tests that need them, and its page in the documentation.

    `version` is that of Python, if the trainer needs another than this one.
    """

    packages: tuple[str, ...]
    tests: tuple[str, ...]
    page: str
    version: str = ""


# What SkyRL's generator and trainer import of its extra `skyrl-train`, which needs a GPU.
SKYRL_TRAIN = (
    "aiohttp", "hydra-core==1.3.2", "jaxtyping", "loguru", "omegaconf", "orjson", "pybase64",
    "ray==2.57.0", "tensorboard", "tensordict", "torchdata",
)  # fmt: skip

TRAINERS = {
    # Not a trainer, but a model that is trained in the arena's worlds: see `make arena-lm`.
    "arena-lm": Trainer(
        (homes.TORCH, "matplotlib>=3.9"), ("trainers/test_arena_lm.py",), "credit-arena-lm"
    ),
    "nemo-gym": Trainer(
        ("nemo-gym==0.4.0",),
        ("trainers/test_nemo_gym.py", "tests/integrations/test_nemo_gym.py"),
        "train-with-nemo-gym",
        version="3.12",
    ),
    "openrlhf": Trainer(
        (homes.TORCH, "openrlhf==0.11.2", "--override=trainers/overrides-openrlhf.txt"),
        ("trainers/test_openrlhf.py", "tests/integrations/test_openrlhf.py"),
        "train-with-openrlhf",
    ),
    # Not a trainer, but a model: the agent, user and judge of `make live`.
    "tiny-model": Trainer(
        (homes.TORCH, "transformers==5.23.0", "openai>=1.40", "mcp>=2"),
        ("tests/examples/test_tiny_model.py", "tests/examples/test_tiny_model_grammar.py"),
        "play-rollouts",
    ),
    "trl": Trainer(
        (homes.TORCH, "trl==1.16.0", "transformers==5.23.0", "rich", "matplotlib", "aiohttp"),
        ("trainers/test_trl.py", "tests/integrations/test_trl.py"),
        "train-with-trl",
    ),
    "verl": Trainer(
        (homes.TORCH, "verl[verl-core]==0.9.1", "cachetools", "fastapi"),
        ("trainers/test_verl.py", "tests/integrations/test_verl.py"),
        "train-with-verl",
    ),
    "rllib": Trainer(
        (homes.TORCH, "ray[rllib]==2.60.0", "gymnasium>=1.1", "pettingzoo>=1.25"),
        ("trainers/test_rllib.py", "tests/integrations/test_gymnasium.py"),
        "train-with-gymnasium",
    ),
    "skyrl": Trainer(
        (
            homes.TORCH,
            "skyrl==0.3.0 ; python_version < '3.12'",
            "skyrl==0.4.0 ; python_version >= '3.12'",
            "skyrl-gym==0.4.0",
            *SKYRL_TRAIN,
        ),
        ("trainers/test_skyrl.py", "tests/integrations/test_skyrl.py"),
        "train-with-skyrl",
    ),
    "verifiers": Trainer(
        ("verifiers==0.4.0", "openenv==0.10.0", "--override=trainers/overrides-verifiers.txt"),
        ("trainers/test_verifiers.py", "tests/integrations/test_verifiers.py"),
        "train-with-verifiers",
    ),
}


def main() -> int:
    """Run the trainers that were named, or all; return 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m trainers")
    parser.add_argument("--only", choices=sorted(TRAINERS), help="run this trainer alone")
    only = parser.parse_args().only
    homes.AGREEMENTS.unlink(missing_ok=True)
    results = {name: _run(name, TRAINERS[name]) for name in TRAINERS if only in (None, name)}
    if only is None:
        print("One reward, every trainer", flush=True)
        results["every trainer"] = _result(
            _module("trainers.every_trainer"), _module("trainers.matrix", "--packages")
        )
    print("\n".join(f"{name}: {result}" for name, result in results.items()))
    return int("failed" in results.values())


def _result(*exit_codes: int) -> str:
    return "failed" if any(exit_codes) else "passed"


def _run(name: str, trainer: Trainer) -> str:
    start = perf_counter()
    print(f"{name}: installing {', '.join(trainer.packages)}", flush=True)
    python, missing = homes.make(name, trainer.packages, trainer.version)
    if missing:
        return f"skipped: {missing}"
    print(f"{name}: installed in {perf_counter() - start:.0f} s", flush=True)
    page = ["tests/docs/test_code_blocks.py", "--docs", "-k", f"code_blocks_run and {trainer.page}"]
    return _result(_pytest(python, *trainer.tests), _pytest(python, *page))


def _module(name: str, *arguments: str) -> int:
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _pytest(python: Path, *arguments: str) -> int:
    """Run tests; warnings of the trainer's packages aren't errors."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "filterwarnings=ignore", *arguments]
    # One thread, so that a run is the same on every machine of a kind; nothing is looked up online.
    fixed = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(command, cwd=ROOT, env=os.environ | fixed, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
