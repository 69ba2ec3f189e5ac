// What the kernel and the host say around the harbour: limits, /proc, cleaning, other harbours.
#pragma once

#include <set>
#include <string>

#include "doctor/checks.h"

namespace berth {

LimitFacts collect_limits_facts();
ProcFacts collect_proc_facts();
LinkFacts collect_links_facts();
CleaningFacts collect_cleaning_facts(const HarbourLocation& where);
ArchiveFacts collect_archive_facts(const HarbourLocation& where);

// Processes of the same GPUs that run under a lease which is not among `known` (ids), as far as
// their environment can be read: our own; root reads all. Nothing of theirs is opened.
std::vector<ForeignHolder> find_foreign_holders(const HarbourLocation& ours,
                                                const std::set<std::string>& known);

}  // namespace berth
