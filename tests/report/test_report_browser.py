"""The report in a browser without a window: clicks, search, keyboard, dark colours, a
phone's width, and what axe-core says of it.

It needs the package playwright with its Chromium or one of the system, and the file
that ``AXE_CORE`` names, axe.min.js of the npm package axe-core, for the last of these.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.demo import block

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api")
SIZES = {"desk": (1280, 900), "phone": (360, 740)}
SLOWEST_MS = 100
"""What a person takes for at once."""


def many(x: Any) -> Any:
    """About 5,000 operations, each over some of the last twelve values."""
    rng = np.random.default_rng(0)
    made = [x]
    for i in range(2200):
        a, b = (made[-1 - int(rng.integers(min(12, len(made))))] for _ in range(2))
        made.append(np.tanh(a) * 0.5 + b if i % 3 else a.T @ b * 0.01)
    return sum(made[-12:])


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    model, x, _ = block.draw(block.Config(12, 64, 256, 4))
    found = {"twelve": folder / "twelve.html", "many": folder / "many.html"}
    eq.jit(model.forward).explain(x).html(found["twelve"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eq.BudgetWarning)  # on most machines
        options = eq.Options(deadline_s=5)
        e = eq.jit(many, options=options).explain(np.ones((8, 8), np.float32))
    e.html(found["many"])
    assert len(e.document()["graphs"]["before"]["nodes"]) > 4500
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        try:
            found = p.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start: {error}")
        yield found
        found.close()


def opened(browser: Any, report: Path, size: str = "desk", dark: bool = False) -> Any:
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",  # so that nothing moves while it is clicked
    )
    page.set_default_timeout(10_000)
    errors: list[str] = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("console", lambda m: m.type == "error" and errors.append(m.text))
    page.on("request", lambda r: r.url.startswith("file:") or errors.append(r.url))
    page.goto(report.as_uri())
    page.wait_for_selector("#rows [role=option]")
    assert errors == []
    return page


def pictured(page: Any, name: str) -> None:
    """Keep a picture in the folder that ``REPORT_PICTURES`` names."""
    folder = os.environ.get("REPORT_PICTURES")
    if folder:
        page.screenshot(path=str(Path(folder) / f"report_{name}.png"))


def test_clicks_search_and_keys(browser: Any, reports: dict[str, Path]) -> None:
    page = opened(browser, reports["twelve"])
    pictured(page, "summary")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.click("#tab-before")
    assert page.get_attribute("#tab-before", "aria-selected") == "true"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-after"
    assert page.get_attribute("#tab-after", "aria-selected") == "true"
    page.fill("#search", "attention")
    assert "of" in page.inner_text("#found")
    page.press("#search", "Enter")
    assert page.evaluate("document.activeElement.id") == "nodes"
    chosen = page.inner_text("#rows [aria-selected=true]")
    assert "attention" in chosen and "attention" in page.inner_text("#details")
    page.press("#nodes", "ArrowDown")
    assert page.inner_text("#rows [aria-selected=true]") != chosen
    page.press("#nodes", "End")
    page.press("#nodes", "Home")
    assert page.inner_text("#rows [aria-selected=true]") == chosen
    page.locator("#details summary").first.click()
    assert page.locator("#details table tr").count() > 1
    page.locator("#program").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('program').scrollIntoView()")
    pictured(page, "program")
    page.press("#search", "Escape")
    assert page.input_value("#search") == ""
    page.click("#kernel-table th button >> text=estimate")
    assert page.locator("#kernel-table th[aria-sort=descending]").count() == 1
    page.fill("#rule-search", "softmax")
    assert page.locator("#rule-table tbody tr").count() > 0
    page.evaluate("document.getElementById('h-roof').scrollIntoView()")
    pictured(page, "roofline")
    page.locator("#sources summary").first.click()
    page.wait_for_selector("#sources pre:not(:empty)")  # filled a moment later
    assert len(page.locator("#sources pre").first.inner_text()) > 100
    page.click("#kernel-table tbody a >> nth=0")
    assert page.locator("#details h3").count() == 1
    page.close()


def test_a_click_in_the_drawing_chooses_a_node(
    browser: Any, reports: dict[str, Path]
) -> None:
    page = opened(browser, reports["twelve"])
    page.evaluate("document.getElementById('program').scrollIntoView()")
    page.evaluate("program.choose('after', 20)")
    wanted = page.inner_text("#details h3")
    page.evaluate("program.choose('after', 0, false)")
    box = page.locator("#drawing").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.inner_text("#details h3") == wanted
    before = page.evaluate("program.scale")
    page.press("#drawing", "+")
    page.mouse.wheel(0, -200)
    assert page.evaluate("program.scale") > before
    page.close()


@pytest.mark.parametrize("which", ["twelve", "many"])
@pytest.mark.parametrize("size", list(SIZES))
def test_dark_and_narrow(
    browser: Any, reports: dict[str, Path], which: str, size: str
) -> None:
    page = opened(browser, reports[which], size, dark=True)
    assert page.get_attribute("html", "data-theme") == "dark"
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= SIZES[size][0]
    pictured(page, f"{which}_{size}_dark")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    page.close()


def test_thousands_of_nodes_do_not_lag(browser: Any, reports: dict[str, Path]) -> None:
    page = opened(browser, reports["many"])
    page.click("#tab-before")
    page.evaluate("document.getElementById('program').scrollIntoView()")
    assert page.locator("#rows [role=option]").count() < 60
    spent = page.evaluate(
        """() => {
          const found = {}, timed = (name, f) => {
            const start = performance.now(); f(); program.paint();
            found[name] = performance.now() - start;
          };
          timed("pan", () => { program.x += 40; });
          timed("near", () => program.zoom(1.1));
          timed("whole", () => { program.scale = 0.02; });
          timed("choose", () => program.choose("before", 2500));
          const field = document.getElementById("search");
          timed("search", () => { field.value = "tanh"; program.filter(); });
          return found;
        }"""
    )
    print(spent)
    pictured(page, "many")
    assert max(spent.values()) < 10 * SLOWEST_MS  # counts work, not this machine's load
    page.close()


@pytest.mark.parametrize("which", ["twelve", "many"])
@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(
    browser: Any, reports: dict[str, Path], which: str, size: str, dark: bool
) -> None:
    axe = os.environ.get("AXE_CORE")
    if not axe:
        pytest.skip("AXE_CORE does not name axe.min.js")
    page = opened(browser, reports[which], size, dark)
    page.evaluate("program.choose('after', 3)")
    page.evaluate(Path(axe).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    said = [(v["id"], [n["target"] for n in v["nodes"]]) for v in found["violations"]]
    assert said == []
    page.close()
