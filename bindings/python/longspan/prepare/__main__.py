"""The program: see --help."""

import argparse
import os
import sys

from ._builds import builds_of
from ._store import Refused, prepare

_EXAMPLE = """example:
  longspan prepare --out store --for "dtype=bf16 heads=32/8 dim=128 lengths=8192 mask=causal"
  longspan run --device cuda --prepared store --problem ..."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="longspan prepare",
        description="Compiles kernels of FlashAttention-4 and FROST into a store. Needs no GPU.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="the store; what it has is kept"
    )
    parser.add_argument(
        "--for",
        dest="problems",
        action="append",
        required=True,
        metavar="PROBLEM",
        help="a problem text; may be given several times",
    )
    parser.add_argument(
        "--direction",
        choices=["forward", "backward", "both"],
        default="both",
        help="what to prepare (default both)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, (os.cpu_count() or 2) // 2),
        metavar="N",
        help="builds at a time, 1 or more (default: half the cores)",
    )
    parser.add_argument(
        "--with-libraries",
        action="store_true",
        help="copy the run-time libraries into the store, for machines of your own without the "
        "packages; see their licences",
    )
    parser.add_argument("--list", action="store_true", help="only say what would be built")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    directions = ["forward", "backward"] if options.direction == "both" else [options.direction]
    try:
        if options.list:
            for build in builds_of(options.problems, directions):
                print(build.name)
            return 0
        prepare(
            options.problems,
            options.out,
            directions=directions,
            jobs=options.jobs,
            with_libraries=options.with_libraries,
            progress=lambda line: print(line, flush=True),
        )
    except Refused as error:
        print(f"longspan prepare: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
