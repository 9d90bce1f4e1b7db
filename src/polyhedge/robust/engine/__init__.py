"""The batch engine: parametric programs of many contexts, solved together."""
