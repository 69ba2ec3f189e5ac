// The command `berth top`.
#include "top/top.h"

#include "cli/command.h"

namespace berth {

Action define_top(Flags& command, const CommandContext& /*context*/) {
  command.set_footer(
      "Shows every GPU (of all hosts that share the harbour), its user and job, when the job\n"
      "ends, the processes, the queue, and charts of the memory and utilization since 'berth\n"
      "top' was started, full-screen; as much of it as fits the terminal. The memory bar shows\n"
      "used and reserved memory differently. Without a terminal, use 'berth status --watch'.\n"
      "\nKeys:\n"
      "  arrows, j k   select a GPU, a lease or a ticket; Tab: from the GPUs to the queue\n"
      "  Enter         show all details\n"
      "  mouse         a click selects, a double click shows details, the wheel scrolls\n"
      "  s             sort GPUs by index, user, memory, utilization, or free ones first\n"
      "  v             rows of the list: as many as fit, compact, leases, processes\n"
      "  f             show only some users: type a part of their name\n"
      "  c             cancel your ticket, or end your job; asks first\n"
      "  r             release your shell's lease; asks first\n"
      "  p, h, q       pause, help, quit\n"
      "\nExamples:\n"
      "  berth top\n"
      "  NO_COLOR=1 berth top\n"
      "  ssh -t gpu-a berth top\n"
      "\nExit codes: 0 quit with q; 64 no terminal, or a terminal that cannot be drawn on.");
  return []() { return top::run_top(); };
}

}  // namespace berth
