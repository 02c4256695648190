"""The instruction sets that the CPU kernels are compiled for, with the compiler's flags for each.

Imported by setup.py and by the tests. csrc/cpu/dispatch.cpp chooses among them at run time.
"""

import platform

INSTRUCTION_SETS: dict[str, list[str]] = {"plain": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    INSTRUCTION_SETS["avx2"] = ["-mavx2", "-mfma"]
    INSTRUCTION_SETS["avx512"] = ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"]
