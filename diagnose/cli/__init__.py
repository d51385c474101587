"""The command line: one module per command; the only place that catches DiagnoseError and chooses exit codes.

Exit codes: 0 diagnosed; 1 a finding at or above `--fail-on`; 2 usage error or nothing usable; 3 with `--strict`
when some input was unusable. Heavy imports sit inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import sys

import typer

from diagnose.cli import attach, doctor, launch, lint, plan, query, rules, run
from diagnose.cli._version import show_version
from diagnose.errors import DiagnoseError

app = typer.Typer(
    name="diagnose",
    help="Where the step time and the memory of a distributed training job went, why, and what to change first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with:  diagnose run trace.json.gz",
)
app.callback()(show_version)
app.command(name="launch", context_settings=launch.SETTINGS)(launch.command)
for _module in (run, lint, plan, query, rules, attach, doctor):
    app.command(name=_module.__name__.rpartition(".")[2])(_module.command)


def main() -> None:
    """Entry point of the `diagnose` command."""
    sys.meta_path.insert(0, _WithoutPandas)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name or a kernel in a script that this locale cannot print
            stream.reconfigure(errors="replace")
    try:
        app()
    except DiagnoseError as error:
        print(f"diagnose: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # `diagnose query ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        print("diagnose: interrupted", file=sys.stderr)
        sys.exit(130)


class _WithoutPandas:
    """Import hook that knows no pandas.

    pyarrow's first `pa.array` imports pandas, if there is one, only to ask whether the value is a Series: 0.35 s of
    each command, and no command uses it. Library users are not affected.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas, leave the rest to the other hooks."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of the command line", name=name)
