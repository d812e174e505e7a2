# SPDX-License-Identifier: BSD-3-Clause
"""The chart of driver × tag: a grid of marks, the machine's column outlined and the image's row highlighted."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.answers.pages.document import (
    Markup,
    clean_text,
    find_outcome_look,
    format_sentence,
    join_markup,
    make_element,
    make_mark,
    make_section,
)
from kedge.base.frozen import frozen
from kedge.base.versions import major_minor
from kedge.compat.driver_chart import Chart, ChartRow
from kedge.compat.verdict import NATIVE, NO, OUTCOMES, UNKNOWN

_MOST_ROWS, _MOST_COLUMNS = 30, 16
_CELL, _LINE, _GAP, _HEAD = 27, 22, 15, 60  # _HEAD: `here`, the branch, and the CUDA it offers
_LETTER = 6.7  # the width of one, about; labels are set in letters of one width
_CUDA = 40
_LARGEST_SCALE = 1.35


@frozen
class _RowPlace:
    """A row and where it stands."""

    row: ChartRow
    top: float


def make_chart_picture(chart: Chart | None) -> Markup | None:
    """The chart with its legend, and the same as a table for those who do not see pictures."""
    if chart is None or not chart.rows or not chart.columns:
        return None
    gpus = f" on {chart.gpus}" if chart.gpus else ""
    words = (
        f"Tags of {chart.image} (rows) with NVIDIA drivers of these branches (columns){gpus}, as the tables have it."
    )
    if chart.tag and not any(row.is_image for row in chart.rows):
        words += f" The tables do not have {clean_text(chart.tag, 60)}."
    return make_section(
        "Which tags run with which driver",
        make_element("p", words),
        make_element("p", make_element("strong", describe_host(chart))),
        make_element("div", _draw_grid(chart), class_="wide", tabindex="0", role="group", aria_label="Chart"),
        _make_legend(chart),
        _say_unknown(chart),
        _make_table(chart),
    )


def describe_host(chart: Chart) -> str:
    """What the chart says of the machine's own driver, in a sentence."""
    host = next((place for place, column in enumerate(chart.columns) if column.is_host), None)
    if host is None:
        return "No driver of a machine is known, so none is marked."
    best = next((row for row in chart.rows if row.cells[host] == NATIVE), None)
    driver = chart.columns[host].driver
    if all(row.cells[host] == NO for row in chart.rows):
        return f"With driver {driver} none of these tags runs{f' on {chart.gpus}' if chart.gpus else ''}."
    if best is None:
        return f"With driver {driver} none of these tags is known to run natively."
    return f"With driver {driver} the newest of these tags that runs natively is {best.tag}."


def _draw_grid(chart: Chart) -> Markup:
    rows, columns = chart.rows[:_MOST_ROWS], chart.columns[:_MOST_COLUMNS]
    letters = max(len(clean_text(row.label, 20)) for row in rows)
    left = 12 + letters * _LETTER + _CUDA
    places = list(_place_rows(rows))
    bottom = places[-1].top + _LINE
    width, height = left + _CELL * len(columns) + 4, bottom + (_GAP if chart.skipped else 0) + 4
    drawn: list[Markup] = []
    for place in places:
        drawn += _draw_row(place, left, len(columns))
    if chart.skipped:
        drawn.append(
            _write(
                f"{chart.skipped} older tag{'' if chart.skipped == 1 else 's'}", 12, bottom + _GAP - 3, class_="faint"
            )
        )
    drawn += _draw_heads(chart, left, bottom)
    return make_element(
        "svg",
        make_element("title", f"Tags of {chart.image} by driver branch", id="chart-title"),
        make_element("desc", f"{describe_host(chart)} The table below has the same.", id="chart-desc"),
        *drawn,
        class_="chart",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_labelledby="chart-title chart-desc",
        style=f"max-width:{_LARGEST_SCALE * width:.0f}px;min-width:{0.9 * width:.0f}px",
    )


def _place_rows(rows: tuple[ChartRow, ...]) -> Iterator[_RowPlace]:
    top: float = _HEAD
    for row in rows:
        top += _GAP if row.skipped else 0
        yield _RowPlace(row, top)
        top += _LINE


