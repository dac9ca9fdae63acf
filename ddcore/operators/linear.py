"""Linear operators: batch to batch, without state, so that differences pass through as collections would."""

from __future__ import annotations

import numpy as np
import polars as pl

from ddcore import encoding
from ddcore.batch import Batch
from ddcore.collection import FlatMapFunction
from ddcore.graph import Node
from ddcore.operators.reduce import call
from ddcore.schema import Schema


def apply(node: Node, batch: Batch) -> Batch:
    """The updates a linear node makes of updates of its input."""
    if node.kind == "select":
        return _select(node, batch)
    if node.kind == "where":
        return batch.take(np.flatnonzero(node.settings.evaluate(_frame(node, batch, node.settings.columns))))
    if node.kind == "flat_map":
        if isinstance(node.settings, FlatMapFunction):
            return _call(node, batch)
        return _explode(node, batch)
    return batch.negated() if node.kind == "negate" else batch


def _select(node: Node, batch: Batch) -> Batch:
    """Bare columns keep their words; only computed columns are decoded, evaluated and encoded."""
    projection = node.settings
    places = {name: place for place, name in enumerate(node.inputs[0].schema)}
    computed = projection.computed(_frame(node, batch, projection.columns)) if projection.columns is not None else None
    words = []
    for name, kind in node.schema.items():
        if name in projection.renames:
            words.append(batch.words[places[projection.renames[name]]])
        else:
            assert computed is not None
            words.append(encoding.encode(computed[name], kind))
    return batch.of(words)


def _explode(node: Node, batch: Batch) -> Batch:
    lists, rows = node.settings.explode(_frame(node, batch, node.settings.columns))
    taken = batch.take(rows)
    made: Schema = {name: kind for name, kind in node.schema.items() if name in lists.columns}
    words = dict(zip(node.inputs[0].schema, taken.words, strict=True))
    words |= {name: encoding.encode(lists[name], kind) for name, kind in made.items()}
    return taken.of([words[name] for name in node.schema])


def _call(node: Node, batch: Batch) -> Batch:
    """The user's function sees each batch once, rows numbered."""
    source: Schema = node.inputs[0].schema
    frame = encoding.decode_frame(batch.words, source).insert_column(0, pl.Series("row", np.arange(len(batch))))
    made = call(node.settings.function, frame, node.schema, "row", node.place)
    taken = batch.take(made["row"].to_numpy())
    return taken.of(encoding.encode_frame(made, node.schema))


def _frame(node: Node, batch: Batch, columns: list[str]) -> pl.DataFrame:
    """The columns an expression reads, as values. A frame without columns keeps its height through a private one."""
    source: Schema = node.inputs[0].schema
    places = {name: place for place, name in enumerate(source)}
    frame = pl.DataFrame([encoding.decode(batch.words[places[name]], source[name], name) for name in columns])
    return frame if columns else pl.DataFrame({"_row": np.arange(len(batch))})
