// Questions to the harbour's server; see server_examination.h.
#include "doctor/redis_checks.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "cluster/redis/connection.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

bool is_loopback(std::string_view address) {
  if (address.starts_with('-')) address.remove_prefix(1);  // "if there is such a one"
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// The value of a setting; nothing if we may not ask.
std::optional<std::string> configured(RedisConnection& server, const char* name) {
  const auto reply = server.call({"CONFIG", "GET", name});
  if (!reply || reply->list().size() < 2) return std::nullopt;
  return reply->list()[1].text();
}

bool listens_beyond_loopback(RedisConnection& server, const RedisUrl& url) {
  const auto bind = configured(server, "bind");
  if (!bind) {  // who reaches it from elsewhere knows
    return std::any_of(url.addresses.begin(), url.addresses.end(),
                       [](const auto& address) { return !is_loopback(address.host); });
  }
  if (configured(server, "port") == "0") return false;
  // Without a password it then answers nobody from elsewhere.
  if (configured(server, "protected-mode") == "yes") return false;
  std::istringstream addresses(*bind);
  std::string address;
  bool any = false;
  while (addresses >> address) {
    any = true;
    if (!is_loopback(address)) return true;
  }
  return !any;  // none is all
}

}  // namespace

ServerFacts look_at_server(const HarbourLocation& where, const HarbourContents& here, HarbourContents& ledger) {
  ServerFacts facts;
  facts.name = shown(*where.url);
  facts.source = where.url_source;
  facts.host = where.host;
  facts.password = !where.url->password.empty();
  for (const Record& lease : here.leases) facts.without += lease.epoch == 0 ? 1U : 0U;
  facts.without += here.tickets.size();
  auto server = RedisConnection::open(*where.url);
  if (!server) {
    facts.error = server.error();
    return facts;
  }
  facts.open_to_all = !facts.password && listens_beyond_loopback(*server, *where.url);
  facts.forgets = configured(*server, "appendonly") == "no" && configured(*server, "save") == "";
  auto harbour = Harbour::open_existing(where);
  if (!harbour || !*harbour) {
    if (!harbour) facts.error = harbour.error();
    return facts;
  }
  auto read = read_contents(**harbour);
  if (!read) {
    facts.error = read.error();
    return facts;
  }
  ledger = std::move(*read);
  facts.odd = ledger.ignored_entries;
  return facts;
}

}  // namespace berth
