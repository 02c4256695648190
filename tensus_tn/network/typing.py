"""Names for the types that the modules of this folder share."""

from __future__ import annotations

from typing import Any

Indices = tuple[int, ...]  # of a tensor: ranks and choices, each a number
Optimize = Any  # what opt_einsum takes: a name, or an optimizer object such as cotengra's
Pairs = list[tuple[int, int]]  # operands by number; a result takes the next free number
