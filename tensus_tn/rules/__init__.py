"""Rules on a knowledge graph, one tensor network for each relation."""

from tensus_tn.rules.explain import Explanation, Part
from tensus_tn.rules.export import draw_rules, to_anyburl, to_csv, to_json
from tensus_tn.rules.knowledge_graph import KnowledgeGraph
from tensus_tn.rules.model import RuleModel
from tensus_tn.rules.planted import planted_rules
from tensus_tn.rules.ranking import Ranking
from tensus_tn.rules.rule import Atom, Rule
from tensus_tn.rules.training import FitReport, Settings

__all__ = [
    "Atom",
    "Explanation",
    "FitReport",
    "KnowledgeGraph",
    "Part",
    "Ranking",
    "Rule",
    "RuleModel",
    "Settings",
    "draw_rules",
    "planted_rules",
    "to_anyburl",
    "to_csv",
    "to_json",
]
