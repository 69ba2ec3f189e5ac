"""Has the modules of older tools served by berth.compat, in a Python that finds this folder in its PYTHONPATH.

Python imports a module of this name when it starts, before the script. A hook in the import system, rather than modules
of these names in the folder: the script's own folder comes before PYTHONPATH, and may hold a copy of the original.
Nothing of berth is imported until the script imports one of the names, so that other Pythons below start as fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # to import typing would take longer than all the rest
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Optional, Sequence

TOOL_MODULES = ("safe_gpu", "gpu_lock", "gpuselect", "grn")
SHIM_FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(SHIM_FOLDER)))


class ToolModuleFinder:
    """Finds and loads the tools' modules, and their submodules: each *is* the module of berth.compat, not a copy."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if name.partition(".")[0] not in TOOL_MODULES:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # its base class would take long to import

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's usual one will do: exec_module() puts another into its place, which the import system allows."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module("berth.compat." + module.__name__)


class BerthPackageFinder:
    """Finds the package berth where this file belongs to it, for a Python that has none of its own."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        return PathFinder.find_spec(name, [PACKAGE_FOLDER]) if name == "berth" else None


def run_shadowed_sitecustomize() -> None:
    """This file hides another sitecustomize that the host or the environment may have."""
    spec = PathFinder.find_spec(__name__)
    if spec is None or spec.loader is None:
        return
    import importlib.util  # only where it is needed: it takes a while

    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


sys.meta_path.insert(0, ToolModuleFinder())
sys.meta_path.append(BerthPackageFinder())
# The script sees the path that it would see without berth.
sys.path[:] = [folder for folder in sys.path if folder != SHIM_FOLDER]
run_shadowed_sitecustomize()
