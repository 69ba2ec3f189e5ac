// User names from the host's user directory; see users.h.
#include "base/users.h"

#include <map>
#include <mutex>
#include <pwd.h>

namespace berth {

const std::string& user_name(uid_t uid) {
  static std::mutex mutex;
  static std::map<uid_t, std::string> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(uid);
  if (found != known.end()) return found->second;
  const passwd* entry = ::getpwuid(uid);
  return known.emplace(uid, entry == nullptr ? std::to_string(uid) : entry->pw_name).first->second;
}

const std::string& user_name(uid_t uid, const std::string& given) {
  return given.empty() ? user_name(uid) : given;
}

}  // namespace berth
