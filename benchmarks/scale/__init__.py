"""Past one machine: what blocks, data-parallel training and parts of a graph cost."""
