#!/usr/bin/env python3
"""Fails where built kernels spill, outgrow their budgets or lack instructions they should have.

usage: kernel_gates.py --cuobjdump PROGRAM --budgets FILE LIBRARY
       kernel_gates.py --self-test    seeds a violation of each rule and checks that it is found

Needs no GPU: cuobjdump (and nvdisasm beside it) read the machine code in the library. The file of
budgets has a line per kernel; all its instantiations must keep it. Rules:

  listed    every kernel has a line and every line a kernel
  spills    no stack, no local memory
  budget    registers of a thread, static shared bytes of a block
  wide      at least so many 128-bit global loads and stores
  float64   none, unless the line allows it
  wgmma     at least so many products of warpgroups (HGMMA)
  tma       at least so many loads of tiles by TMA (UTMALDG)
  beside    at least so many exponentials while products of warpgroups are open: the compiler may
            move the wait for them up to before the exponentials, and nothing runs beside them
  warnings  compiled with ptxas' warnings of spills and local memory (errors by LONGSPAN_WERROR)
"""

import argparse
import collections
import os
import re
import subprocess
import sys

PTXAS_OPTIONS = ("-warn-spills", "-warn-lmem-usage")
COLUMNS = "source kernel registers shared loads stores float64 wgmma tma beside"

Budget = collections.namedtuple("Budget", COLUMNS)
Kernel = collections.namedtuple(
    "Kernel",
    "source kernel variant registers shared stack local loads stores float64 spills wgmma tma "
    "beside",
)


def budgets_of(text):
    lines = (line.split("#")[0].split() for line in text.splitlines())
    result = {}
    for words in filter(None, lines):
        if len(words) != len(Budget._fields) or words[6] not in ("yes", "no"):
            raise ValueError(f"budget '{' '.join(words)}': needed are {COLUMNS} (yes or no)")
        before, after = map(int, words[2:6]), map(int, words[7:])
        result[words[0], words[1]] = Budget(*words[:2], *before, words[6] == "yes", *after)
    return result


def names_of(symbol):
    """(source, kernel, what differs between instantiations) of a kernel without a linker name."""
    found = re.search(r"_GLOBAL__N__[0-9a-f]{8}_\d+_(\w+)_cu_[0-9a-f]{8}(\d+)(\w+)", symbol)
    if found is None:
        raise ValueError(f"{symbol}: kernels are expected in anonymous namespaces of .cu files")
    length = int(found[2])
    return found[1] + ".cu", found[3][:length], found[3][length:]


def resources_of(text):
    """{symbol: {"REG": ..., "STACK": ..., ...}} from cuobjdump --dump-resource-usage."""
    pattern = r"Function (\S+):\s+(REG:\d+ STACK:\d+ SHARED:\d+ LOCAL:\d+)"
    return {
        symbol: {key: int(value) for key, value in (pair.split(":") for pair in usage.split())}
        for symbol, usage in re.findall(pattern, text)
    }


def instructions_of(text):
    """{symbol: counts of instructions by name} from cuobjdump --dump-sass. "beside": exponentials
    in places where products of warpgroups are open."""
    counts, current, products_are_open = {}, None, False
    pattern = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*)")
    for line in text.splitlines():
        if start := re.match(r"\s*Function : (\S+)", line):
            current = counts.setdefault(start[1], collections.Counter())
            products_are_open = False
        elif code := pattern.match(line):
            name, operands = code.groups()
            current[name] += 1
            if name.startswith("HGMMA"):
                products_are_open = True
            elif name.startswith("WARPGROUP.DEPBAR"):
                products_are_open = not operands.rstrip().endswith("0x0")
            elif name.startswith("MUFU.EX2") and products_are_open:
                current["beside"] += 1
    return counts


