"""Which tests are collected: those of worlds whose packages are installed.

`make worlds` runs the others, where the packages of all worlds are installed.
"""

from importlib.util import find_spec

PACKAGES = {"test_atari.py": "ale_py", "test_textarena.py": "textarena"}

collect_ignore = [file for file, package in PACKAGES.items() if find_spec(package) is None]
