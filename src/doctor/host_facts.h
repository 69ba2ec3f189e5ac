// What the kernel and the host say around the harbour: limits, /proc, cleaning, other harbours.
#pragma once

#include <set>
#include <string>

#include "doctor/checks.h"

namespace berth {

LimitFacts look_at_limits();
ProcFacts look_at_proc();
LinkFacts look_at_links();
CleaningFacts look_at_cleaning(const HarbourLocation& where);
ArchiveFacts look_at_archive(const HarbourLocation& where);

// Processes of the same GPUs that run under a lease which is not among `known` (ids), as far as
// their environment can be read: our own; root reads all. Nothing of theirs is opened.
std::vector<ForeignHolder> foreign_holders(const HarbourLocation& ours,
                                           const std::set<std::string>& known);

}  // namespace berth