def kernels_of(resources, instructions):
    if not resources or resources.keys() != instructions.keys():
        raise ValueError(
            f"{len(resources)} kernels with resources, {len(instructions)} with instructions: "
            "cuobjdump and nvdisasm of one CUDA release are needed, and a library with kernels"
        )
    kernels = []
    for symbol, usage in resources.items():

        def count(pattern):
            return sum(n for name, n in instructions[symbol].items() if re.match(pattern, name))

        kernels.append(
            Kernel(
                *names_of(symbol),
                *(usage[key] for key in ("REG", "SHARED", "STACK", "LOCAL")),
                loads=count(r"LDG\b.*\.128"),
                stores=count(r"STG\b.*\.128"),
                float64=count(r"D(ADD|MUL|FMA|SETP|MNMX)\b|MUFU\.\w*64|(F2F|F2I|I2F)\b.*F64"),
                spills=count(r"(LDL|STL)\b"),
                wgmma=count(r"HGMMA\b"),
                tma=count(r"UTMALDG\b"),
                beside=instructions[symbol]["beside"],
            )
        )
    return kernels


def failures_of_kernel(k, budget):
    """Why one instantiation breaks its line."""
    if k.stack or k.local or k.spills:
        yield (
            f"{k.stack} bytes of stack, {k.local} of local memory, {k.spills} accesses to it: "
            "there must be none"
        )
    if k.registers > budget.registers:
        yield f"{k.registers} registers of a thread: at most {budget.registers}"
    if k.shared > budget.shared:
        yield f"{k.shared} bytes of static shared memory: at most {budget.shared}"
    if k.loads < budget.loads:
        yield f"{k.loads} global loads of 128 bits: at least {budget.loads}"
    if k.stores < budget.stores:
        yield f"{k.stores} global stores of 128 bits: at least {budget.stores}"
    if k.float64 and not budget.float64:
        yield f"{k.float64} instructions in float64: there must be none"
    if k.wgmma < budget.wgmma:
        yield f"{k.wgmma} products of warpgroups: at least {budget.wgmma}"
    if k.tma < budget.tma:
        yield f"{k.tma} loads by TMA: at least {budget.tma}"
    if k.beside < budget.beside:
        yield f"{k.beside} exponentials beside products: at least {budget.beside}"


def failures_of(kernels, budgets):
    for k in kernels:
        budget = budgets.get((k.source, k.kernel))
        if budget is None:
            float64 = "yes" if k.float64 else "no"
            measured = (k.registers, k.shared, k.loads, k.stores, float64, k.wgmma, k.tma, k.beside)
            yield f"{k.source} {k.kernel}: not listed; measured: {' '.join(map(str, measured))}"
            continue
        for failure in failures_of_kernel(k, budget):
            yield f"{k.source} {k.kernel} ({k.variant}): {failure}"
    for name in budgets.keys() - {(k.source, k.kernel) for k in kernels}:
        yield f"{' '.join(name)}: listed, but no such kernel was built; remove the line"


def unwarned(text):
    """Modules that were compiled without the warnings."""
    for number, options in enumerate(re.findall(r"ptxasOptions = (.*)", text), 1):
        missing = [option for option in PTXAS_OPTIONS if option not in options.split()]
        if missing:
            yield f"module {number} was compiled without ptxas' {', '.join(missing)}"


