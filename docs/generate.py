"""Write docs/tables.md from the schemas: `python docs/generate.py` (a test holds the page to them)."""

from __future__ import annotations

from pathlib import Path

from diagnose import hook_records, pipeline
from diagnose.schema import INGESTED, PROBLEMS, TableSchema

PAGE = Path(__file__).parent / "tables.md"


def page() -> str:
    """The whole page as Markdown."""
    derived = {a.name: a.schema for a in pipeline.discover().values()}
    parts = [
        "# Tables\n",
        "What `diagnose query` and rules see. Written from the schemas by `python docs/generate.py`.\n",
        "A column's unit is its suffix: int64 nanoseconds, int64 bytes, ...; null means unknown, never zero.\n",
        "## Read from inputs\n",
        *(_table(name, schema) for name, schema in INGESTED.items()),
        "## Derived\n",
        *(_table(name, schema) for name, schema in sorted(derived.items())),
        _records(),
        "## Problems that `quality` and `doubts` name\n",
        "| problem | meaning |\n| --- | --- |",
        *(f"| `{slug}` | {meaning} |" for slug, meaning in PROBLEMS.items()),
    ]
    return "\n".join(parts) + "\n"


def _table(name: str, schema: TableSchema) -> str:
    rows = "\n".join(f"| `{c.name}` | {_kind(str(c.type))} | {c.doc.replace('|', '/')} |" for c in schema.columns)
    return f"### {name}\nOne row per {schema.row}.\n\n| column | type | meaning |\n| --- | --- | --- |\n{rows}\n"


def _records() -> str:
    fields = "\n".join(f"| `{f.name}` | {f.doc.replace('|', '/')} |" for f in hook_records.FIELDS)
    flags = "\n".join(f"| {bit} | {doc} |" for bit, doc in hook_records.FLAGS.items())
    return (
        "## Records of the live hook\n"
        "What a training process writes per step (docs/live.md), int64 each; the lowest int64 means unknown. "
        "`series` has them by these names.\n\n"
        f"| field | meaning |\n| --- | --- |\n{fields}\n\n| bit of `flags` | meaning |\n| --- | --- |\n{flags}\n"
    )


def _kind(arrow: str) -> str:
    return "label" if arrow.startswith("dictionary") else arrow.replace("list<item: int32>", "list of int32")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
