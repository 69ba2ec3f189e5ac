"""The older tools as their authors published them: downloaded once with pip, and unpacked in build/public-packages."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

from conftest import ROOT
from waiting import LONG_LIMIT

FOLDER = ROOT / "build" / "public-packages"


def public_package(requirement):
    """The folder with the files of a package, such as "safe-gpu==2.0.0". Nothing of it is installed."""
    target = FOLDER / requirement
    if target.exists():
        return target
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest",
                        folder, requirement], check=True, timeout=LONG_LIMIT)
        [archive] = os.listdir(folder)
        unpacked = f"{folder}/unpacked"
        shutil.unpack_archive(f"{folder}/{archive}", unpacked, "zip" if archive.endswith(".whl") else None)
        with contextlib.suppress(OSError):  # another test was faster
            os.rename(unpacked, target)
    return target
