"""Plans as drawings: a diagram of boxes and loops, and its layout, as SVG and as Mermaid."""
