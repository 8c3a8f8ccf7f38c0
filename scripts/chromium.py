"""Finds Chromium for the tests of pages; ``python -m scripts.chromium`` installs it if it can."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "Chromium isn't installed: `apt-get install chromium` or `playwright install chromium` "
    "installs it, or set CHROMIUM to its path"
)


def chromium_path() -> str | None:
    """Return the path of Chromium: ``$CHROMIUM``, that of the system, or playwright's own.

    Returns:
        The path; None if there is none, or if playwright isn't installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    names = [each for each in (os.environ.get("CHROMIUM"), *NAMES) if each]
    if found := next(filter(None, map(shutil.which, names)), None):
        return found
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def main() -> None:
    """Install Debian's package as root if Chromium is missing; otherwise say what to do."""
    if chromium_path() is not None:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(MISSING)
        return
    print("installing Chromium")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
    quiet = {
        "stdout": subprocess.DEVNULL,
        "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    }
    if subprocess.run(install, stderr=subprocess.DEVNULL, check=False, **quiet).returncode != 0:
        # The lists of packages are missing or old.
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
        if subprocess.run(install, check=False, **quiet).returncode != 0:
            print(MISSING)


if __name__ == "__main__":
    main()
