"""The types of SQL, as programs have them."""

from __future__ import annotations

from sqlglot import exp

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type, parse_type
from ddcore.sql.source import Source
from ddcore.text.wording import listed, meant

BOOL, INT, FLOAT, TEXT = Type("bool"), Type("int64"), Type("float64"), Type("string")
DATE, TIMESTAMP, INTERVAL, BINARY = Type("date"), Type("timestamp"), Type("interval"), Type("binary")
_TYPES = {
    "BIGINT": "int64", "INT": "int64", "SMALLINT": "int64", "TINYINT": "int64", "DOUBLE": "float64", "FLOAT": "float64",
    "BOOLEAN": "bool", "TEXT": "string", "VARCHAR": "string", "CHAR": "string", "NCHAR": "string", "NVARCHAR": "string",
    "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp", "TIMESTAMPNTZ": "timestamp",
    "BINARY": "binary", "VARBINARY": "binary", "JSON": "string", "JSONB": "string",
    "TIME": "time", "UUID": "uuid", "INTERVAL": "interval",
}  # fmt: skip

_KNOWN = [
    "bigint",
    "double",
    "boolean",
    "text",
    "date",
    "timestamp",
    "decimal(p, s)",
    "binary",
    "time",
    "uuid",
    "interval",
]


def declared_type(source: Source, kind: exp.DataType) -> Type:
    """The type that SQL text names. Raises ProgramError for one that no column can have."""
    name = kind.this.value if isinstance(kind.this, exp.DType) else str(kind.this)
    if name in ("DECIMAL", "NUMERIC"):
        digits = [int(expression.name) for expression in kind.expressions]
        text = f"decimal({digits[0]},{digits[1] if len(digits) > 1 else 0})" if digits else "decimal(18,3)"
    elif name == "MAP" and len(kind.expressions) == 2:
        text = f"map[{', '.join(str(declared_type(source, inner)) for inner in kind.expressions)}]"
    elif name in ("ARRAY", "LIST") and len(kind.expressions) == 1:
        text = f"list[{declared_type(source, kind.expressions[0])}]"
    elif name in _TYPES:
        text = _TYPES[name]
    else:
        name = kind.sql(dialect=source.dialect)
        source.refuse(kind, f"the type {name}", meant(name.lower(), _KNOWN) or f"the types are {listed(_KNOWN)}")
    try:
        return parse_type(text)
    except ProgramError as error:
        raise source.error(kind, error.message, error.hint) from None
