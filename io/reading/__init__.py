"""Reading inputs, outputs and history: ``dd.open``, ``dd show``, ``dd diff``."""
