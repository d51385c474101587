"""`diagnose plan`: what this layout should take, and which layout would be better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagnose.errors import InputError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from diagnose.planner import Calibration, Job, SearchResult

Source = Annotated[
    Path, typer.Argument(metavar="JOB.TOML", help="The job: model, recipe, layout, cluster.", show_default=False)
]
From = Annotated[
    Path | None,
    typer.Option("--from", metavar="DIAGNOSIS.JSON", help="Calibrate with the diagnosis of a run of this job."),
]
Gpus = Annotated[
    int | None, typer.Option("--gpus", help="Search layouts for this many GPUs.", min=1, show_default=False)
]
Top = Annotated[int, typer.Option("--top", help="How many layouts to show.", min=1)]
Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the plan as JSON; - is standard output.")
]

Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write the plan as one HTML page.")]


def command(
    source: Source,
    diagnosis: From = None,
    gpus: Gpus = None,
    top: Top = 5,
    json: Json = None,
    html: Html = None,
) -> None:
    """Predict the layout in JOB.TOML, say whether it fits, and rank better ones by their speed-up."""
    import json as codec
    import sys

    from rich.console import Console

    from diagnose.planner import search
    from diagnose.planner.written import plan_dict

    job = _job(source, gpus)
    calibration = _calibration(job, diagnosis)
    result = search(job, calibration, top)
    plan = plan_dict(result, calibration)
    plan["gpu_memory_bytes"] = job.cluster.gpu_memory_bytes
    if html is not None:
        from diagnose.report import plan_page

        _write(html, plan_page(plan))
    if json == "-":
        sys.stdout.write(codec.dumps(plan, indent=1) + "\n")
        return
    _print(Console(highlight=False), result, plan)
    if json is not None:
        _write(json, codec.dumps(plan, indent=1) + "\n")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another file") from error


def _job(source: Path, gpus: int | None) -> Job:
    import dataclasses
    import tomllib

    from diagnose.planner import Job

    try:
        tables = tomllib.loads(source.read_text())
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}; expected a job.toml (docs/jobs has examples)") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(source), f"no TOML ({error})", "a job.toml", "see docs/jobs for examples") from error
    job = Job.from_dict(tables)
    return dataclasses.replace(job, search=dataclasses.replace(job.search, gpus=gpus)) if gpus else job


def _calibration(job: Job, diagnosis: Path | None) -> Calibration | None:
    if diagnosis is None:
        return None
    import json

    from diagnose.planner import calibrate

    try:
        return calibrate(job, json.loads(diagnosis.read_text()))
    except OSError as error:
        raise UsageError(f"{diagnosis}: {error.strerror}; expected the diagnosis.json of a run") from error
    except ValueError as error:
        raise InputError(str(diagnosis), f"no JSON ({error})", "a diagnosis.json", "write one: diagnose run") from error


def _print(console: Console, result: SearchResult, plan: dict[str, Any]) -> None:
    from diagnose.planner.written import layout_text

    current = result.current
    console.print(f"[bold]this layout[/]  {layout_text(current.job)}")
    _print_figures(console, plan["current"])
    for row in plan["calibration"]["reproduced"] if plan["calibration"] else []:
        console.print(f"  calibrated: {row['quantity']} of the measured run reproduced to {row['error_ratio']:+.1%}")
    for line in plan["problems"]:
        console.print(f"  [red]cannot run[/]: {line}")
    for line in plan["warnings"]:
        console.print(f"  [yellow]note[/]: {line}")
    console.print(f"\n[bold]{plan['situation']['is']}[/]: {plan['situation']['reach_for']}")
    for step in plan["steps"]:
        console.print(f"  {step['question']} {step['answer']}")
    _print_candidates(console, "better layouts", result.candidates)
    _print_candidates(console, "one change away", result.one_change)
    _print_refused(console, plan)
    if result.candidates:
        framework = current.job.search.framework
        flags = plan["candidates"][0]["flags"].get(framework) or plan["candidates"][0]["flags"]["megatron"]
        console.print(f"\n[bold]settings of the first ({framework})[/]\n{flags}", markup=True, soft_wrap=True)
    console.print("\n[dim]assumed: " + "; ".join(plan["current"]["assumptions"]) + "[/]")


def _print_figures(console: Console, figures: dict[str, Any]) -> None:
    from diagnose.units import duration, size

    low, high = size(figures["memory_low_bytes"]), size(figures["memory_high_bytes"])
    verdict = {True: "fits", False: "does not fit", None: "a close call"}[figures["fits"]]
    console.print(f"  memory {size(figures['memory_total_bytes'])} ({low} to {high}): {verdict}")
    parts = ", ".join(
        f"{name.removesuffix('_bytes')} {size(value)}" for name, value in figures["memory"].items() if value
    )
    console.print(f"  [dim]{parts}[/]")
    console.print(
        f"  step {duration(figures['step_ns'])}, {figures['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU, "
        f"MFU {figures['mfu_ratio']:.1%} [dim]({figures['mfu_convention']})[/]"
    )
    shares = ", ".join(
        f"{part['part']} {part['dur_ns'] / figures['step_ns']:.0%}"
        for part in figures["parts"]
        if part["dur_ns"] >= 0.005 * figures["step_ns"]
    )
    console.print(f"  [dim]{shares}[/]")


def _print_candidates(console: Console, title: str, candidates: Any) -> None:
    from diagnose.planner.written import layout_text
    from diagnose.units import size

    console.print(f"\n[bold]{title}[/]" + ("" if candidates else "  none that is legal and fits"))
    for each in candidates:
        low, high = each.speedup_low_ratio, each.speedup_high_ratio
        console.print(
            f"  {each.speedup_ratio:.2f}x ({low:.2f} to {high:.2f})  {layout_text(each.prediction.job)}  "
            f"{size(each.prediction.memory.total)}"
        )
        console.print(f"        [dim]{each.why}. Trades: {each.trades}[/]")


def _print_refused(console: Console, plan: dict[str, Any]) -> None:
    if plan["refused"]:
        console.print(f"\n[bold]refused[/] of {plan['tried_count']:,} layouts tried")
    for row in plan["refused"][:6]:
        console.print(f"  {row['layouts_count']:,}  {row['reason']}")
