"""The page in a real browser: quiet console, no request, every figure draws, no sideways scroll, names stay text."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose import report
from diagnose.report._blocks import Figure
from diagnose.report._html import sections
from tests import ask
from tests.report.example import example
from tests.report.example_run import HOSTILE

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
FIGURES = sum(isinstance(b, Figure) for s in sections(example()) for b in s.blocks)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed (Debian package chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    bare = dataclasses.replace(
        example(), tables={}, findings=[], step_time={"parts": []}, window={"parts": []}, outcomes=[], quality=[]
    )
    across = [ask.CASES / "G13", ask.CASES / "E01"]  # a hang, and links as a log tells them
    pages = {"plain": example(), "hostile": example(hostile=True), "bare": bare, "across": ask.run(*across)}
    for name, diagnosis in pages.items():
        (folder / f"{name}.html").write_text(report.page(diagnosis), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


class Seen:
    """What a page did that it should not."""

    def __init__(self) -> None:
        self.console: list[str] = []
        self.requests: list[str] = []


@contextlib.contextmanager
def _open(browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> Iterator[tuple[Any, Seen]]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, seen = context.new_page(), Seen()
    page.on("console", lambda message: seen.console.append(message.text))
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("dialog", lambda dialog: seen.console.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(file.as_uri())
    yield page, seen
    context.close()


def _draw_all(page: Any) -> None:
    for name in page.evaluate("[...document.querySelectorAll('[data-figure]')].map(plot => plot.id)"):
        page.evaluate(f"document.getElementById('{name}').scrollIntoView({{behavior: 'instant'}})")
        _until(page, f"!!document.querySelector('#{name}.js-plotly-plot .bars')")


def _until(page: Any, condition: str) -> None:
    """Playwright's own wait_for_function evaluates strings in the page, which the page's policy forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {condition}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_every_figure_draws_and_nothing_scrolls_sideways(
    browser: Any, files: dict[str, Path], width: int, scheme: str
) -> None:
    with _open(browser, files["plain"], width, scheme) as (page, seen):
        _draw_all(page)

        assert page.evaluate("document.querySelectorAll('.js-plotly-plot').length") == FIGURES == 8
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].every(p => p.querySelector('path'))")
        assert seen.console == []
        assert seen.requests == [files["plain"].as_uri()]


def test_figures_wait_until_they_come_near(browser: Any, files: dict[str, Path]) -> None:
    with _open(browser, files["plain"]) as (page, _):
        _until(page, "document.querySelector('.js-plotly-plot')")
        assert page.evaluate("document.querySelectorAll('.js-plotly-plot').length") < FIGURES


def test_hostile_names_stay_text(browser: Any, files: dict[str, Path]) -> None:
    with _open(browser, files["hostile"], 360) as (page, seen):
        _draw_all(page)
        _until(page, f"document.body.innerText.includes({HOSTILE[0]!r})")

        assert page.evaluate("document.querySelectorAll('main img, main b b, main script').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        labels = page.evaluate("[...document.querySelectorAll('.ytick text')].map(t => t.textContent)")
        assert any("</script><b>x</b>" in label for label in labels)
        assert seen.console == []
        assert seen.requests == [files["hostile"].as_uri()]


def test_hover_shows_a_hostile_name_as_text(browser: Any, files: dict[str, Path]) -> None:
    with _open(browser, files["hostile"]) as (page, seen):
        _draw_all(page)
        page.evaluate(
            "Plotly.Fx.hover(document.querySelector('#figure-timeline-0'), [{curveNumber: 0, pointNumber: 0}], ['xy'])"
        )
        page.wait_for_selector("#figure-timeline-0 .hovertext")
        shown = page.evaluate("document.querySelector('#figure-timeline-0 .hovertext').textContent")

        assert any(name[:10] in shown for name in HOSTILE[:2]) or "cutlass" in shown or "gnihtemos" in shown
        assert seen.console == []


def test_a_page_without_figures_is_quiet(browser: Any, files: dict[str, Path]) -> None:
    with _open(browser, files["bare"], 360) as (page, seen):
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert seen.console == []


def test_a_hang_its_links_and_groups_fit_a_phone(browser: Any, files: dict[str, Path]) -> None:
    with _open(browser, files["across"], 360) as (page, seen):
        page.evaluate("document.getElementById('groups').scrollIntoView({behavior: 'instant'})")
        _until(page, "!!document.querySelector('#groups .js-plotly-plot .bars path')")

        assert page.evaluate("!!document.getElementById('hangs') && !!document.getElementById('transports')")
        assert page.evaluate("document.querySelector('h1').textContent").startswith("The job hangs: rank 2")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert seen.console == [] and seen.requests == [files["across"].as_uri()]


def test_the_keyboard_reaches_everything(browser: Any, files: dict[str, Path]) -> None:
    """First Tab: skip link. Tables that scroll and names that unfold take the focus, and it can be seen."""
    with _open(browser, files["plain"], 360) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0)")
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_colours_follow_the_scheme_and_print_is_light(browser: Any, files: dict[str, Path]) -> None:
    with _open(browser, files["plain"], scheme="dark") as (page, seen):
        _draw_all(page)
        ink = "document.querySelector('.js-plotly-plot').layout.font.color"
        assert page.evaluate(ink) == "#e4e8ee"
        page.emulate_media(color_scheme="light")
        _until(page, f"{ink} === '#1d2530'")
        page.emulate_media(media="print", color_scheme="dark")
        _until(page, f"{ink} === '#000'")

        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.set_viewport_size({"width": 720, "height": 1000})  # about A4: a table cut by the edge of paper is lost
        assert page.evaluate("document.documentElement.scrollWidth") <= 720
        assert seen.console == []
