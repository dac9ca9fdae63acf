"""Collections and plans as they look in a notebook."""

from __future__ import annotations

from ddcore.drawing.diagram import diagram
from ddcore.drawing.svg import DARK, LIGHT, svg
from ddcore.operators.borders import Input, Leave
from ddcore.planning.plan import Plan
from ddcore.program.graph import Graph, Node
from ddcore.text.markup import scrolling, svg_inline, table
from ddcore.text.notebook import fragment, heading, note, themed

_MOST = 400  # nodes of a plan that are drawn: a larger drawing helps nobody


def collection_piece(graph: Graph, index: int) -> str:
    """A collection: its columns, what computes it and where, and the inputs it depends on. No rows: it has none yet."""
    node = graph.nodes[index]
    rows = [[name, str(kind)] for name, kind in node.schema.items()]
    parts = [heading("Collection", _told(node)), table(["column", "type"], rows, label="columns")]
    if node.inputs:
        parts.append(note("reads ", "; ".join(_told(graph.nodes[number]) for number in node.inputs)))
        parts.append(note("depends on ", ", ".join(_inputs(graph, index)) or "no input"))
    return fragment(*parts)


def plan_piece(plan: Plan) -> str:
    """A plan: its outputs, and the drawing of its dataflow."""
    about = f"{', '.join(plan.inputs)} to {', '.join(plan.outputs)}"
    if len(plan.nodes) > _MOST:
        return fragment(heading("Plan", about), note(f"{len(plan.nodes):,} operators are too many to draw here."))
    drawing = svg_inline(svg(diagram(plan), f"dataflow from {about}"))
    colors = themed("svg.dataflow", LIGHT, DARK)
    return fragment(heading("Plan", about), scrolling(drawing, "dataflow"), style=colors)


def _told(node: Node) -> str:
    operator = node.operator
    if isinstance(operator, Input):
        return f"input {operator.text}"
    name = "iterate" if isinstance(operator, Leave) else operator.name
    return f"{name} at {node.source_line}"


def _inputs(graph: Graph, index: int) -> list[str]:
    """The names of the inputs on which a node depends, in the order of the program; also through finished loops."""
    operators = (graph.nodes[number].operator for number in sorted(graph.upstream([index])))
    return [operator.text for operator in operators if isinstance(operator, Input)]
