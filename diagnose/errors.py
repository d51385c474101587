"""Everything `diagnose` raises on purpose.

DiagnoseError
├── InputError   a file cannot be used: names the file, what was found, what was expected, what to do
├── RuleError    a rule file is wrong: names the rule and the line of thought that failed
└── UsageError   the command line or a call was wrong
"""


class DiagnoseError(Exception):
    """Base of all expected errors. The message is one line, written for the user."""


class InputError(DiagnoseError):
    """An input cannot be read as what it claims to be."""

    def __init__(self, path: str, found: str, expected: str, do: str) -> None:
        self.path, self.found, self.expected, self.do = path, found, expected, do
        super().__init__(f"{path}: found {found}; expected {expected}; {do}")


class RuleError(DiagnoseError):
    """A rule is malformed, binds to a missing column, or fails while it runs."""


class UsageError(DiagnoseError):
    """An option or argument makes no sense."""
