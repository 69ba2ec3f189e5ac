"""Makes Python import the modules of older tools from berth.compat, if this folder is in its PYTHONPATH.

Python imports a module named sitecustomize when it starts, before the script. This one installs an import hook. Modules
with the tools' names in this folder would not be sufficient: the script's own folder comes before PYTHONPATH, and may
contain a copy of the original. Nothing of berth is imported until the script imports one of the names, so that other
Python processes do not start more slowly.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Optional, Sequence

TOOL_MODULES = ("safe_gpu", "gpu_lock", "gpuselect", "grn")
SHIM_FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(SHIM_FOLDER)))


class ToolModuleFinder:
    """Finds and loads the tools' modules and their submodules: each is the same module object as in berth.compat."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if name.partition(".")[0] not in TOOL_MODULES:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # importing the loader's base class would take long

    def create_module(self, spec: ModuleSpec) -> None:
        """Returns None: Python then creates a module, which exec_module() replaces. The import system allows that."""

    def exec_module(self, module: ModuleType) -> None:
        try:
            sys.modules[module.__name__] = importlib.import_module("berth.compat." + module.__name__)
        except ImportError:
            wrong_python = describe_wrong_python(module.__name__)
            if wrong_python is None:
                raise
            raise wrong_python from None


def describe_wrong_python(name: str) -> Optional[ImportError]:
    """The error if the package berth was built for another version of Python; None if it was built for this one."""
    import importlib.machinery

    package = os.path.join(PACKAGE_FOLDER, "berth")
    if any(os.path.exists(os.path.join(package, "_native" + suffix)) for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        return None
    built_for = [file.split("-")[1] for file in os.listdir(package) if file.startswith("_native.cpython-")]
    return ImportError("berth's version of %s cannot be imported in Python %d.%d (%s), because berth was built for Python %s; "
                       "start the script with that Python, or install berth for this one" %
                       (name, sys.version_info[0], sys.version_info[1], sys.executable,
                        ", ".join(number[:1] + "." + number[1:] for number in built_for) or "?"))


class BerthPackageFinder:
    """Finds the package berth to which this file belongs, for a Python in which it is not installed."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        return PathFinder.find_spec(name, [PACKAGE_FOLDER]) if name == "berth" else None


def run_shadowed_sitecustomize() -> None:
    """Runs another sitecustomize of the host or the environment, which this file hides."""
    spec = PathFinder.find_spec(__name__)
    if spec is None or spec.loader is None:
        return
    import importlib.util  # imported only here, because it is slow

    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


sys.meta_path.insert(0, ToolModuleFinder())
sys.meta_path.append(BerthPackageFinder())
# The script sees the same sys.path as without Berth.
sys.path[:] = [folder for folder in sys.path if folder != SHIM_FOLDER]
run_shadowed_sitecustomize()
