"""RelationGraph: the relations of a heterogeneous graph, ready for propagation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensus_tn._torch_modes import lasting
from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.propagation import edge_lists, extension, graph_file
from tensus_tn.propagation.assembly import GraphOptions, Parts, assemble, checked_dtype
from tensus_tn.propagation.memory import Memory, memory_of
from tensus_tn.propagation.node_ids import RelationKey, relation_name, type_slices
from tensus_tn.propagation.rows import (
    Plans,
    RowPlan,
    as_ids,
    digest,
    ends,
    row_maps,
    used_relations,
)
from tensus_tn.propagation.segments import Segments, order_rows

if TYPE_CHECKING:
    import scipy.sparse as sp
    from typing_extensions import Unpack


@dataclass(frozen=True, eq=False, repr=False)
class RelationGraph:
    """`C` relations `A^i` over the same `N` nodes: row = receiving node, column = sending node.

    Build one with a `from_*` constructor; it does not change afterwards. Non-empty (row, relation)
    pairs are stored in CSR form (`forward`), and once more transposed (`backward`). Self-loops are
    folded: relation `i` of row `n` has a self-loop of weight `forward.seg_loop[s]` if its segment
    `s` is not empty, and `loop[i]` if it is. So the identity is a relation of `loop` 1 without
    edges, the zero relation one of `loop` 0, and neither costs sparse work. Only under `"sym"`, and
    only in a relation with nodes that send but do not receive, added self-loops are stored as edges.

    The constructors share these options:

    - `normalize`: None, `"row"` for `D^-1 A`, `"sym"` for `D_r^-1/2 A D_c^-1/2` with the row and
      column sums of `A`; or a mapping from relations to these. Values must not be negative then.
    - `self_loops`: take `A + I` for `A` in every relation (before normalising).
    - `identity`, `zero`: append relations of these names, which no other kind may have.
    - `dtype`: of the values, float32 or float64. If None, that of the values given: float64 where
      some are float64, float32 where others are floating, torch's default dtype otherwise.

    Duplicate edges are summed. With node types, a relation is named (source type, name, destination
    type), its ids count within the types, and the global id of a node is its type's offset plus
    that id; in `relation_names` the three are joined by `"__"`.

    Example:
        >>> import scipy.sparse as sp
        >>> writes = sp.csr_array([[0, 1, 1, 1], [0, 0, 0, 1], [0] * 4, [0] * 4])
        >>> g = RelationGraph.from_scipy({"W": writes}, normalize="row", self_loops=True, zero=True)
        >>> g
        RelationGraph(4 nodes, 4 edges, 2 relations: W 4 + loops, zero)
        >>> g.to_scipy()["W"].toarray()[:3].tolist()
        [[0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]]
    """

    forward: Segments
    backward: Segments
    loop: Tensor
    relation_names: tuple[str, ...]
    node_counts: tuple[tuple[str, int], ...]
    _plans: Plans[RowPlan] | None = None  # made at the first use: torch.compile can't trace it

    def __post_init__(self) -> None:
        """On a GPU, order the rows once for all calls; in a trace they stay as they are."""
        if not self.loop.is_cuda or extension._C is None or torch.compiler.is_compiling():
            return
        for way in ("forward", "backward"):
            structure: Segments = getattr(self, way)
            if structure.parts is None:
                most = extension._C.cuda_split()
                order = order_rows(structure.row_ptr, structure.seg_ptr, most)
                object.__setattr__(self, way, replace(structure, **order._asdict()))

    @classmethod
    def from_scipy(
        cls,
        relations: Mapping[RelationKey, Any],
        *,
        num_nodes: int | Mapping[str, int] | None = None,
        **options: Unpack[GraphOptions],
    ) -> RelationGraph:
        """From scipy sparse matrices of shape (receiving nodes, sending nodes).

        `num_nodes` is needed where relations are typed (a count for every node type).

        Example:
            >>> import scipy.sparse as sp
            >>> authors_of = sp.csr_array([[1, 1, 0], [0, 1, 1]])
            >>> RelationGraph.from_scipy(
            ...     {("author", "writes", "paper"): authors_of},
            ...     num_nodes={"author": 3, "paper": 2},
            ... )
            RelationGraph(5 nodes, 4 edges, 1 relation: author__writes__paper 4)
        """
        edges, counts = edge_lists.from_matrices(relations, num_nodes, edge_lists.read_scipy)
        return cls(*assemble(edges, counts, **options))

    @classmethod
    def from_torch_sparse(
        cls,
        relations: Mapping[RelationKey, Tensor],
        *,
        num_nodes: int | Mapping[str, int] | None = None,
        **options: Unpack[GraphOptions],
    ) -> RelationGraph:
        """From torch sparse matrices, COO or CSR, of shape (receiving nodes, sending nodes).

        Example:
            >>> import torch
            >>> RelationGraph.from_torch_sparse({"A": torch.eye(3).to_sparse_coo()})
            RelationGraph(3 nodes, 3 edges, 1 relation: A 3)
        """
        edges, counts = edge_lists.from_matrices(relations, num_nodes, edge_lists.read_torch)
        return cls(*assemble(edges, counts, **options))

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Mapping[RelationKey, Tensor],
        num_nodes: int | Mapping[str, int],
        *,
        edge_weight: Mapping[RelationKey, Tensor] | None = None,
        **options: Unpack[GraphOptions],
    ) -> RelationGraph:
        """From PyG's `edge_index_dict`: tensors (2, E), row 0 sends and row 1 receives.

        An edge_index may also be an `EdgeIndex`, or a transposed sparse matrix, `adj_t`.
        `edge_weight` has the values (E,) of relations whose edges do not all have 1. They may learn:
        gradients pass through the normalisation. Build the graph again after each step then.

        Example:
            >>> import torch
            >>> cites = torch.tensor([[0, 1], [1, 2]])
            >>> g = RelationGraph.from_edge_index({("p", "cites", "p"): cites}, {"p": 3})
            >>> g.to_scipy()["p__cites__p"].toarray().tolist()
            [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        edges, counts = edge_lists.from_edge_index(
            edge_index, num_nodes, {} if edge_weight is None else edge_weight
        )
        return cls(*assemble(edges, counts, **options))

    @classmethod
    def from_hetero_data(cls, data: Any, **options: Unpack[GraphOptions]) -> RelationGraph:
        """From a PyG `HeteroData`; its `edge_weight` is used where an edge type has one.

        `options` are those of `from_edge_index`.
        """
        index, counts, weight = edge_lists.hetero_data_parts(data)
        return cls.from_edge_index(index, counts, edge_weight=weight, **options)

    @classmethod
    def from_dgl(cls, graph: Any, **options: Unpack[GraphOptions]) -> RelationGraph:
        """From a DGL graph, one relation for each canonical edge type.

        `options` are those of `from_edge_index`.
        """
        index, counts = edge_lists.dgl_parts(graph)
        return cls.from_edge_index(index, counts, **options)

    @property
    def num_nodes(self) -> int:
        """`N`, over all node types."""
        return self.forward.num_rows

    @property
    def num_relations(self) -> int:
        """`C`, with the identity and the zero relation."""
        return len(self.relation_names)

    @property
    def num_edges(self) -> int:
        """Stored edges `E`; folded self-loops are not among them."""
        return self.forward.num_edges

    @property
    def num_segments(self) -> int:
        """Non-empty (row, relation) pairs."""
        return self.forward.num_segments

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values."""
        return self.loop.dtype

    @property
    def index_dtype(self) -> torch.dtype:
        """int32, or int64 for a graph of 2^31 edges or more."""
        return self.forward.col.dtype

    @property
    def device(self) -> torch.device:
        """Where all tensors are."""
        return self.loop.device

    @property
    def node_types(self) -> dict[str, slice]:
        """The rows of each node type, in order; one type `"node"` for an untyped graph.

        Example:
            >>> RelationGraph.from_edge_index({}, {"author": 3, "paper": 2}).node_types
            {'author': slice(0, 3, None), 'paper': slice(3, 5, None)}
        """
        return type_slices(dict(self.node_counts))

    def relation_index(self, relation: RelationKey) -> int:
        """The position of a relation, given by its name or its edge type.

        Example:
            >>> g = RelationGraph.from_edge_index({}, 3, identity=True, zero=True)
            >>> g.relation_index("zero")
            1
        """
        name = relation_name(relation)
        if name not in self.relation_names:
            raise ValueError(f"no relation {name!r} among {list(self.relation_names)}")
        return self.relation_names.index(name)

    def plan_rows(
        self,
        dag: Dag,
        rows: Tensor | None,
        choices: Mapping[Edge, Sequence[str]] | None = None,
        *,
        support: Tensor | None = None,
    ) -> RowPlan:
        """Which rows of every state `propagate_dag` needs for some rows of the sink.

        It takes less time than a propagation. A few plans are kept, so asking again costs little.

        Args:
            dag: The states and their links.
            rows: Ids (B,) in any order, or a mask (N,); None for all rows.
            choices: The relations that links use, as in `propagate_dag`.
            support: Ids or a mask of the only rows of the source that differ from zero, if not all.

        Example:
            >>> from tensus_tn import Dag
            >>> ring = torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
            >>> g = RelationGraph.from_edge_index({"next": ring}, 6, identity=True)
            >>> g.plan_rows(Dag.path(2), torch.tensor([0, 3]))
            RowPlan(2 rows of the sink; of 6 nodes, the states need 6, 4, 2)
            >>> g.plan_rows(Dag.path(2), torch.tensor([0, 3]), {(0, 1): ["next"]})
            RowPlan(2 rows of the sink; of 6 nodes, the states need 4, 4, 2)
        """
        names = self.relation_names
        chosen = None if choices is None else tuple(used_relations(names, dag, choices)) or None
        if self._plans is None:
            object.__setattr__(self, "_plans", Plans())
        assert self._plans is not None
        with lasting():
            ids = None if rows is None else as_ids("rows", rows, self.num_nodes)
            source = None if support is None else as_ids("support", support, self.num_nodes)
            key = dag, chosen, digest(ids), digest(source)
            return self._plans.fetch(key, lambda: self._make_plan(dag, ids, chosen, source))

    def _make_plan(
        self, dag: Dag, rows: Tensor | None, chosen: tuple[int, ...] | None, support: Tensor | None
    ) -> RowPlan:
        wanted = torch.arange(self.num_nodes) if rows is None else rows
        tails, heads = ends(dag)
        needed = torch.ops.tensus_tn.needed_rows(
            wanted.to(self.device),
            None if support is None else support.to(self.device),
            self.loop,
            self.forward.seg_loop,
            self.forward.structure(),
            self.backward.structure(),
            tails,
            heads,
            chosen,
            len(dag.nodes),
            self.num_relations,
        )
        position = None
        if rows is not None and not torch.equal(needed[-1], rows.to(needed[-1])):
            position = torch.searchsorted(needed[-1], rows.to(needed[-1]))
        maps = row_maps(needed, self.num_nodes) if self.device.type == "cuda" else None
        return RowPlan(dag, self.num_nodes, chosen, tuple(needed), position, self._pattern(), maps)

    def _pattern(self) -> tuple[Tensor | None, ...]:
        """Where there are edges and self-loops, whatever their values."""
        return (*self.forward.structure(), self.loop, self.forward.seg_loop)

    def memory(
        self,
        dag: Dag,
        rank: int | Mapping[Node, int],
        features: int,
        dtype: torch.dtype = torch.float32,
    ) -> Memory:
        """The bytes that a propagation over this graph takes, by part: printed, they are a table.

        `tensus_tn.propagation.memory.memory_of` does the same from counts, and for several machines.

        Args:
            dag: The states and their links.
            rank: Of the inner states, or of every state by its node.
            features: Of each state.
            dtype: Of the states.

        Example:
            >>> from tensus_tn import Dag
            >>> g = RelationGraph.from_edge_index({"A": torch.tensor([[0, 1, 2], [1, 2, 3]])}, 4)
            >>> g.memory(Dag.path(2), rank=2, features=64).forward
            4156
        """
        counted = memory_of(
            dag, rank, features, nodes=self.num_nodes, edges=self.num_edges, dtype=dtype
        )
        edges = {
            "edges, forward": self.forward.nbytes,
            "edges, transposed": self.backward.nbytes,
        }
        return Memory({**counted.parts, **edges})

    def values(self) -> Tensor:
        """The value of every stored edge, (E,), in the forward order."""
        return self.forward.values(self.dtype)

    def with_values(self, values: Tensor) -> RelationGraph:
        """The same structure with other edge values (E,) in the forward order; these may learn.

        Folded self-loops keep their weights. The transpose takes its values now: after a change of
        `values` in place (an optimizer's step) call this again.

        Example:
            >>> import torch
            >>> g = RelationGraph.from_torch_sparse({"A": torch.eye(2).to_sparse_coo()})
            >>> g.with_values(torch.tensor([1.0, 3.0])).to_scipy()["A"].toarray().tolist()
            [[1.0, 0.0], [0.0, 3.0]]
        """
        if tuple(values.shape) != (self.num_edges,):
            raise ValueError(
                f"expected one value for each of {self.num_edges} edges, got shape "
                f"{tuple(values.shape)}"
            )
        checked_dtype(values.dtype)
        if values.device != self.device:
            raise ValueError(f"values are on {values.device}, the graph is on {self.device}")
        graph = self.to(dtype=values.dtype)
        perm = graph.backward.edge_perm
        assert perm is not None
        return replace(
            graph,
            forward=replace(graph.forward, seg_val=None, edge_val=values.contiguous()),
            backward=replace(graph.backward, seg_val=None, edge_val=values.detach()[perm]),
        )

    def to(
        self,
        device: torch.device | str | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
    ) -> RelationGraph:
        """The graph on another device, or with values of another dtype.

        Example:
            >>> import torch
            >>> RelationGraph.from_edge_index({}, 3).to(torch.float64).dtype
            torch.float64
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        dtype = self.dtype if dtype is None else checked_dtype(dtype)
        device = self.device if device is None else torch.device(device)
        if (device, dtype) == (self.device, self.dtype):
            return self
        return self._apply(
            lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() else None)
        )

    def pin_memory(self) -> RelationGraph:
        """The graph in page-locked memory, for asynchronous copies to a GPU."""
        return self._apply(Tensor.pin_memory)

    def _apply(self, move: Callable[[Tensor], Tensor]) -> RelationGraph:
        loop = move(self.loop)
        return replace(
            self,
            forward=self.forward.apply(move),
            backward=self.backward.apply(move),
            loop=loop,
            _plans=self._plans if loop.device == self.device else None,
        )

    def to_scipy(self) -> dict[str, sp.csr_array]:
        """Every relation as the N x N matrix that it applies: values, self-loops and all."""
        import scipy.sparse as sp

        forward = self.forward.apply(lambda t: t.detach().cpu())
        seg = forward.edge_seg()
        row, rel = forward.seg_row()[seg], forward.seg_rel[seg]
        value = forward.values(self.dtype)
        loop = self.loop.cpu()
        diagonals = loop[:, None].repeat(1, self.num_nodes)
        diagonals[forward.seg_rel, forward.seg_row()] = forward.loops(loop)
        matrices = {}
        for i, name in enumerate(self.relation_names):
            mine = rel == i
            index = (row[mine].numpy(), forward.col[mine].numpy())
            edges = sp.csr_array((value[mine].numpy(), index), shape=(self.num_nodes,) * 2)
            diagonal = sp.diags_array(diagonals[i].numpy())
            matrices[name] = (edges + diagonal).tocsr() if loop[i] else edges
        return matrices

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to an `.npz` file, whole or not at all; `load` reads or maps it."""
        fields = (self.forward, self.backward, self.loop, self.relation_names, self.node_counts)
        graph_file.write(path, Parts(*fields))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        verify: bool = False,
        max_bytes: int | None = None,
    ) -> RelationGraph:
        """A graph that `save` wrote, with all checks of a new graph; nothing is executed.

        Args:
            path: The file.
            mmap: Map the arrays rather than read them: that takes milliseconds, memory is used for
                what is touched, and processes share it. Only headers, lengths and types are
                checked; indices are, whenever the graph is propagated over.
            verify: With `mmap`, check everything: checksums, order, transpose and values.
            max_bytes: The most memory that its arrays may take, checked before they are read; 16
                times the size of the file, but at least 256 MiB, if None. A map takes none.

        Example:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "graph.npz")
            >>> RelationGraph.from_edge_index({}, 3, identity=True).save(path)
            >>> RelationGraph.load(path, mmap=True)
            RelationGraph(3 nodes, 0 edges, 1 relation: identity)
        """
        return cls(*graph_file.read(path, max_bytes, mmap=mmap, verify=verify))

    def __repr__(self) -> str:
        forward, loops = self.forward.apply(Tensor.cpu), self.loop.cpu().clone()
        edges = torch.zeros(self.num_relations, dtype=torch.int64)
        edges.index_add_(0, forward.seg_rel.long(), forward.seg_ptr.diff().long())
        if forward.edge_added is not None:
            added = forward.seg_rel[forward.edge_seg()[forward.edge_added]]
            stored = added.bincount(minlength=self.num_relations)
            edges, loops = edges - stored, loops + stored
        parts = []
        for name, count, loop in zip(self.relation_names, edges.tolist(), loops, strict=True):
            special = name in ("identity", "zero") and not count
            parts.append(name if special else f"{name} {count}" + (" + loops" if loop else ""))
        noun = "relation" if self.num_relations == 1 else "relations"
        return (
            f"RelationGraph({self.num_nodes} nodes, {self.num_edges} edges, "
            f"{self.num_relations} {noun}: {', '.join(parts)})"
        )
