"""Which kernels are in use: the compiled extension or plain PyTorch, on what instruction set."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

from tensus_tn._version import __version__

#: What the user asked for: "" for the best there is, "reference" for plain PyTorch.
REQUESTED = os.environ.get("TENSUS_BACKEND", "")

_C: Any = None
_problem: str | None = None  # why the extension is not in use although it was wanted

if REQUESTED not in ("", "reference"):
    _problem = f"TENSUS_BACKEND is {REQUESTED!r}, expected 'reference' or nothing"
if REQUESTED != "reference":
    try:
        from tensus_tn import _C  # type: ignore[attr-defined, no-redef]
    except ImportError as error:  # not built, or built for something else: said at the first use
        _problem = f"the compiled extension is not available ({error})"


def warn_about_problem() -> None:
    """Say once, at the first use, that the fast kernels are missing."""
    global _problem
    if _problem is not None:
        message, _problem = _problem, None
        backend = "plain PyTorch" if _C is None else "the compiled extension"
        warnings.warn(f"tensus_tn: {message}; propagation runs on {backend}", stacklevel=3)


def show_config() -> dict[str, Any]:
    """Which kernels are in use, printed and returned.

    The backend is `"native"` (the compiled extension) or `"reference"` (plain PyTorch: the
    extension was not built, or the environment variable `TENSUS_BACKEND=reference` is set).
    CUDA tensors take the extension too where CUDA kernels are built into it, for the architectures
    that are named here (and later ones, with PTX), and plain PyTorch otherwise.

    Example:
        >>> config = show_config()  # doctest: +ELLIPSIS
        tensus_tn ...
        >>> config["backend"] in ("native", "reference")
        True
    """
    architectures = "" if _C is None else _C.cuda_architectures()
    config = {
        "tensus_tn": __version__,
        "torch": torch.__version__,
        "backend": "reference" if _C is None else "native",
        "instruction set": None if _C is None else _C.isa(),
        "instruction sets built": [] if _C is None else list(_C.isas()),
        "CUDA kernels built": architectures.split(";") if architectures else [],
        "threads": torch.get_num_threads(),
        "TENSUS_BACKEND": REQUESTED or None,
    }
    width = max(map(len, config))
    for name, value in config.items():
        text = (", ".join(value) or "none") if isinstance(value, list) else value
        print(f"{name:<{width}}  {text}")
    return config
