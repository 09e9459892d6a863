"""Charts of a sweep: scores over steps, or over model sizes."""

from __future__ import annotations

import itertools

from flows.report.figures import Figure, Key, Panel
from flows.report.plots import Axis, Plot
from model.tables.charts import Chart, ChartPanel, Line

_ROW, _FRAME = 26.0, 34.0  # heights
_LEAST_SPAN = 10.0
_COLOURS = 4  # series-1 to series-4 of the style sheet


def chart_figure(chart: Chart, *, name: str) -> Figure:
    """A panel for each task; `name` is part of ids in the page."""
    draw = _over_sizes if chart.names else _over_steps
    panels = tuple(
        draw(chart, panel, name=f"{name}-{number}") for number, panel in enumerate(chart.panels)
    )
    lines = dict.fromkeys(line.name for panel in chart.panels for line in panel.lines)
    legend = [
        Key(mark=f"line {_look(number)}", label=label)
        for number, label in enumerate(lines)
        if label
    ]
    if any(panel.paper for panel in chart.panels):
        legend.append(Key(mark="diamond", label="the paper's"))
    return Figure(panels=panels, legend=tuple(legend), note=chart.note)


def _look(number: int) -> str:
    return f"series-{number % _COLOURS + 1}"


def _over_steps(chart: Chart, panel: ChartPanel, *, name: str) -> Panel:
    """Steps go to the right, scores up."""
    last = max(point.x for line in panel.lines for point in line.points)
    plot = Plot(
        Axis(low=0, high=last or 1.0),
        Axis.around(_values(panel), least=_LEAST_SPAN),
    )
    for number, line in enumerate(panel.lines):
        low, high = _band(line)
        if len(line.points) > 1:
            xs = [point.x for point in line.points]
            plot.band(zip(xs, low, strict=True), zip(xs, high, strict=True), look=_look(number))
        plot.line([(point.x, point.mean) for point in line.points], look=_look(number))
        plot.dots([(point.x, point.mean) for point in line.points], look=_look(number))
    return _panel(plot, chart, panel, name=name)


def _over_sizes(chart: Chart, panel: ChartPanel, *, name: str) -> Panel:
    """Sizes go downwards, with their names, scores to the right."""
    count = len(chart.names)
    plot = Plot(
        Axis.around(_values(panel), least=_LEAST_SPAN),
        Axis(low=count - 0.4, high=-0.6, names=chart.names),
        height=_FRAME + _ROW * count,
    )
    for number, line in enumerate(panel.lines):
        low, high = _band(line)
        for point, start, end in zip(line.points, low, high, strict=True):
            plot.line([(start, point.x), (end, point.x)], look=f"muted {_look(number)}")
        plot.line([(point.mean, point.x) for point in line.points], look=_look(number))
        plot.dots([(point.mean, point.x) for point in line.points], look=_look(number))
    plot.dots([(value, place) for place, value in panel.paper], look="hollow", shape="diamond")
    return _panel(plot, chart, panel, name=name)


def _band(line: Line) -> tuple[list[float], list[float]]:
    low = [point.mean - (point.sd or 0.0) for point in line.points]
    return low, [point.mean + (point.sd or 0.0) for point in line.points]


def _values(panel: ChartPanel) -> list[float]:
    ends = (end for line in panel.lines for end in itertools.chain(*_band(line)))
    return [*ends, *(value for _, value in panel.paper)]


def _panel(plot: Plot, chart: Chart, panel: ChartPanel, *, name: str) -> Panel:
    said = "; ".join(
        f"{line.name or 'ours'}: {', '.join(_point_text(chart, *point) for point in line.points)}"
        for line in panel.lines
    )
    svg = plot.svg(
        name=name, title=f"{chart.title}, {panel.title}", description=f"{chart.note} {said}."
    )
    return Panel(title=panel.title, note="" if chart.names else chart.label, svg=svg)


def _point_text(chart: Chart, x: float, mean: float, sd: float | None) -> str:
    place = chart.names[int(x)] if chart.names else f"{x:,.0f}"
    return f"{place} {mean:.1f}" if sd is None else f"{place} {mean:.1f} ± {sd:.1f}"
