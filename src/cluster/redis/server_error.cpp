// The table of Redis's error codes; see meaning.h.
#include "cluster/redis/server_error.h"

#include <array>
#include <fmt/format.h>
#include <optional>

#include "base/text.h"

namespace berth {
namespace {

using std::string_view;

struct Meaning {
  string_view start;  // of what the server says
  ErrorKind kind;
  string_view words;  // behind the server's name
};

constexpr std::array kMeanings{
    Meaning{"LOADING", ErrorKind::unavailable, "is reading its data from disk; it will be done soon"},
    Meaning{"BUSY", ErrorKind::unavailable,
            "is busy with somebody's script that does not end; its administrator can end it with "
            "SCRIPT KILL"},
    Meaning{"READONLY", ErrorKind::unavailable,
            "is a replica, which cannot be written to; name the master in the URL, or let Sentinel "
            "find it (redis+sentinel://)"},
    Meaning{"OOM", ErrorKind::unavailable,
            "is out of memory; its administrator can raise maxmemory, or delete what is not "
            "needed"},
    Meaning{"MISCONF", ErrorKind::unavailable,
            "takes no writes since it cannot save to disk; its log says why"},
    Meaning{"MASTERDOWN", ErrorKind::unavailable,
            "is a replica without its master; see whether the master runs"},
    Meaning{"NOREPLICAS", ErrorKind::unavailable,
            "takes no writes since too few replicas follow it (min-replicas-to-write)"},
    Meaning{"CLUSTERDOWN", ErrorKind::unavailable,
            "is part of a cluster that is down; see redis-cli cluster info"},
    Meaning{"TRYAGAIN", ErrorKind::unavailable, "is moving keys within its cluster; it will be done soon"},
    // A blocked client of a master that becomes a replica.
    Meaning{"UNBLOCKED", ErrorKind::unavailable, "stopped waiting, since it is no master any more"},
    Meaning{"ERR max number of clients reached", ErrorKind::unavailable,
            "has as many clients as it takes; its administrator can raise maxclients"},
    Meaning{"WRONGPASS", ErrorKind::io,
            "refuses the user or the password; write USER:PASSWORD@ before the host in the URL, or "
            ":PASSWORD@ where there are no users"},
    Meaning{"NOAUTH", ErrorKind::io,
            "needs a password; write it into the URL, USER:PASSWORD@ before the host, in a file "
            "of mode 0600, and set BERTH_URL=file:PATH"},
    Meaning{"DENIED", ErrorKind::io,
            "is in protected mode: it has no password, and takes clients of its own host only; its "
            "administrator should set one"},
    Meaning{"WRONGTYPE", ErrorKind::io,
            "has another program's data under a name of berth's; add another ?prefix=NAME to the "
            "URL"},
    Meaning{"MOVED", ErrorKind::io,
            "is part of a cluster, over which berth cannot make one step; use a Redis that is "
            "none"},
    Meaning{"CROSSSLOT", ErrorKind::io,
            "is part of a cluster, over which berth cannot make one step; use a Redis that is "
            "none"},
    Meaning{"NOPROTO", ErrorKind::io, "is older than Redis 6; install a newer one"},
    Meaning{"ERR unknown command", ErrorKind::io,
            "does not know a command that Redis 6 has; install a newer one, or see whether "
            "rename-command is set"},
    Meaning{"ERR DB index", ErrorKind::io,
            "has no database of this number; choose a lower one, or raise `databases`"},
};

bool begins_with_word(string_view text, string_view start) {
  return text.starts_with(start) &&
         (text.size() == start.size() || text[start.size()] == ' ' || text[start.size()] == ',');
}

std::optional<Error> known(string_view text, const ServerIdentity& party) {
  for (const auto& [start, kind, words] : kMeanings) {
    if (begins_with_word(text, start))
      return Error{kind, fmt::format("{} {}", party.server, words)};
  }
  return std::nullopt;
}

// "NOPERM this user has no permissions to run the 'blpop' command", or "… one of the keys …".
Error no_permission(string_view text, const ServerIdentity& party) {
  const string_view user = party.user.empty() ? string_view("default") : string_view(party.user);
  const auto begin = text.find('\'');
  const auto end = text.find('\'', begin == string_view::npos ? begin : begin + 1);
  const bool names_command = end != string_view::npos && text.find("run the") != string_view::npos;
  const std::string rule =
      names_command ? fmt::format("+{}", printable(text.substr(begin + 1, end - begin - 1)))
                    : fmt::format("~{}:*", party.prefix);
  return {ErrorKind::io,
          fmt::format("{} does not let user {} {}; its administrator can: ACL SETUSER {} {}",
                      party.server, in_quotes(user),
                      names_command ? "run a command that berth needs" : "use berth's keys",
                      printable(user), in_quotes(rule))};
}

// Redis 6 wraps what a command within a script met with: "ERR Error running script (call to f_…):
// @user_script:1: @user_script: 1: -OOM command not allowed …".
string_view unwrapped(string_view text) {
  if (!text.starts_with("ERR Error running script")) return text;
  const auto at = text.find(": -");
  return at == string_view::npos ? text : text.substr(at + 3);
}

}  // namespace

Error translate_error(string_view text, const ServerIdentity& party) {
  const string_view cause = unwrapped(text);
  if (auto error = known(cause, party)) return *error;
  if (begins_with_word(cause, "NOPERM")) return no_permission(cause, party);
  return {ErrorKind::io,
          fmt::format("{} refuses a command of berth's: {}", party.server, in_quotes(text))};
}

Error meaning_of_refusal(string_view text, const ServerIdentity& party) {
  if (begins_with_word(text, "ERR unknown command")) {
    return {
        ErrorKind::io,
        fmt::format("{} is older than Redis 6, or no Redis; install a newer one", party.server)};
  }
  if (auto error = known(text, party)) return *error;
  return {ErrorKind::io,
          fmt::format("{} lets nobody in, for a reason that may quote the password; ask it with "
                      "redis-cli",
                      party.server)};
}

}  // namespace berth
