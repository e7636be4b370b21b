"""The examples of the guide, in order."""

import pathlib
import re

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "guides" / "jax.md"


def test_examples_run():
    text = GUIDE.read_text()
    examples = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(examples) >= 8
    names = {}
    for example in examples:
        line = text[: example.start(1)].count("\n")
        exec(compile("\n" * line + example[1], str(GUIDE), "exec"), names)