def _draw_heads(chart: Chart, left: float, bottom: float) -> Iterator[Markup]:
    yield _write("driver", left - 4, _HEAD - 22, text_anchor="end", class_="faint")
    yield _write("CUDA", left - 4, _HEAD - 8, text_anchor="end", class_="faint")
    for place, column in enumerate(chart.columns[:_MOST_COLUMNS]):
        middle, style = left + _CELL * (place + 0.5), "head strong" if column.is_host else "head"
        yield _write(clean_text(column.branch, 5), middle, _HEAD - 22, text_anchor="middle", class_=style)
        yield _write(clean_text(column.cuda, 5) or "–", middle, _HEAD - 8, text_anchor="middle", class_="head faint")
        if column.is_host:
            yield from _outline_column(left + _CELL * place, bottom, column.driver)


def _outline_column(x: float, bottom: float, driver: str) -> Iterator[Markup]:
    middle = x + _CELL / 2
    title = make_element("title", f"driver {driver}, this machine's")
    box = {"x": f"{x:.1f}", "y": _HEAD - 36, "width": _CELL, "height": f"{bottom - _HEAD + 38:.1f}"}
    yield make_element("rect", title, rx=4, class_="host", **box)
    yield make_element("path", d=f"M{middle - 5:.1f} {_HEAD - 45}h10l-5 6z", class_="pointer")
    yield _write("here", middle, _HEAD - 48, text_anchor="middle", class_="strong")


def _draw_row(place: _RowPlace, left: float, columns: int) -> Iterator[Markup]:
    row, top = place.row, place.top
    if row.skipped:
        yield _write(f"{row.skipped} tag{'' if row.skipped == 1 else 's'} between", 12, top - 4, class_="faint")
    if row.is_image:
        yield make_element("rect", x=0, y=top, width=left + _CELL * columns, height=_LINE, rx=4, class_="own")
        yield make_element("path", d=f"M2 {top + 6}l6 5l-6 5z", class_="pointer")
    style = "code strong" if row.is_image else "code"
    yield _write(clean_text(row.label, 20), 12, top + 15, class_=style)
    yield _write(major_minor(row.cuda) or "–", left - _CUDA, top + 15, class_="faint")
    for number, outcome in enumerate(_list_outcomes(row, columns)):
        look = find_outcome_look(outcome)
        x, y = left + _CELL * number + 1, top + 1
        yield make_element(
            "rect", x=x, y=y, width=_CELL - 2, height=_LINE - 2, rx=3, class_=f"cell {look.tone}", data_outcome=outcome
        )
        yield make_element(
            "use", href=f"#mark-{look.shape}", x=x + 6, y=y + 4, width=12, height=12, class_=f"mark {look.tone}"
        )


def _say_unknown(chart: Chart) -> Markup | None:
    if not chart.unknown:
        return None
    words = f"Left out: {chart.unknown} tags whose CUDA the tables do not have. 'kedge data update' learns them."
    return make_element("p", format_sentence(words), class_="small quiet")


def _list_outcomes(row: ChartRow, columns: int) -> list[str]:
    return [outcome if outcome in OUTCOMES else UNKNOWN for outcome in row.cells[:columns]]


def _write(text: str, x: float, y: float, **attributes: object) -> Markup:
    return make_element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", **attributes)


def _make_legend(chart: Chart) -> Markup:
    met = {outcome for row in chart.rows for outcome in row.cells}
    looks = [find_outcome_look(outcome) for outcome in OUTCOMES if outcome in met]
    entries = (make_element("li", make_mark(look), Markup(" "), look.word) for look in looks)
    return make_element("ul", *entries, class_="legend")


def _make_table(chart: Chart) -> Markup:
    columns = chart.columns[:_MOST_COLUMNS]
    heads = [make_element("th", name, scope="col") for name in ("Tag", "CUDA")]
    heads += [
        make_element("th", f"{column.branch}{' (here)' if column.is_host else ''}", scope="col") for column in columns
    ]
    body = []
    for row in chart.rows[:_MOST_ROWS]:
        cells = [make_element("td", outcome) for outcome in _list_outcomes(row, len(columns))]
        name = f"{row.label} (this image)" if row.is_image else row.label
        body.append(make_element("tr", make_element("th", name, scope="row"), make_element("td", row.cuda), *cells))
    table = make_element(
        "table",
        make_element("thead", make_element("tr", join_markup(heads))),
        make_element("tbody", *body),
        class_="matrix",
    )
    drivers = ", ".join(f"{column.driver} (CUDA {column.cuda or 'unknown'})" for column in columns)
    return make_element(
        "details",
        make_element("summary", "The same as a table"),
        make_element("p", f"Judged with drivers {drivers}.", class_="small quiet"),
        make_element("div", table, class_="wide", tabindex="0", role="group", aria_label="Table"),
    )
