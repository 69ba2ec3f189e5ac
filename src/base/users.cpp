// User names from the host's user directory; see users.h.
#include "base/users.h"

#include <map>
#include <pwd.h>

namespace berth {

const std::string& user_name(uid_t uid) {
  static std::map<uid_t, std::string> known;
  const auto found = known.find(uid);
  if (found != known.end()) return found->second;
  const passwd* entry = ::getpwuid(uid);
  return known.emplace(uid, entry == nullptr ? std::to_string(uid) : entry->pw_name).first->second;
}

}  // namespace berth
