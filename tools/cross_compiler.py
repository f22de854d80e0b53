"""The process that compiles kernels, for another machine than this one: for tests under emulation.

    python cross_compiler.py TRIPLE MACHINE OPTION... SCRIPT SETTINGS

TRIPLE is LLVM's name of the target, MACHINE what `platform.machine` says there. The rest is how
`tflm.compiler.compiler_process` starts a compiler; packages other than tflm are those of this Python. The variable
`TFLM_CPU` must be set, as this machine's processor is none of the target.
"""

from __future__ import annotations

import json
import platform
import runpy
import sys

import llvmlite.binding as llvm
from llvmlite.binding import targets


def pretend(triple: str, machine: str) -> None:
    """Let LLVM, and whoever asks for this machine, take it for the target."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    platform.machine = lambda: machine
    for module in (llvm, targets):
        module.get_process_triple = module.get_default_triple = lambda: triple
        module.get_host_cpu_name, module.get_host_cpu_features = str, no_features


def no_features() -> targets.FeatureMap:
    """What is known of the target's processor: nothing."""
    return targets.FeatureMap()


def main() -> None:
    """Compile as `compiler_main` does."""
    triple, machine, *_, script, settings = sys.argv[1:]
    pretend(triple, machine)
    given = json.loads(settings)
    given["packages"] = {"tflm": given["packages"]["tflm"]}
    sys.argv = [script, json.dumps(given)]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
