"""Names of a package whose modules are loaded when they are first used: torch takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
        package: Its `__name__`.
        modules: The module of each name, within the package.

    Example:
        >>> get, names = lazy_names("tensus_tn", {"Dag": "dag"})
        >>> get("Dag").__name__
        'Dag'
    """
    own = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        own[name] = value = getattr(import_module(f"{package}.{modules[name]}"), name)
        return value

    return get, lambda: sorted({*own, *modules})
