// Facts from the host around the harbour: limits, /proc, links, cleaning, archive, other harbours.
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

// Processes on the same GPUs (or the same simulated server) that run under a lease whose id is not
// in `known`. Reads only the environment of processes: the user's own; root reads all.
std::vector<ForeignHolder> find_foreign_holders(const HarbourLocation& ours,
                                                const std::set<std::string>& known);

}  // namespace berth
