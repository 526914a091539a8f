"""A rehearsal as one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape
from pathlib import Path

from libs.contracts.wire import rfc3339
from libs.inspect.rehearsal import Answer, Disagreement, Moment, Rehearsal
from libs.kernel.words import counted, plural

STYLE = Path(__file__).with_name("rehearsal.css")
BARS = 120
"""Stretches of the time line."""
_WIDTH, _HEIGHT, _AXIS = 1000, 150, 22


def page(found: Rehearsal, title: str) -> str:
    """The HTML: facts, a time line, agreement by event, and the first differences side by side."""
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            "<p>Each decision was taken again on the recorded state; what would have followed from another one is not "
            "made up.</p>",
            _facts(found),
            "<h2>Over time</h2>",
            _timeline(found.moments),
            "<h2>Agreement by event</h2>",
            _agreement(found),
            _asked(found),
            _unhandled(found),
            _details(found),
            "</body></html>",
        ]
    )


def _facts(found: Rehearsal) -> str:
    facts = [
        (found.inputs, "inputs", ""),
        (found.decisions, "recorded decisions", ""),
        (found.differences, "decided otherwise", "bad" if found.differences else ""),
        (len({job for jobs in found.asked.values() for job in jobs}), "jobs asked otherwise", ""),
    ]
    cells = [f'<div class="{kind}"><b>{number:,}</b>{what}</div>' for number, what, kind in facts]
    return f'<div class="facts">{"".join(cells)}</div>'


def _timeline(moments: list[Moment]) -> str:
    if not moments:
        return "<p>Nothing was decided.</p>"
    first_s, last_s = moments[0].time_s, moments[-1].time_s
    step_s = max(last_s - first_s, 1e-6) / BARS
    same, other = [0] * BARS, [0] * BARS
    for moment in moments:
        bar = min(BARS - 1, int((moment.time_s - first_s) / step_s))
        other[bar] += moment.differing
        same[bar] += max(0, moment.recorded - moment.differing)
    most = max(map(sum, zip(same, other, strict=True))) or 1
    width, scale = _WIDTH / BARS, (_HEIGHT - 10) / most
    bars = []
    for bar, (agreeing, differing) in enumerate(zip(same, other, strict=True)):
        x = bar * width
        low, high = agreeing * scale, differing * scale
        bars.append(_bar("same", x, _HEIGHT - low, width, low) + _bar("other", x, _HEIGHT - low - high, width, high))
    axis = (
        f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>'
        f'<text x="0" y="{_HEIGHT + 16}">{rfc3339(first_s)[:19]}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">{rfc3339(last_s)[:19]}</text>'
        f'<text x="0" y="12">up to {counted(most, "decision")} in {_duration(step_s)}</text>'
    )
    legend = '<p class="legend"><span>as recorded</span><span class="other">otherwise</span></p>'
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _AXIS}" role="img" aria-label="Decisions over time">'
    return f"{svg}{''.join(bars)}{axis}</svg>{legend}"


def _bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    if height <= 0:
        return ""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{height:.1f}"/>'


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def _agreement(found: Rehearsal) -> str:
    rows = []
    for name, agreement in sorted(found.agreement.items(), key=lambda item: (item[1].same - item[1].recorded, item[0])):
        off = agreement.same < max(agreement.recorded, agreement.rehearsed)
        marked = "n bad" if off else "n"
        rows.append(
            f'<tr><td>{name}</td><td class="n">{agreement.recorded:,}</td><td class="n">{agreement.rehearsed:,}</td>'
            f'<td class="{marked}">{agreement.same:,}</td></tr>'
        )
    head = '<tr><th>event</th><th class="n">recorded</th><th class="n">rehearsed</th><th class="n">the same</th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _asked(found: Rehearsal) -> str:
    if not found.asked:
        return ""
    rows = [
        f'<tr><td>{what}</td><td class="n">{len(jobs):,}</td><td>{escape(", ".join(list(jobs)[:8]))}'
        f"{' …' if len(jobs) > 8 else ''}</td></tr>"
        for what, jobs in sorted(found.asked.items())
    ]
    head = '<tr><th>what</th><th class="n">jobs</th><th>first of them</th></tr>'
    return f"<h2>Asked of jobs, and not recorded</h2><table>{head}{''.join(rows)}</table>"


def _unhandled(found: Rehearsal) -> str:
    return "".join(f'<p class="bad">{escape(line)}</p>' for line in found.unhandled)


def _details(found: Rehearsal) -> str:
    if not found.details:
        return ""
    rows = "".join(map(_detail, found.details))
    head = "<tr><th>input</th><th>recorded</th><th>rehearsed</th></tr>"
    shown = f"The first {len(found.details)} of {found.differences:,} {plural(found.differences, 'difference')}"
    return f"<h2>{shown}</h2><table>{head}{rows}</table>"


def _detail(each: Disagreement) -> str:
    where = f'<td class="place">control/0@{each.offset}<small>{rfc3339(each.time_s)[:19]} · {each.service}</small>'
    answers = _answer(each.recorded) + _answer(each.rehearsed)
    return f"<tr>{where}<small>{escape(each.input[:70])}</small></td>{answers}</tr>"


def _answer(answer: Answer | None) -> str:
    if answer is None:
        return '<td class="answer none">nothing</td>'
    why = f"<small>{escape(answer.reason)}</small>" if answer.reason else ""
    return f'<td class="answer"><b>{answer.event}</b> of {escape(answer.subject)}: {escape(answer.text)}{why}</td>'
