"""Bars of TFLOP/s per case and direction, one bar per arm, as SVG."""

from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442")
LABEL, WIDTH, BAR, GAP, TOP = 300, 560, 14, 12, 40
TICKS = 5


def nice_limit(value):
    """The smallest 1, 2, 4, 5 or 8 times a power of ten that is at least `value`."""
    unit = 1e-9
    while True:
        for factor in (1, 2, 4, 5, 8):
            if factor * unit >= value:
                return factor * unit
        unit *= 10


def text(x, y, words, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def bar(y, row, limit, colour):
    width = WIDTH * row["tflops"] / limit
    figure = f"{row['tflops']:.4g}"
    return [f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>',
            text(LABEL + width + 4, y + BAR - 4, f"{figure} {row['arm']}")]


def axis(bottom, limit):
    parts = []
    for i in range(TICKS + 1):
        x = LABEL + WIDTH * i / TICKS
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" '
                     'stroke="#dddddd"/>')
        parts.append(text(x, TOP - 10, f"{limit * i / TICKS:.4g}", "middle"))
    return parts


def draw(rows):
    """Rows that failed have no bar."""
    timed = [row for row in rows if row["status"] == "pass"]
    groups = {}
    for row in timed:
        groups.setdefault((row["case"], row["direction"]), []).append(row)
    arms = list(dict.fromkeys(row["arm"] for row in timed))
    limit = nice_limit(max((row["tflops"] for row in timed), default=1))
    bars, y = [], TOP
    for (case, direction), members in groups.items():
        bars.append(text(LABEL - 8, y + BAR - 3, f"{case} {direction}", "end"))
        for row in members:
            bars += bar(y, row, limit, COLOURS[arms.index(row["arm"]) % len(COLOURS)])
            y += BAR
        y += GAP
    width = LABEL + WIDTH + 200
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{y}" fill="white"/>',
        text(LABEL, 14, "TFLOP/s"), *axis(y - GAP, limit), *bars, "</svg>", ""])
