"""The report: figures from records, the page and its PNGs, and what is refused."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from test_cli import arena
from test_failures import records, sources

import arena_jax
from arena_jax.analysis.report.ablation_file import read_ablation
from arena_jax.analysis.report.build import report_figures, report_page
from arena_jax.analysis.report.charts import crisis_spans, results, survival_curves
from arena_jax.analysis.report.figures import Axis, Bars, Panel, Style, _written, limits, ticks
from arena_jax.analysis.report.lenses import MULTIPLES, TOOL_COSTS, ablation_bars, ranking_map
from arena_jax.analysis.report.page import _in_script, figure_section
from arena_jax.analysis.report.png import png
from arena_jax.analysis.sources import Ground, Sources, plain_params, read_sources
from arena_jax.analysis.table import figure as written
from arena_jax.evaluation import evaluate
from arena_jax.folders import policy_folder
from arena_jax.parts import Split, write_part
from arena_jax.scenario import default_scenario, digest
from arena_jax.version import __version__

KEYS = ["table-1", "survival", "scores", "cash", "requests", "ranking"]


@pytest.fixture(scope="module")
def read(simulated_run, agents_run):
    return read_sources([simulated_run, agents_run])


@pytest.fixture(scope="module")
def figures(read):
    return report_figures(read)


@pytest.fixture(scope="module")
def page(read, figures):
    return report_page(read, figures).decode()


def test_every_figure_says_n_seed_and_version_and_has_its_data(figures):
    assert [figure.key for figure in figures] == KEYS
    for figure in figures:
        for text in ("200", "seed 3", f"arena_jax {__version__}", "EnterpriseArena-v1", "default trajectory"):
            assert text in figure.source, figure.key
        assert figure.summary
        assert figure.table.rows
        assert {len(row) for row in figure.table.rows} == {len(figure.table.headings)}


def test_table_1_has_the_sources_and_the_published_rows(figures, read):
    rows = {row[0]: row[1:] for row in figures[0].table.rows}
    assert list(rows) == [
        "never-raise", "late-raiser", "someone",
        *[f"{agent} (published)" for agent in ("Human", "DeepSeek-V4", "Codex CLI + GPT-5.5", "Overall")],
    ]  # fmt: skip
    assert rows["never-raise"][0] == "200"
    assert rows["never-raise"][1].startswith("0.0% (0.0% to ")
    assert rows["Overall (published)"][1] == "15.4%"
    survived = np.mean(read.sources[1].record.survived)
    assert rows["late-raiser"][1].startswith(f"{survived:.1%}")


def test_survival_is_drawn_with_its_band_and_the_three_crises(figures):
    (panel,) = figures[1].panels
    spans = [(mark.start, mark.end) for mark in panel.marks if hasattr(mark, "start")]
    assert spans == [(20, 37), (46, 63), (99, 115)]  # design: surges in months 20-36, 46-62, 99-114
    line = panel.marks[3]
    assert line.style.label == "never-raise"
    assert (line.low <= line.y).all() and (line.y <= line.high).all()
    assert line.y[30] == 1.0 and line.y[-1] == 0.0


def test_crises_of_unknown_worlds_are_not_shaded():
    assert crisis_spans(None) == []
    figure = survival_curves(sources(records(survived=[True], months_played=[132], months_survived=[132])))
    assert "not shaded" in figure.about


def test_the_ranking_is_that_of_the_scores(figures, read):
    """At the paper's λ and m the order of the records' own scores; the cheapest caller wins where calls are dear."""
    rows = {row[0]: dict(zip(figures[5].table.headings[1:], row[1:], strict=True)) for row in figures[5].table.rows}
    means = [float(np.mean(source.record.score)) for source in read.sources]
    assert means[1] > means[0] == means[2] == 0.0
    assert rows["$5K"]["5"] == "2 > 1 = 3"
    assert (TOOL_COSTS[2], MULTIPLES[10]) == (5e3, 5.0)


def together(*found, seeds=None):
    """Hand-made records as sources of their own, of the same episodes if their seeds are the same."""
    made = [sources(record) for record in found]
    return dataclasses.replace(
        made[0],
        sources=tuple(
            dataclasses.replace(one.sources[0], label=f"made {i}", seeds=(seeds[i] if seeds else 0,))
            for i, one in enumerate(made)
        ),
    )


def test_a_ranking_changes_where_calls_become_dear():
    frugal = records(survived=[True, True], revenue_ttm=[1e6, 1e6], cash=[0, 0])
    hungry = records(survived=[True, True], revenue_ttm=[2e6, 2e6], cash=[0, 0], verify_cash_position=[400, 400])
    both = together(frugal, hungry)
    cells = {row[0]: row[1:] for row in ranking_map(both).table.rows}
    # 5 * 1M of revenue more against 400 calls: they change places at λ = $12.5K
    assert cells["$12K"][10] == "2 > 1" or cells["$10K"][10] == "2 > 1"
    assert cells["$15K"][10] == "1 > 2"
    assert "another λ" in ranking_map(both).about


def test_each_area_of_the_ranking_has_its_letter():
    frugal = records(survived=[True, True], revenue_ttm=[1e6, 1e6])
    hungry = records(survived=[True, True], revenue_ttm=[2e6, 2e6], verify_cash_position=[400, 400])
    figure = ranking_map(together(frugal, hungry))
    tiles, signs = figure.panels[0].marks[:2]
    assert {one.label[:2] for one in tiles.styles} == {f"{text}:" for text in signs.texts}
    for x, y, text in zip(signs.x, signs.y, signs.texts, strict=True):
        (place,) = tiles.index[tiles.y == y, tiles.x == x]
        assert tiles.styles[place].label.startswith(text)


def test_equal_scores_are_no_ranks():
    """Two policies whose companies all go bankrupt: 0 and 0, whether or not they played the same episodes."""
    gone = records(survived=[False, False])
    living = records(survived=[True, True], revenue_ttm=[1e6, 1e6])
    for seeds in ((0, 0, 0), (0, 1, 2)):
        figure = ranking_map(together(gone, gone, living, seeds=seeds))
        assert figure.table.rows[0][2:] == ["3 > 1 = 2"] * 20
        assert figure.table.rows[0][1] == "1 = 2 = 3"  # m = 0, nothing in cash, no calls
    nothing = ranking_map(together(gone, gone))
    assert nothing.summary.startswith("Everywhere the order is 1 = 2, where")


def test_one_source_has_no_ranking_and_no_survivor_no_scores(simulated_run, tmp_path):
    only = read_sources([simulated_run])
    only = type(only)(only.ground, only.sources[:1], {})
    found = {figure.key: figure for figure in report_figures(only)}
    assert "two policies" in found["ranking"].missing
    assert found["scores"].missing == "No company reaches the end: all score 0."
    assert found["requests"].missing == "No company ever asks for money."
    assert 'class="missing"' in figure_section(found["scores"])


def test_runs_without_months_are_told_how_to_get_them(simulated_run, tmp_path):
    shutil.copytree(simulated_run, tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"record": []}))
    found = {figure.key: figure for figure in report_figures(read_sources([tmp_path / "run"]))}
    assert "--record cash" in found["cash"].missing


def test_the_page_needs_nothing_but_itself(page):
    ours = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # plotly.js names hosts that it never asks here
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', ours)
    assert "default-src 'none'" in ours
    assert len(page) < 8e6


def test_the_page_is_accessible_and_complete(page, figures):
    plots = re.findall(r'<div role="img" aria-label="([^"]+)" data-plot="([^"]+)"', page)
    assert len(plots) == sum(len(figure.panels) for figure in figures)
    for label, key in plots:
        assert len(label) > 20
        data = re.search(rf'<script type="application/json" id="{key}">(.*?)</script>', page, flags=re.DOTALL)[1]
        assert json.loads(data)["data"]
    for figure in figures:
        assert f'<section id="{figure.key}"' in page
        assert f'href="#{figure.key}"' in page
    assert page.count("<details") >= len(figures)
    for text in ("width=device-width", '<html lang="en">', "@media print", "How companies fail", "seeds 7, 8"):
        assert text in page


def test_labels_of_foreign_runs_stay_text(read):
    evil = '</script><img src=x onerror="alert(1)">'
    first = read.sources[0]
    renamed = type(first)(evil, *list(vars(first).values())[1:])
    text = report_page(
        *(lambda s: (s, report_figures(s)))(type(read)(read.ground, (renamed, read.sources[1]), {}))
    ).decode()
    assert "<img" not in text
    assert "&lt;img src=x" in text
    for block in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, flags=re.DOTALL):
        assert "<img" not in json.dumps(json.loads(block))  # plotly reads some tags in its texts


def test_the_page_is_the_same_bytes_each_time(read, figures, page):
    assert report_page(read, figures).decode() == page


def test_pngs_of_every_figure(figures):
    for figure in figures:
        drawn = png(figure)
        assert drawn.startswith(b"\x89PNG")
        assert 10_000 < len(drawn) < 1_000_000
    assert png(figures[5]) == png(figures[5])


@pytest.mark.parametrize(
    ("axis", "low", "high", "labels"),
    [
        (Axis("", "$"), 0, 41e6, ["$0", "$10M", "$20M", "$30M", "$40M"]),
        (Axis("", "$"), -1e6, 1.2e6, ["-$1M", "-$500K", "$0", "$500K", "$1M"]),
        (Axis("", "share"), 0, 1, ["0%", "20%", "40%", "60%", "80%", "100%"]),
        (Axis("", "share"), 0, 0.0005, ["0.00%", "0.01%", "0.02%", "0.03%", "0.04%", "0.05%"]),
        (Axis("", "month"), 0, 132, ["0", "24", "48", "72", "96", "120"]),
        (Axis("", "share"), -1e-12, 1, ["0%", "20%", "40%", "60%", "80%", "100%"]),
        (Axis("", "points"), -0.1, 0.3, ["-10", "0", "10", "20", "30"]),
    ],
)
def test_ticks_as_people_write_them(axis, low, high, labels):
    assert ticks(axis, low, high)[1] == labels


def test_what_rounds_to_zero_has_no_minus():
    assert [written(unit, -0.0001) for unit in ("share", "$", "calls", "months")] == ["0.0%", "$0", "0.00", "0.0"]
    assert [written(unit, -0.0001, True) for unit in ("share", "$", "calls")] == ["+0.0 pts", "+$0", "+0.00"]
    assert [written(unit, -1.0, True) for unit in ("share", "$", "calls")] == ["-100.0 pts", "-$1", "-1.00"]
    assert _written("share", -0.0001, 0.1) == "0%"


def test_axes_of_table_1_go_as_far_as_the_records():
    made = sources(records(survived=[True] * 2, months_survived=[200] * 2, months_played=[200] * 2, score=[-9e6, -1e6]))
    _, months, score = results(made).panels
    assert limits(months)[1] > 200
    assert limits(score)[0] < -9e6


def test_limits_hold_all_marks():
    bars = Bars(Style(""), np.array([1.0, 2.0]), np.array([0.5, 0.25]), 1.0)
    left, right, low, high = limits(Panel("", Axis(""), Axis("", low=0.0), [bars]))
    assert left < 0.5 and right > 2.5
    assert low == 0.0 and 0.5 < high < 0.6
    whole = Bars(Style(""), np.array([1.0]), np.array([1.0]), 1.0)  # everybody at one place
    assert limits(Panel("", Axis(""), Axis("", low=0.0), [whole]))[3] == pytest.approx(1.04)


# ablations

ABLATION = {
    "arena_jax": __version__, "seed": 1, "episodes": 500, "env_set": [], "scenario": None, "scenarios": None,
    "parameters": plain_params(arena_jax.make().params), "trajectory": digest(default_scenario()),
    "results": [{
        "policy": "late-raiser",
        "effects": [
            {
                "switches": switches, "published": "up most",
                "differences": {
                    "full_survival": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02, "p": 0.01},
                    "score": {"mean": 30e6 * mean, "low": 29e6 * mean, "high": 31e6 * mean, "p": 1},
                },
            }
            for switches, mean in ((["no delay"], 0.3), (["no noise"], -0.01), (["no delay", "no noise"], 0.28))
        ],
    }],
}  # fmt: skip


def damaged(*places):
    """The ablation with another value at a path of keys."""
    *path, last, value = places
    found = json.loads(json.dumps(ABLATION))
    place = found
    for key in path:
        place = place[key]
    place[last] = value
    return json.dumps(found)


EFFECT = ("results", 0, "effects", 0)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        json.dumps({"results": [{}]}),
        *[
            damaged(*places)
            for places in [
                ("episodes", "many"), ("env_set", 5), ("env_set", [5]), ("results", []), ("results", 0, 5),
                ("results", 0, "effects", []), ("results", 0, "policy", 5), (*EFFECT, "switches", []),
                (*EFFECT, "switches", "no delay"), (*EFFECT, "published", None), (*EFFECT, "differences", []),
                (*EFFECT, "differences", "score", "mean", "x"), (*EFFECT, "differences", "score", "low", True),
                ("trajectory", 5), ("scenarios", "generated:5"), ("scenarios", {}), ("parameters", []),
            ]
        ],
    ],
)  # fmt: skip
def test_damaged_ablations_are_refused(tmp_path, content):
    path = tmp_path / "relaxed.json"
    path.write_text(content)
    with pytest.raises(arena_jax.ArenaError, match="is not what arena-jax ablate --json prints"):
        read_ablation(path, on_default_ground())


def on_default_ground(**changed):
    ground = Ground(__version__, plain_params(arena_jax.make().params), digest(default_scenario()), None)
    return Sources(dataclasses.replace(ground, **changed), (), {})


WORLDS = {"kind": "generated", "seed": 0}


def test_ablations_of_other_worlds_are_refused(tmp_path):
    path = tmp_path / "relaxed.json"
    several = on_default_ground(trajectory=None, scenarios=WORLDS)
    path.write_text(json.dumps(ABLATION))
    assert read_ablation(path, on_default_ground()).episodes == 500
    with pytest.raises(arena_jax.ArenaError, match=r"of other worlds than the records \(scenarios"):
        read_ablation(path, several)
    with pytest.raises(arena_jax.ArenaError, match=r"of other worlds than the records \(trajectory: "):
        read_ablation(path, on_default_ground(trajectory="0" * 64))
    path.write_text(json.dumps(ABLATION | {"trajectory": None, "scenarios": WORLDS | {"worlds": 5}}))
    assert "in each of 5 worlds" in ablation_bars(read_ablation(path, several)).source
    with pytest.raises(arena_jax.ArenaError, match=r"of other worlds than the records \(scenarios"):
        read_ablation(path, on_default_ground())
    with pytest.raises(arena_jax.ArenaError, match=r"scenarios.seed: 0, not 1"):
        read_ablation(path, on_default_ground(trajectory=None, scenarios=WORLDS | {"seed": 1}))
    path.write_text(json.dumps(ABLATION | {"scenario": "gone.csv"}))  # what it held is told by its digest
    assert read_ablation(path, on_default_ground()).seed == 1


def test_ablations_are_drawn_from_what_the_verb_prints(monkeypatch, capsys, simulated_run, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relaxed.json").write_text(json.dumps(ABLATION))
    arguments = ["report", str(simulated_run), "--out", "page.html", "--png", "png", "--ablation", "relaxed.json"]
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    names = [f"{key}.png" for key in [*KEYS, "ablation"]]
    assert out.splitlines() == ["page.html", *[f"png/{name}" for name in names]]
    assert sorted(path.name for path in (tmp_path / "png").iterdir()) == sorted(names)
    page = (tmp_path / "page.html").read_text()
    told = ("no delay + no noise", "n 500 each, seed 1", "+30.0\u00a0pts", "up\u00a0most")
    for text in (*told, "; month 132: ", "n 200, seed 3"):
        assert text in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "is not what arena-jax ablate --json prints"),
        (json.dumps({"results": [{}]}), "is not what arena-jax ablate --json prints"),
        (json.dumps(ABLATION | {"arena_jax": "0.0.1"}), "is of arena_jax 0.0.1, the records of"),
        (damaged("parameters", "noise", 0.0), "is of other parameters than the records (noise: 0.0, not 1.0)"),
    ],
)
def test_other_ablations_are_refused(monkeypatch, capsys, simulated_run, tmp_path, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relaxed.json").write_text(content)
    arguments = ["report", str(simulated_run), "--out", "page.html", "--ablation", "relaxed.json"]
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nowhere", "--out", "page.html"], "is not a run directory"),
        (["report", "nowhere", "--out", "page.pdf"], "a page is written as NAME.html"),
        (["report", "nowhere", "--out", "page.html", "--png", "taken"], "can't write to taken: File exists"),
        (["report", "nowhere"], "Missing option"),
        (["report", "--out", "page.html"], "Missing argument"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_pngs_without_matplotlib(monkeypatch, capsys, tmp_path):
    """Said before anything is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = arena(monkeypatch, capsys, "report", "nowhere", "--out", "page.html", "--png", "png")
    assert (code, err) == (2, "error: a PNG needs matplotlib: pip install 'arena_jax[report]'\n")
    assert not (tmp_path / "png").exists()


