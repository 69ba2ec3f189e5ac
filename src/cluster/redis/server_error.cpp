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
                     "is loading its data from disk; try again soon"},
    ErrorTranslation{
        "BUSY", ErrorKind::unavailable,
        "is blocked by a script that does not end; its administrator can end the script with "
        "SCRIPT KILL"},
    ErrorTranslation{
        "READONLY", ErrorKind::unavailable,
        "is a replica and refuses writes; name the master in the URL, or use redis+sentinel://"},
    ErrorTranslation{"OOM", ErrorKind::unavailable,
                     "is out of memory; its administrator can raise maxmemory"},
    ErrorTranslation{"MISCONF", ErrorKind::unavailable,
                     "refuses writes because it cannot save to disk; see the log of the server"},
    ErrorTranslation{"MASTERDOWN", ErrorKind::unavailable,
                     "is a replica that lost its master; check that the master is running"},
    ErrorTranslation{
        "NOREPLICAS", ErrorKind::unavailable,
        "refuses writes because too few replicas are connected (min-replicas-to-write); "
        "check that its replicas are running"},
    ErrorTranslation{"CLUSTERDOWN", ErrorKind::unavailable,
                     "is a node of a Redis Cluster that is down; see 'redis-cli cluster info'"},
    ErrorTranslation{"TRYAGAIN", ErrorKind::unavailable,
                     "is moving keys within its cluster; try again soon"},
    // The reply to a blocked client when the master becomes a replica.
    ErrorTranslation{"UNBLOCKED", ErrorKind::unavailable,
                     "ended a blocking command because it is no longer the master; try again soon"},
    ErrorTranslation{"ERR max number of clients reached", ErrorKind::unavailable,
                     "has reached its limit of clients; its administrator can raise maxclients"},
    ErrorTranslation{
        "WRONGPASS", ErrorKind::io,
        "rejected the user or the password; check USER:PASSWORD@ in the URL (:PASSWORD@ if the "
        "server has no users)"},
    ErrorTranslation{"NOAUTH", ErrorKind::io,
                     "requires a password; write the URL with USER:PASSWORD@ before the host into "
                     "a file of mode 0600, and set BERTH_URL=file:PATH"},
    ErrorTranslation{
        "DENIED", ErrorKind::io,
        "is in protected mode: it has no password and accepts only clients of its own host; its "
        "administrator can set a password"},
    ErrorTranslation{"WRONGTYPE", ErrorKind::io,
                     "has data of another program under a key of berth; add a different "
                     "?prefix=NAME to the URL"},
    ErrorTranslation{
        "MOVED", ErrorKind::io,
        "is a Redis Cluster node, which berth does not support; use a standalone server"},
    ErrorTranslation{
        "CROSSSLOT", ErrorKind::io,
        "is a Redis Cluster node, which berth does not support; use a standalone server"},
    ErrorTranslation{"NOPROTO", ErrorKind::io, "is older than Redis 6; install a newer version"},
    ErrorTranslation{
        "ERR unknown command", ErrorKind::io,
        "lacks a command that Redis 6 has; install a newer version, or check rename-command in its "
        "configuration"},
    ErrorTranslation{
        "ERR DB index", ErrorKind::io,
        "has no database with this number; choose a lower number, or raise 'databases' in its "
        "configuration"},
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
  return {
      ErrorKind::io,
      fmt::format("{} does not allow user {} to {}; its administrator can run: ACL SETUSER {} {}",
                  identity.server, in_quotes(user),
                  names_command ? "run a command that berth needs" : "use the keys of berth",
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
          fmt::format("{} rejected a command of berth: {}", identity.server, in_quotes(text))};
}

Error translate_login_error(string_view text, const ServerIdentity& identity) {
  if (begins_with_word(text, "ERR unknown command")) {
    return {
        ErrorKind::io,
        fmt::format(
            "{} is older than Redis 6, or is not Redis; install a newer version, or check the URL",
            identity.server)};
  }
  if (auto error = find_translation(text, identity)) return *error;
  return {ErrorKind::io,
          fmt::format(
              "{} rejected the login (its reply may contain the password and is not shown); check "
              "with redis-cli",
              identity.server)};
}

}  // namespace berth
