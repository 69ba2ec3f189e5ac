// Becoming a holder of a lease that another process of the same user has.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "harbour/location.h"

namespace berth {

// Opens the bell of the lease `id`, so that the lease lives for as long as this descriptor, too:
// for a child that did not inherit the bell. Nothing if there is no such lease of this user's, or
// it is a shell's, which can be given back while its programs run. Makes no harbour.
Result<std::optional<UniqueFd>> attach_to_lease(const std::string& id, HarbourLocation location);

}  // namespace berth
