"""Differential dataflow over version histories, on Spark and Delta Lake."""

from __future__ import annotations

__version__ = "0.1.0"
