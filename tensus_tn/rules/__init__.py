"""Rules on a knowledge graph, one tensor network for each relation."""

from tensus_tn.rules.knowledge_graph import KnowledgeGraph

__all__ = ["KnowledgeGraph"]
