"""Rules: read them, run them in a sandbox, and turn what they return into answers.

A rule is a SELECT that returns its offenders, so no row means clear. The engine knows tables by name only: which
analysis fills them is the pipeline's business.
"""

from diagnose.engine.evaluate import bind, evaluate, ranked
from diagnose.engine.explain import explain
from diagnose.engine.load import load_rules
from diagnose.engine.query import query, tables_named
from diagnose.engine.questions import questions
from diagnose.engine.symptoms import symptoms
from diagnose.findings import Rule

__all__ = [
    "Rule",
    "bind",
    "evaluate",
    "explain",
    "load_rules",
    "query",
    "questions",
    "ranked",
    "symptoms",
    "tables_named",
]
