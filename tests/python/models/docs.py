"""The Python blocks of the guides."""

import pathlib
import re
import sys
import types

ROOT = pathlib.Path(__file__).parents[3]
PAGES = ("pytorch", "models", "migrating")


def blocks(page: str, kind: str) -> list[tuple[int, str]]:
    """(line, code) of fenced blocks; kind "python" runs alone, "python torchrun" on ranks."""
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text()
    fence = re.compile(rf"^```{kind}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(text[: m.start()].count("\n") + 2, m[1]) for m in fence.finditer(text)]


def run(page: str, kind: str) -> None:
    """All blocks of a page in order, with common names."""
    module = types.ModuleType(f"page_{page}")
    sys.modules[module.__name__] = module  # torch.compile looks functions' modules up
    for line, code in blocks(page, kind):
        padded = "\n" * (line - 1) + code  # so that errors name the page's lines
        exec(compile(padded, f"docs/guides/{page}.md", "exec"), vars(module))
