"""Rule files: a TOML header in the leading comment, then one SELECT.

`rules/<symptom>/<rule-id>.sql`: the folder is the symptom, the stem is the id. Everything that can be checked
without data is checked here; columns are checked by `evaluate.bind` against empty tables.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from diagnose.errors import RuleError, UsageError
from diagnose.findings import SEVERITIES, SYMPTOMS, Rule

_TEXTS = ("title", "summary", "why", "fix", "quiet_when")
_LISTS = ("needs", "sources")
_OPTIONAL: dict[str, tuple[type, Any]] = {
    "needs_values": (list, []),
    "decides": (bool, False),
    "general": (bool, False),
    "collect": (str, ""),
    "params": (dict, {}),
    "overrides": (bool, False),
}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def load_rules(folders: Iterable[Path | str]) -> list[Rule]:
    """Every rule under `folders`, by symptom and id; a later folder replaces a rule only where it says `overrides`.

    Raises RuleError for a malformed rule or a clash of ids, UsageError for a folder that is absent or holds no rule.
    """
    rules: dict[str, Rule] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder of rules; give a folder with <symptom>/<rule-id>.sql files")
        paths = sorted(folder.rglob("*.sql"))
        if not paths:
            raise UsageError(f"{folder}: holds no rule; expected <symptom>/<rule-id>.sql files")
        for path in paths:
            rule, overrides = _read(path)
            if rule.id in rules and not overrides:
                raise RuleError(
                    f"{path}: a rule {rule.id!r} exists; rename the file or say `overrides = true` in its header"
                )
            rules[rule.id] = rule
    order = list(SYMPTOMS)
    return sorted(rules.values(), key=lambda rule: (order.index(rule.symptom), rule.id))


def load(path: Path | str) -> Rule:
    """One rule file. Raises RuleError that names the file and what to change."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[Rule, bool]:
    symptom = path.parent.name
    if symptom not in SYMPTOMS:
        raise RuleError(f"{path}: folder {symptom!r} is no symptom; put the file in one of {', '.join(SYMPTOMS)}")
    if not _ID.fullmatch(path.stem):
        raise RuleError(f"{path}: the file name is the rule's id; use lower-case words joined by '-'")
    header, sql = _split(path)
    _check_header(path, header)
    options = {key: header.get(key, default) for key, (_, default) in _OPTIONAL.items()}
    params = options["params"]
    _check_params(path, params)
    _check_select(path, sql, params)
    rule = Rule(
        id=path.stem,
        symptom=symptom,
        severity=header["severity"],
        needs=tuple(header["needs"]),
        sources=tuple(header["sources"]),
        needs_values=tuple(options["needs_values"]),
        decides=options["decides"],
        general=options["general"],
        collect=options["collect"],
        params=params,
        sql=sql,
        **{key: " ".join(header[key].split()) for key in _TEXTS},
    )
    return rule, options["overrides"]


def _split(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RuleError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    opening, _, rest = text.partition("/*")
    comment, closing, sql = rest.partition("*/")
    if opening.strip() or not closing:
        raise RuleError(f"{path}: no header; begin the file with /* TOML */ and put the SELECT below it")
    try:
        return tomllib.loads(comment), sql.strip()
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{path}: the header is not TOML: {error}; quote texts and put lists in [ ]") from error


def _check_header(path: Path, header: Mapping[str, Any]) -> None:
    known = ("severity", *_TEXTS, *_LISTS, *_OPTIONAL)
    for key in header:
        if key not in known:
            raise RuleError(f"{path}: unknown header key {key!r}{suggest(key, known)}")
    for key in ("severity", *_TEXTS):
        if not isinstance(header.get(key), str) or not header[key].strip():
            raise RuleError(f'{path}: header lacks {key}; add {key} = "..."')
    for key in _LISTS:
        _check_texts(path, key, header.get(key), empty=False)
    for key, (kind, default) in _OPTIONAL.items():
        if not isinstance(header.get(key, default), kind):
            raise RuleError(f"{path}: {key} must be a {kind.__name__}, found {header[key]!r}")
    _check_texts(path, "needs_values", header.get("needs_values", []), empty=True)
    if header["severity"] not in SEVERITIES:
        raise RuleError(f"{path}: severity {header['severity']!r}; use one of {', '.join(SEVERITIES)}")
    for entry in header.get("needs_values", []):
        table, _, column = entry.partition(".")
        if not column or table not in header["needs"]:
            raise RuleError(f"{path}: needs_values entry {entry!r}; write table.column, the table listed in needs")


def _check_texts(path: Path, key: str, value: Any, *, empty: bool) -> None:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value) or not (value or empty):
        raise RuleError(f'{path}: {key} must be a list of texts; write {key} = ["..."]')


def _check_params(path: Path, params: Mapping[str, Any]) -> None:
    for name, value in params.items():
        if not _NAME.fullmatch(name):
            raise RuleError(f"{path}: parameter {name!r}; use a lower-case name with its unit as suffix")
        if not isinstance(value, dict) or set(value) != {"default", "doc"}:
            raise RuleError(
                f'{path}: parameter {name}; write {name} = {{ default = ..., doc = "where the number comes from" }}'
            )
        if not isinstance(value["doc"], str) or not value["doc"].strip():
            raise RuleError(
                f"{path}: parameter {name} has no doc; say where it comes from ('a guess, to be fitted' will do)"
            )
        if not isinstance(value["default"], (bool, int, float, str)):
            raise RuleError(f"{path}: parameter {name}: the default must be a number, a text or a boolean")


def _check_select(path: Path, sql: str, params: Mapping[str, Any]) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise RuleError(f"{path}: {one_line(error)}; correct the SELECT below the header") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(s.type).rpartition(".")[2] for s in statements) or "nothing"
        raise RuleError(f"{path}: expected one SELECT below the header, found {kinds}")
    used = statements[0].named_parameters
    for name in sorted(used - set(params)):
        raise RuleError(f"{path}: ${name} is used but not declared{suggest(name, params)}; add it under [params]")
    for name in sorted(set(params) - used):
        raise RuleError(f"{path}: parameter {name} is declared but ${name} is not used; use it or remove it")


def one_line(error: BaseException) -> str:
    """The text of an error without its pointer to the source, on one line."""
    text = str(error).split("\n\n")[0]
    return " ".join(text.split())


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` where a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
