"""Which tests are collected: those of worlds whose packages are installed.

`make worlds` and `make live` run the others, where those packages are installed.
"""

from importlib.util import find_spec

PACKAGES = {
    "test_atari.py": "ale_py",
    "test_textarena.py": "textarena",
    "test_tiny_model.py": "torch",
}

collect_ignore = [file for file, package in PACKAGES.items() if find_spec(package) is None]
