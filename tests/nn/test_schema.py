"""What links may choose."""

from tensus_tn import Dag
from tensus_tn.nn import MetaGraphConv
from tests.nn.meta_graphs import TYPES


def test_links_may_choose_what_the_types_allow():
    conv = MetaGraphConv(5, 4, TYPES, target="A", dag=Dag.complete(4))
    names = conv.tensor.choice_names
    assert names[0, 1] == ("PA", "AP", "CP", "PC", "identity")
    assert names[0, 2] == ("PA", "AP", "CP", "PC", "identity", "zero")
    assert names[3, 4] == ("AP", "identity")
    assert names[0, 4] == ("AP", "identity", "zero")
    given = MetaGraphConv(5, 4, TYPES, dag=Dag.path(2), choices={(1, 2): ["CP"]})
    assert given.tensor.choice_names == {(0, 1): names[0, 1], (1, 2): ("CP",)}
