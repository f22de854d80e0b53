/* A plugin of QEMU's: what is executed between two functions of a firmware, in instructions and in cycles by the table of
   the Cortex-M4's manual, without waiting for memory.

   Arguments: begin=ADDRESS,end=ADDRESS, in decimal. Each time that the second function is entered, a line is printed:
   instructions and cycles since the first was. */

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

enum { LOAD = 2, STORE = 1, DIVISION = 7, REFILL = 2 };

typedef struct {
  uint64_t start, end;
  unsigned instructions, cycles;
} Block;

static uint64_t first, last, expected, instructions, cycles;
static bool counting;

static bool moves_one(unsigned code, size_t size) { /* a load or a store of one register */
  if (size == 4) return (code & 0xFE00) == 0xF800;
  return (code & 0xF800) == 0x4800 || (code >= 0x5000 && code < 0xA000);
}

static unsigned short_cycles(unsigned code) {
  bool load = code & 0x0800;
  if ((code & 0xF800) == 0x4800) return LOAD;                                 /* from the constants */
  if ((code & 0xF000) == 0x5000) return (code >> 9 & 7) >= 3 ? LOAD : STORE;  /* register offset */
  if ((code & 0xE000) == 0x6000 || (code & 0xE000) == 0x8000) return load ? LOAD : STORE;
  if ((code & 0xF600) == 0xB400) return 1 + __builtin_popcount(code & 0x1FF); /* push, pop */
  if ((code & 0xF000) == 0xC000) return 1 + __builtin_popcount(code & 0xFF);  /* several registers */
  return 1;
}

static unsigned long_cycles(unsigned code, unsigned second) {
  bool load = code & 0x10;
  if ((code & 0xFE40) == 0xE800) return 1 + __builtin_popcount(second); /* several registers */
  if ((code & 0xFE40) == 0xE840) return 3;                              /* two registers, tables of branches */
  if ((code & 0xFE00) == 0xF800) return load ? LOAD : STORE;
  if ((code & 0xFFD0) == 0xFB90 && (second & 0xF0) == 0xF0) return DIVISION;
  return 1;
}

static void executed(unsigned processor, void* data) {
  const Block* block = data;
  if (counting && block->start != expected) cycles += REFILL; /* a branch was taken */
  expected = block->end;
  if (block->start == last && counting) {
    char text[64];
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", instructions, cycles);
    qemu_plugin_outs(text);
    counting = false;
  }
  if (block->start == first) {
    counting = true;
    instructions = cycles = 0;
    return; /* the function itself does not count */
  }
  instructions += block->instructions;
  cycles += block->cycles;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb* translation) {
  Block* block = calloc(1, sizeof *block);
  size_t count = qemu_plugin_tb_n_insns(translation);
  block->start = block->end = qemu_plugin_tb_vaddr(translation);
  block->instructions = count;
  bool moved = false;
  for (size_t i = 0; i < count; ++i) {
    struct qemu_plugin_insn* instruction = qemu_plugin_tb_get_insn(translation, i);
    const uint16_t* code = qemu_plugin_insn_data(instruction);
    size_t size = qemu_plugin_insn_size(instruction);
    bool moves = moves_one(code[0], size);
    unsigned alone = size == 2 ? short_cycles(code[0]) : long_cycles(code[0], code[1]);
    block->cycles += moves && moved ? 1 : alone; /* neighbouring loads and stores overlap */
    moved = moves;
    block->end += size;
  }
  qemu_plugin_register_vcpu_tb_exec_cb(translation, executed, QEMU_PLUGIN_CB_NO_REGS, block);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    if (!strncmp(arguments[i], "begin=", 6)) first = strtoull(arguments[i] + 6, NULL, 0);
    if (!strncmp(arguments[i], "end=", 4)) last = strtoull(arguments[i] + 4, NULL, 0);
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  return 0;
}
