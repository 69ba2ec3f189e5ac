// The command `berth top`.
#include "top/top.h"

#include "cli/command.h"

namespace berth {

Action define_top(Flags& command, const CommandContext& /*context*/) {
  command.set_footer(
      "Full-screen: every GPU (of every host that shares the harbour), who has it and what for, "
      "the\n"
      "queue, and how memory and utilization went since it was started. In the bar of memory,\n"
      "what is used and what is only reserved look different. Where there is no terminal, use\n"
      "'berth status --watch'.\n"
      "\nKeys:\n"
      "  arrows, j k   select a GPU, a lease or a ticket; Tab: from the GPUs to the queue\n"
      "  Enter         all that is known of it\n"
      "  s             sort GPUs by index, user, memory, utilization\n"
      "  f             show only what is of some users: type a part of the name\n"
      "  c, r          cancel your ticket, give your shell's lease back; asks first\n"
      "  p, h, q       pause, help, quit\n"
      "\nExamples:\n"
      "  berth top\n"
      "  NO_COLOR=1 berth top\n"
      "  ssh -t gpu-a berth top\n"
      "\nExit codes: 0 left by q; 64 there is no terminal, or one that cannot be drawn on.");
  return []() { return top::run_top(); };
}

}  // namespace berth
