// Opening somebody's bell as its reader; see join.h.
#include "lease/attach.h"

#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "harbour/bell.h"
#include "harbour/harbour.h"

namespace berth {

Result<std::optional<UniqueFd>> attach_to_lease(const std::string& id, HarbourLocation location) {
  if (!is_id(id)) return std::nullopt;
  auto harbour = Harbour::open_existing(std::move(location));
  if (!harbour) return tl::make_unexpected(harbour.error());
  if (!*harbour) return std::nullopt;
  // Under the lock: a lease that lives now is given to nobody before we hold it.
  auto transaction = (*harbour)->begin(LockMode::shared, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  const auto lease = (*transaction)->read_lease(id);
  if (!lease) return tl::make_unexpected(lease.error());
  if (!*lease) return std::nullopt;
  const Record& record = (*lease)->record;
  if (record.uid != ::geteuid() || record.holder != HolderKind::job) return std::nullopt;
  UniqueFd bell(::openat((*harbour)->directory(), bell_file_name(id).c_str(),
                         O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!bell) return std::nullopt;
  return bell;
}

}  // namespace berth
