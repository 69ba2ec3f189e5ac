// The command `berth top`.
#include "top/top.h"

#include "cli/command.h"

namespace berth {

Action define_top(Flags& command, const CommandContext& /*context*/) {
  command.set_footer(
      "Shows every GPU (of all hosts that share the harbour), its user and job, the queue, and\n"
      "the memory and utilization since 'berth top' was started, full-screen. The memory bar\n"
      "shows used and reserved memory differently. Without a terminal, use 'berth status\n"
      "--watch'.\n"
      "\nKeys:\n"
      "  arrows, j k   select a GPU, a lease or a ticket; Tab: from the GPUs to the queue\n"
      "  Enter         show all details\n"
      "  s             sort GPUs by index, user, memory, utilization\n"
      "  f             show only some users: type a part of their name\n"
      "  c, r          cancel your ticket, release your shell's lease; asks first\n"
      "  p, h, q       pause, help, quit\n"
      "\nExamples:\n"
      "  berth top\n"
      "  NO_COLOR=1 berth top\n"
      "  ssh -t gpu-a berth top\n"
      "\nExit codes: 0 quit with q; 64 no terminal, or a terminal that cannot be drawn on.");
  return []() { return top::run_top(); };
}

}  // namespace berth