def test_a_page_without_plotly(monkeypatch, capsys, simulated_run, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    code, _, err = arena(monkeypatch, capsys, "report", str(simulated_run), "--out", str(tmp_path / "page.html"))
    assert (code, err) == (2, "error: a page needs plotly: pip install 'arena_jax[report]'\n")


# what takes longer


@pytest.mark.slow
def test_a_hundred_thousand_episodes_make_a_page_under_8_mb(monkeypatch, capsys, env, simulated_run, tmp_path):
    """Five policies over 100,000 episodes with their cash by month, put together from rollouts as parts."""
    policies = ["never-raise", "greedy-equity", "greedy-debt", "cash-threshold", "random"]
    manifest = json.loads((simulated_run / "manifest.json").read_text())
    split = Split(100_000)
    (tmp_path / "run").mkdir()
    about = {"episodes": split.episodes, "part": split.part, "policies": policies, "record": ["cash"]}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | about))
    for number, spec in enumerate(policies):
        for start in split.starts():
            size = split.size(start)
            policy = arena_jax.make_policy(spec)
            played = arena_jax.rollout(
                env, policy, jax.random.key(3), size, first=start, pad_to=split.part, record=["cash"]
            )
            write_part(tmp_path / "run" / policy_folder(number, spec), split, start, *played)
    out = tmp_path / "page.html"
    assert arena(monkeypatch, capsys, "report", str(tmp_path / "run"), "--out", str(out))[0] == 0
    assert "n 100,000, seed 3 each" in out.read_text()
    assert out.stat().st_size < 8e6


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium: playwright's, else the system's; none at all skips, with a notice."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser test: playwright is not installed")
    with playwright.sync_playwright() as started:
        try:
            found = started.chromium.launch()
        except playwright.Error:
            subprocess.run(
                [sys.executable, "-m", "playwright", "install", "chromium"], capture_output=True, timeout=600
            )
            system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
            try:
                found = started.chromium.launch(executable_path=system, args=["--no-sandbox"])
            except playwright.Error:
                pytest.skip("no browser test: no Chromium is here and playwright could not install one")
        yield found
        found.close()


