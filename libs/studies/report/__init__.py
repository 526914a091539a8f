"""From results to pictures: one self-contained HTML page, and every figure as SVG and PNG.

    results, intervals ──> drawings (figure, caption, numbers) ──> page

Nothing is fetched from anywhere, and the same results give the same bytes.
"""
