"""The words that data sets are asked for with: settings know them without loading torch."""

from __future__ import annotations

from typing import Literal, get_args

Normalisation = Literal["diffmg", "row", "none"]

#: The blocks of nodes that are the types, or those that DiffMG took for them.
NodeTypes = Literal["true", "diffmg"]

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
