"""Text for people: messages, tables, markup, and secrets kept out of them."""
