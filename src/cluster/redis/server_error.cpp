// The table of Redis error codes and their translations; see server_error.h.
#include "cluster/redis/server_error.h"

#include <array>
#include <fmt/format.h>
#include <optional>

#include "base/text.h"

namespace berth {
namespace {

using std::string_view;

struct ErrorTranslation {
  string_view prefix;  // of the server's error text
  ErrorKind kind;
  string_view explanation;  // follows the server's name
};

constexpr std::array kErrorTranslations{
    ErrorTranslation{"LOADING", ErrorKind::unavailable,
                     "is reading its data from disk; it will be done soon"},
    ErrorTranslation{
        "BUSY", ErrorKind::unavailable,
        "is busy with somebody's script that does not end; its administrator can end it with "
        "SCRIPT KILL"},
    ErrorTranslation{
        "READONLY", ErrorKind::unavailable,
        "is a replica, which cannot be written to; name the master in the URL, or let Sentinel "
        "find it (redis+sentinel://)"},
    ErrorTranslation{
        "OOM", ErrorKind::unavailable,
        "is out of memory; its administrator can raise maxmemory, or delete what is not "
        "needed"},
    ErrorTranslation{"MISCONF", ErrorKind::unavailable,
                     "takes no writes since it cannot save to disk; its log says why"},
    ErrorTranslation{"MASTERDOWN", ErrorKind::unavailable,
                     "is a replica without its master; see whether the master runs"},
    ErrorTranslation{"NOREPLICAS", ErrorKind::unavailable,
                     "takes no writes since too few replicas follow it (min-replicas-to-write)"},
    ErrorTranslation{"CLUSTERDOWN", ErrorKind::unavailable,
                     "is part of a cluster that is down; see redis-cli cluster info"},
    ErrorTranslation{"TRYAGAIN", ErrorKind::unavailable,
                     "is moving keys within its cluster; it will be done soon"},
    // The reply to a blocked client when the master becomes a replica.
    ErrorTranslation{"UNBLOCKED", ErrorKind::unavailable,
                     "stopped waiting, since it is no master any more"},
    ErrorTranslation{"ERR max number of clients reached", ErrorKind::unavailable,
                     "has as many clients as it takes; its administrator can raise maxclients"},
    ErrorTranslation{
        "WRONGPASS", ErrorKind::io,
        "refuses the user or the password; write USER:PASSWORD@ before the host in the URL, or "
        ":PASSWORD@ where there are no users"},
    ErrorTranslation{
        "NOAUTH", ErrorKind::io,
        "needs a password; write it into the URL, USER:PASSWORD@ before the host, in a file "
        "of mode 0600, and set BERTH_URL=file:PATH"},
    ErrorTranslation{
        "DENIED", ErrorKind::io,
        "is in protected mode: it has no password, and takes clients of its own host only; its "
        "administrator should set one"},
    ErrorTranslation{
        "WRONGTYPE", ErrorKind::io,
        "has another program's data under a name of berth's; add another ?prefix=NAME to the "
        "URL"},
    ErrorTranslation{
        "MOVED", ErrorKind::io,
        "is part of a cluster, over which berth cannot make one step; use a Redis that is "
        "none"},
    ErrorTranslation{
        "CROSSSLOT", ErrorKind::io,
        "is part of a cluster, over which berth cannot make one step; use a Redis that is "
        "none"},
    ErrorTranslation{"NOPROTO", ErrorKind::io, "is older than Redis 6; install a newer one"},
    ErrorTranslation{
        "ERR unknown command", ErrorKind::io,
        "does not know a command that Redis 6 has; install a newer one, or see whether "
        "rename-command is set"},
    ErrorTranslation{"ERR DB index", ErrorKind::io,
                     "has no database of this number; choose a lower one, or raise `databases`"},
};

bool begins_with_word(string_view text, string_view prefix) {
  return text.starts_with(prefix) &&
         (text.size() == prefix.size() || text[prefix.size()] == ' ' || text[prefix.size()] == ',');
}

std::optional<Error> find_translation(string_view text, const ServerIdentity& identity) {
  for (const auto& [prefix, kind, explanation] : kErrorTranslations) {
    if (begins_with_word(text, prefix))
      return Error{kind, fmt::format("{} {}", identity.server, explanation)};
  }
  return std::nullopt;
}

// `text` is "NOPERM this user has no permissions to run the 'blpop' command", or "… to access one
// of the keys …".
Error permission_error(string_view text, const ServerIdentity& identity) {
  const string_view user =
      identity.user.empty() ? string_view("default") : string_view(identity.user);
  const auto begin = text.find('\'');
  const auto end = text.find('\'', begin == string_view::npos ? begin : begin + 1);
  const bool names_command = end != string_view::npos && text.find("run the") != string_view::npos;
  const std::string rule =
      names_command ? fmt::format("+{}", printable(text.substr(begin + 1, end - begin - 1)))
                    : fmt::format("~{}:*", identity.prefix);
  return {ErrorKind::io,
          fmt::format("{} does not let user {} {}; its administrator can: ACL SETUSER {} {}",
                      identity.server, in_quotes(user),
                      names_command ? "run a command that berth needs" : "use berth's keys",
                      printable(user), in_quotes(rule))};
}

// Redis 6 wraps the error of a command that a script calls:
// "ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -OOM command not …".
string_view unwrap_script_error(string_view text) {
  if (!text.starts_with("ERR Error running script")) return text;
  const auto at = text.find(": -");
  return at == string_view::npos ? text : text.substr(at + 3);
}

}  // namespace

Error translate_error(string_view text, const ServerIdentity& identity) {
  const string_view cause = unwrap_script_error(text);
  if (auto error = find_translation(cause, identity)) return *error;
  if (begins_with_word(cause, "NOPERM")) return permission_error(cause, identity);
  return {ErrorKind::io,
          fmt::format("{} refuses a command of berth's: {}", identity.server, in_quotes(text))};
}

Error translate_login_error(string_view text, const ServerIdentity& identity) {
  if (begins_with_word(text, "ERR unknown command")) {
    return {ErrorKind::io, fmt::format("{} is older than Redis 6, or no Redis; install a newer one",
                                       identity.server)};
  }
  if (auto error = find_translation(text, identity)) return *error;
  return {ErrorKind::io,
          fmt::format("{} lets nobody in, for a reason that may quote the password; ask it with "
                      "redis-cli",
                      identity.server)};
}

}  // namespace berth