def dump(cuobjdump, what, library):
    folder = os.path.dirname(os.path.abspath(cuobjdump))
    path = folder + os.pathsep + os.environ.get("PATH", "")  # it calls nvdisasm
    done = subprocess.run(
        [cuobjdump, what, library], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    if done.returncode != 0:
        sys.exit(f"{cuobjdump} {what} {library}: {done.stderr or done.stdout}")
    return done.stdout


SEEDED_USAGE = """
 Function _ZN1a13_GLOBAL__N__0123abcd_10_moves_x_cu_89abcdef4copyIfEEvPT_:
  REG:40 STACK:0 SHARED:512 LOCAL:0 CONSTANT[0]:1 TEXTURE:0
"""
SEEDED_SASS = """
\t\tFunction : _ZN1a13_GLOBAL__N__0123abcd_10_moves_x_cu_89abcdef4copyIfEEvPT_
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;     /* 0x00000a00ff017b82 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;   /* 0x0000000402047981 */
        /*0020*/                   STG.E.128 desc[UR4][R6.64], R4 ;   /* 0x0000000406007986 */
        /*0030*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], RZ ;   /* 0x00 */
        /*0040*/              @P1  UTMALDG.5D [UR8], [UR4] ;   /* 0x00 */
        /*0050*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;   /* 0x00 */
        /*0060*/                   MUFU.EX2 R4, R5 ;   /* 0x00 */
        /*0070*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;   /* 0x00 */
        /*0080*/                   MUFU.EX2 R4, R5 ;   /* 0x00 */
        /*0090*/                   EXIT ;     /* 0x000000000000794d */
"""


def self_test():
    seeded = kernels_of(resources_of(SEEDED_USAGE), instructions_of(SEEDED_SASS))
    assert len(seeded) == 1, seeded
    good = seeded[0]
    assert good[:6] == ("moves_x.cu", "copy", "IfEEvPT_", 40, 512, 0), good
    assert (good.loads, good.stores, good.float64, good.spills) == (1, 1, 0, 0), good
    assert (good.wgmma, good.tma, good.beside) == (1, 1, 1), good
    line = "moves_x.cu copy 40 512 1 1 no 1 1 1  # why"
    assert not list(failures_of([good], budgets_of(line)))
    added = "        /*00a0*/                   {} ;     /* 0x00 */\n"
    for instruction, field in (("DFMA R4, R2, R4, R6", "float64"), ("STL [R1], R4", "spills")):
        counted = instructions_of(SEEDED_SASS + added.format(instruction))
        assert getattr(kernels_of(resources_of(SEEDED_USAGE), counted)[0], field) == 1, field
    broken = {
        "stack": good._replace(stack=8),
        "local memory": good._replace(local=8),
        "accesses to it": good._replace(spills=1),
        "41 registers": good._replace(registers=41),
        "513 bytes": good._replace(shared=513),
        "0 global loads": good._replace(loads=0),
        "0 global stores": good._replace(stores=0),
        "2 instructions in float64": good._replace(float64=2),
        "0 products": good._replace(wgmma=0),
        "0 loads by TMA": good._replace(tma=0),
        "0 exponentials": good._replace(beside=0),
        "not listed": good._replace(kernel="other"),
    }
    for part, kernel in broken.items():
        found = list(failures_of([good, kernel], budgets_of(line)))
        assert len(found) == 1 and part in found[0], (part, found)
    assert "no such kernel" in next(failures_of([], budgets_of(line)))
    assert not list(unwarned("ptxasOptions = -warn-spills -warn-lmem-usage"))
    assert "-warn-spills" in next(unwarned("ptxasOptions = -warn-lmem-usage"))
    for text in ("moves_x.cu copy 40", line.replace("no ", "perhaps ")):
        try:
            budgets_of(text)
        except ValueError:
            continue
        raise AssertionError(f"accepted: {text}")
    print("kernel_gates: every seeded violation was found")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuobjdump", default="cuobjdump", help="the program (default: on PATH)")
    parser.add_argument("--budgets", help="file with a line per kernel")
    parser.add_argument("--self-test", action="store_true", help="seed violations, find them")
    parser.add_argument("library", nargs="?", help="what the kernels were linked into")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not arguments.library or not arguments.budgets:
        parser.error("--budgets FILE and a library are needed")
    with open(arguments.budgets) as file:
        budgets = budgets_of(file.read())
    usage = dump(arguments.cuobjdump, "--dump-resource-usage", arguments.library)
    sass = dump(arguments.cuobjdump, "--dump-sass", arguments.library)
    kernels = kernels_of(resources_of(usage), instructions_of(sass))
    failures = [*failures_of(kernels, budgets), *unwarned(usage)]
    for failure in failures:
        print(f"FAIL {failure}")
    print(f"{len(kernels)} instantiations of {len(budgets)} kernels, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
