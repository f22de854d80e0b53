"""Makefile rules that build CMSIS-NN for a self-test, from the user's sources."""

from __future__ import annotations

from tflm.c.cmsis_nn.processors import Processors
from tflm.c.self_test import Build

COMMENT = """\
#
# Each needs the folder of CMSIS-NN 7: make check CMSIS_NN=path
"""

ONLY_HELIUM = """\
# The RAM is planned for Helium, which this machine lacks: make check runs the model in plain C, make qemu CMSIS-NN.
"""

VARIABLES = """\
CMSIS_NN ?= ../CMSIS-NN
CMSIS_NN_SOURCES = $(filter-out %_f16.c %_f32.c %_flt.c,$(abspath $(wildcard $(CMSIS_NN)/Source/*/*.c)))
CMSIS_NN_OBJECTS = -ffunction-sections -c -I$(abspath $(CMSIS_NN))/Include $(CMSIS_NN_SOURCES)
"""

RULES = """
cmsis_nn_host.a cmsis_nn_arm.a: %.a: $(CMSIS_NN)/Include/arm_nnfunctions.h
	mkdir -p $*
	cd $* && $(if $(findstring arm,$*),$(ARM)gcc $(PART) $(OPTIMIZE),$(CC) -O1 -g) $(CMSIS_NN_OBJECTS)
	$(if $(findstring arm,$*),$(ARM))ar rcs $@ $*/*.o
"""


def build_of(processors: Processors) -> Build:
    """Return the processor and the library for the Makefile of a self-test."""
    build = Build(
        comment=COMMENT,
        include=" -isystem $(CMSIS_NN)/Include",
        variables=VARIABLES,
        rules=RULES,
        host_library=" cmsis_nn_host.a",
        arm_library=" cmsis_nn_arm.a",
        built=" cmsis_nn_host* cmsis_nn_arm*",
    )
    if processors.may_lack_mve:
        return build
    return build._replace(
        core="Cortex-M55",
        part="-mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
        machine="mps3-an547",
        ram="0x21000000",
        stack="0x21100000",
        comment=COMMENT + ONLY_HELIUM,
        host_library="",
        is_plain_on_host=True,
    )