def opened(browser, path, width):
    """What the page said on the console, asked for, and drew in a window of some width."""
    said, asked = [], []
    view = browser.new_page(viewport={"width": width, "height": 900})
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("request", lambda request: asked.append(request.url))
    view.goto(path.as_uri())
    view.wait_for_function("[...document.querySelectorAll('[data-plot]')].every(place => place.querySelector('svg'))")
    overflow = view.evaluate("document.documentElement.scrollWidth - innerWidth")
    drawn = view.evaluate("document.querySelectorAll('[data-plot] .main-svg').length")
    view.close()
    return said, asked, overflow, drawn


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 375])
def test_pages_open_without_errors_or_requests(browser, page, figures, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(page)
    said, asked, overflow, drawn = opened(browser, path, width)
    assert said == []
    assert asked == [path.as_uri()]
    assert overflow <= 0
    assert drawn >= sum(len(figure.panels) for figure in figures)


@pytest.mark.slow
def test_print_has_the_data_tables(browser, page, tmp_path):
    (tmp_path / "page.html").write_text(page)
    view = browser.new_page()
    view.goto((tmp_path / "page.html").as_uri())
    folded = "document.querySelectorAll('details.data:not([open])').length"
    before = view.evaluate(folded)
    assert before > 0
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate(folded) == 0
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.evaluate(folded) == before
    view.close()


def test_crisis_spans_are_the_surges_around_the_crisis_months():
    for span, month in zip(crisis_spans(default_scenario()), (30, 55, 110), strict=True):
        assert span.start < month < span.end


def test_results_of_told_horizons_say_so(read):
    ground = type(read.ground)(**(vars(read.ground) | {"disclosed": True}))
    assert "were told the horizon" in results(type(read)(ground, read.sources, {})).about


def test_over_several_worlds_table_1_is_that_of_evaluate(tmp_path):
    """Ten generated worlds of 20 episodes: intervals over worlds; elsewhere those over episodes come with a warning."""
    out = tmp_path / "run"
    options = {"episodes": 20, "scenarios": "generated:10", "out": out}
    spreads = evaluate(arena_jax.make(), ["never-raise", "late-raiser"], **options)
    found = read_sources([out])
    (panel, *_) = results(found).panels
    low, high = panel.marks[0].low[1], panel.marks[0].high[1]
    expected = spreads["late-raiser"]["full_survival"]
    assert (low, high) == (expected.low, expected.high)
    assert "n 200 in 10 worlds" in survival_curves(found).source
    assert "too narrow" in survival_curves(found).about
    assert "not shaded" in survival_curves(found).about
    assert "generated worlds" in results(found).source


def test_plots_can_not_end_the_element_they_stand_in():
    assert json.loads(_in_script('"</script>"')) == "</script>"
    assert "<" not in _in_script('"</script>"')
