"""What comes out of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: The number, the losses and the scores of one epoch.
Record = dict[str, float]


@dataclass
class Result:
    """What came out of a run.

    Attributes:
        config: All settings, as plain values.
        best_epoch: The epoch that was kept.
        epochs: How many epochs were trained.
        val: Loss and scores of the epoch that was kept, on the validation split.
        test: The same on the test split; empty where its labels are not known, see `unscored`.
        num_parameters: How many parameters the network has.
        seconds: How long the training took.
        meta_graphs: The best meta-graph of each network, as `MetaGraph.to_json` has it.
        history: Losses and validation scores of every epoch.
        unscored: Why there are no test scores.
    """

    config: dict[str, Any]
    best_epoch: int
    epochs: int
    val: Record
    test: Record
    num_parameters: int
    seconds: float
    meta_graphs: list[dict[str, Any]] = field(default_factory=list)
    history: list[Record] = field(default_factory=list)
    unscored: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
