"""Pages and pictures are readable on light and dark paper, and without colours."""

import re
from itertools import pairwise

import pytest

from harness.report import figure, overview, palette, timeline

INK = [name for name in palette.SHADES if name not in {"paper", "shade", "line"}]


def luminance(colour):
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", INK)
@pytest.mark.parametrize("paper", ["paper", "shade"])
def test_every_ink_has_contrast_to_light_and_dark_paper(name, paper):
    for ink, ground in zip(palette.SHADES[name], palette.SHADES[paper], strict=True):
        low, high = sorted((luminance(ink), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_roles_links_and_curves_differ_without_their_colours():
    for strokes in (palette.ROLES, palette.LINKS):
        looks = sorted((stroke.width, stroke.dashes) for stroke in strokes.values())
        assert all(one != other for one, other in pairwise(looks))
    for together in (("sends acknowledged", "deliveries", "unknown outcome", "failed"),
                     ("median", "99th percentile"),
                     ("committed", "rolled back", "unknown outcome", "failed", "cut off")):  # fmt: skip
        dashes = [palette.CURVES[name].dashes for name in together]
        assert len(set(dashes)) == len(dashes)


def test_a_stroke_is_drawn_with_its_dashes_and_its_width():
    drawn = palette.Stroke("red", 2, "6 3").attributes(scale=2)
    assert drawn == 'stroke="red" stroke-width="4" stroke-dasharray="6 3"'
    assert "dash" not in palette.Stroke("red", 2).attributes()


def test_the_picture_of_a_run_has_only_colours_that_the_page_defines(tmp_path):
    svg = figure.draw(timeline.read(tmp_path))
    assert set(re.findall(r"var\(--(\w+)\)", svg)) <= palette.SHADES.keys()
    assert not re.search("#[0-9a-f]{3}", svg)
    assert "var(" not in palette.resolve_light(svg)


def test_the_page_of_all_runs_has_dark_colours(tmp_path):
    page = overview.render((), tmp_path)
    dark = page.partition("@media screen and (prefers-color-scheme: dark)")[2]
    assert f"--paper: {palette.SHADES['paper'].dark};" in dark
    used = set(re.findall(r"var\(--(\w+)\)", page))
    assert used <= palette.SHADES.keys()
