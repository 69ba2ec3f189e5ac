// User names from the host's user directory; see users.h.
#include "base/users.h"

#include <cerrno>
#include <map>
#include <pwd.h>
#include <vector>

namespace berth {
namespace {

std::string name_on_host(uid_t uid) {
  std::vector<char> room(1024);
  passwd entry{};
  passwd* found = nullptr;
  while (::getpwuid_r(uid, &entry, room.data(), room.size(), &found) == ERANGE) {
    room.resize(room.size() * 2);
  }
  return found == nullptr ? std::to_string(uid) : found->pw_name;
}

}  // namespace

const std::string& user_name(uid_t uid) {
  // Each thread has its own: a lock that another one has at a fork would stay locked in the child.
  thread_local std::map<uid_t, std::string> known;
  const auto found = known.find(uid);
  if (found != known.end()) return found->second;
  return known.emplace(uid, name_on_host(uid)).first->second;
}

const std::string& user_name(uid_t uid, const std::string& given) {
  return given.empty() ? user_name(uid) : given;
}

}  // namespace berth
