"""Every Python block of the guides runs; those for several ranks in test_ranks.py."""

import re

import pytest

import docs

KINDS = ("python", "python torchrun")


@pytest.mark.parametrize("page", docs.PAGES)
def test_blocks_run(page):
    assert docs.blocks(page, "python")
    docs.run(page, "python")


@pytest.mark.parametrize("page", docs.PAGES)
def test_no_block_is_left_out(page):
    text = (docs.ROOT / "docs" / "guides" / f"{page}.md").read_text()
    opened = re.findall(r"^```(.*)$", text, re.MULTILINE)[::2]
    assert len(opened) == sum(len(docs.blocks(page, kind)) for kind in KINDS), opened
