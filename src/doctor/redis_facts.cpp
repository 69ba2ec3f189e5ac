// Queries the Redis server of a harbour of several hosts; see redis_facts.h.
#include "doctor/redis_facts.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "cluster/redis/connection.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

bool is_loopback(std::string_view address) {
  if (address.starts_with('-')) address.remove_prefix(1);  // "-": optional address
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// The value of a setting; nullopt if this user may not read it.
std::optional<std::string> read_setting(RedisConnection& server, const char* name) {
  const auto reply = server.call({"CONFIG", "GET", name});
  if (!reply || reply->list().size() < 2) return std::nullopt;
  return reply->list()[1].text();
}

bool accepts_remote_connections(RedisConnection& server, const RedisUrl& url) {
  const auto bind = read_setting(server, "bind");
  if (!bind) {  // hidden from us: a URL that is not loopback shows that other hosts can connect
    return std::any_of(url.addresses.begin(), url.addresses.end(),
                       [](const auto& address) { return !is_loopback(address.host); });
  }
  if (read_setting(server, "port") == "0") return false;
  // In protected mode, a server without a password refuses connections from other hosts.
  if (read_setting(server, "protected-mode") == "yes") return false;
  std::istringstream addresses(*bind);
  std::string address;
  bool any = false;
  while (addresses >> address) {
    any = true;
    if (!is_loopback(address)) return true;
  }
  return !any;  // an empty list means all addresses
}

Result<void> read_server(const HarbourLocation& where, ServerFacts& facts,
                         HarbourContents& contents) {
  RedisConnection server = TRY(RedisConnection::open(*where.url));
  facts.open_to_all = where.url->password.empty() && accepts_remote_connections(server, *where.url);
  facts.loses_data_on_restart =
      read_setting(server, "appendonly") == "no" && read_setting(server, "save") == "";
  auto harbour = TRY(Harbour::open_existing(where));
  if (!harbour) return {};
  contents = TRY(read_contents(*harbour));
  facts.ignored_entries = contents.ignored_entries;
  return {};
}

}  // namespace

ServerFacts collect_server_facts(const HarbourLocation& where,
                                 const HarbourContents& local_contents, HarbourContents& contents) {
  ServerFacts facts;
  facts.name = format_redacted_url(*where.url);
  facts.source = where.url_source;
  facts.host = where.host;
  for (const Record& lease : local_contents.leases)
    facts.bypassing_clients += lease.epoch == 0 ? 1U : 0U;
  facts.bypassing_clients += local_contents.tickets.size();
  if (const auto read = read_server(where, facts, contents); !read) facts.error = read.error();
  return facts;
}

}  // namespace berth
