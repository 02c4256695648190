"""The tensor network over a DAG: its structure, how it is contracted, and what can be asked of it."""
