"""One HTML file to look at a learned distribution: click a choice, and see what the others become.

The cores are small, so the page holds them and computes every conditional marginal itself, exactly. It
needs no network and no server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from tensus_tn._files import write_atomically
from tensus_tn.explorer.svg import dag_svg

if TYPE_CHECKING:  # a tensor shows itself, so it must not be needed here
    from tensus_tn.network.tensor import DagTensor


@dataclass(frozen=True)
class Entry:
    """One of the best entries of a tensor, as the page lists it.

    Attributes:
        choices: The choice of every link, by number.
        log_probability: Of all of them together.
        text: What the list shows.
        links: The links to highlight, by number.
        instances: Where it occurs, a line each.
    """

    choices: Sequence[int]
    log_probability: float
    text: str
    links: Sequence[int]
    instances: Sequence[str] = field(default=())


@dataclass(frozen=True)
class View:
    """A tensor under a name, with its best entries: one of the things that a page can switch between.

    Example:
        >>> from tensus_tn import Dag, DagTensor
        >>> view = View("rank 2", DagTensor(Dag.path(2), choices=["a", "b"], rank=2), [])
        >>> view.content()["choices"]
        [['a', 'b'], ['a', 'b']]
    """

    name: str
    tensor: DagTensor
    best: Sequence[Entry]

    def __post_init__(self) -> None:
        if self.tensor.parametrization != "softmax":
            raise ValueError(
                "only a distribution can be explored: a tensor with softmax cores, got "
                f"parametrization={self.tensor.parametrization!r}"
            )

    def content(self) -> dict[str, Any]:
        """All that the page needs to know, in types that JSON has."""
        dag, structure = self.tensor.dag, self.tensor.structure
        place = {node: k for k, node in enumerate(dag.nodes)}
        return {
            "name": self.name,
            "names": [str(node) for node in dag.nodes],
            "links": [[place[tail], place[head]] for tail, head in dag.edges],
            "ranks": list(structure.ranks),
            "ends": [list(ends) for ends in structure.ends],
            "choices": [choice_names(self.tensor, e) for e in range(len(dag.edges))],
            "cores": [core.double().flatten().tolist() for core in self.tensor.cores().values()],
            "picture": dag_svg(dag, {}, style=False),
            "best": [{**asdict(entry), "links": list(entry.links)} for entry in self.best],
        }


def choice_names(tensor: DagTensor, edge: int) -> list[str]:
    """The names of the choices of an edge, or their numbers where they have none."""
    size = tensor.structure.choices[edge]
    return list(tensor.choice_names.get(tensor.dag.edges[edge], map(str, range(size))))


def best_entries(tensor: DagTensor, k: int) -> list[Entry]:
    """The `k` most probable entries, or as many as there are, with a line for every link."""
    best = tensor.top_k(k).index
    entries = []
    for index, log_probability in zip(best.tolist(), tensor.log_prob(best).tolist(), strict=True):
        lines = [
            f"{tail} -> {head}: {choice_names(tensor, e)[index[e]]}"
            for e, (tail, head) in enumerate(tensor.dag.edges)
        ]
        entries.append(Entry(index, log_probability, "\n".join(lines), range(tensor.ndim)))
    return entries


def page(views: Sequence[View], title: str) -> str:
    """The HTML of a page that shows these views, the first one at first.

    Example:
        >>> from tensus_tn import Dag, DagTensor
        >>> tensor = DagTensor(Dag.path(2), choices=3, rank=2)
        >>> page([View("a", tensor, best_entries(tensor, 5))], "What was learned")[:15]
        '<!doctype html>'
    """
    if not views:
        raise ValueError("a page needs at least one view, got none")
    content = json.dumps({"views": [view.content() for view in views]}, ensure_ascii=False)
    parts = {
        name: (files(__package__) / f"page.{name}").read_text("utf-8") for name in ("css", "js")
    }
    template = (files(__package__) / "page.html").read_text("utf-8")
    return Template(template).substitute(
        title=escape(title),
        css=parts["css"],
        script=parts["js"],
        content=content.replace("<", "\\u003c"),  # no name may end the script
    )


def write_page(
    path: str | os.PathLike[str], views: Sequence[View], title: str = "What was learned"
) -> None:
    """Write the page to a file, whole or not at all."""
    html = page(views, title)
    write_atomically(path, lambda file: file.write(html.encode()))
