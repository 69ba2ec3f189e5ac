// Looks up user names, and tells root of the host from root of a user namespace; see users.h.
#include "base/users.h"

#include <cerrno>
#include <map>
#include <pwd.h>
#include <unistd.h>
#include <vector>

#include "base/read_file.h"
#include "base/text.h"
#include "base/uid_map.h"

namespace berth {
namespace {

std::string look_up_user_name(uid_t uid) {
  if (!is_identified(uid)) return "another user";
  std::vector<char> buffer(1024);
  passwd entry{};
  passwd* found = nullptr;
  while (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == ERANGE) {
    buffer.resize(buffer.size() * 2);
  }
  return found == nullptr ? std::to_string(uid) : found->pw_name;
}

}  // namespace

const std::string& user_name(uid_t uid) {
  // One cache for each thread: a mutex that another thread holds during a fork would stay locked in
  // the child.
  thread_local std::map<uid_t, std::string> cache;
  const auto found = cache.find(uid);
  if (found != cache.end()) return found->second;
  return cache.emplace(uid, look_up_user_name(uid)).first->second;
}

const std::string& user_name(uid_t uid, const std::string& given) {
  return given.empty() ? user_name(uid) : given;
}

std::string owner_or_root(uid_t uid) {
  return is_root(uid) ? "root" : user_name(uid) + " or root";
}

bool is_root(uid_t uid) {
  return uid == 0 && own_uid_map().is_identity();
}

bool is_root() {
  return is_root(::geteuid());
}

uid_t overflow_uid() {
  static const uid_t uid = [] {
    constexpr uid_t kDefault = 65534;
    const std::string text = read_proc_file("/proc/sys/kernel/overflowuid").value_or("");
    std::string_view rest = text;
    return parse_integer<uid_t>(take_word(rest)).value_or(kDefault);
  }();
  return uid;
}

bool is_identified(uid_t uid) {
  return own_uid_map().is_identity() || uid != overflow_uid();
}

}  // namespace berth
