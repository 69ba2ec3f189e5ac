// The parts of the server and their threads; see serve.h.
#include "serve/serve.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/environment.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/users.h"
#include "devices/driver.h"
#include "profile/job_type.h"
#include "serve/server.h"
#include "serve/status_poller.h"
#include "serve/systemd_unit.h"
#include "status/status.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// As a URL and a Host header have it.
std::string bracketed(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

Result<GuardRules> make_rules(const ServeOptions& options) {
  GuardRules rules;
  rules.names = {"localhost", "127.0.0.1", "[::1]", bracketed(options.address)};
  if (const auto name = host_part(host_name())) rules.names.push_back(*name);
  rules.proxy = options.proxy;
  rules.changes = options.changes;
  rules.token_to_view = !options.token_file.empty();
  if (!options.token_file.empty() || options.changes) {
    auto token = options.token_file.empty() ? make_secret() : read_token(options.token_file);
    if (!token) return tl::make_unexpected(token.error());
    rules.token = std::move(*token);
  }
  return rules;
}

// With the token in it only if we have made it: who has a file knows what is in it.
std::string url_line(const ServeOptions& options, const Listener& listener,
                     const GuardRules& rules) {
  const bool any = options.address == "0.0.0.0" || options.address == "::";
  const std::string host = any ? host_name() : bracketed(options.address);
  const bool made = !rules.token.empty() && options.token_file.empty();
  return fmt::format("http://{}:{}/{}{}\n", host, listener.port, made ? "#token=" : "",
                     made ? rules.token : "");
}

SharedText hello_text(bool changes, const HarbourLocation& where) {
  const Json json{{"version", BERTH_VERSION},
                  {"changes", changes},
                  {"user", user_name(::geteuid())},
                  {"host", this_host(where)}};
  return std::make_shared<const std::string>(
      json.dump(-1, ' ', true, Json::error_handler_t::replace));
}

Result<void> check(const ServeOptions& options) {
  if (is_loopback(options.address) || !options.token_file.empty() || !options.proxy.empty()) {
    return {};
  }
  return fail(ErrorKind::usage,
              "serve: --listen beyond this host shows everybody's jobs to whoever can reach it; "
              "give --token-file FILE (asks viewers for a token), or --behind-proxy NAME (your "
              "proxy asks who it is)");
}

}  // namespace

Result<std::string> serve_unit(const ServeOptions& options) {
  if (auto fits = check(options); !fits) return tl::make_unexpected(fits.error());
  const ServeOptions usual;
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (options.port != usual.port) add("--port", std::to_string(options.port));
  if (options.address != usual.address) add("--listen", options.address);
  if (!options.token_file.empty()) add("--token-file", fs::absolute(options.token_file));
  if (!options.proxy.empty()) add("--behind-proxy", options.proxy);
  if (options.changes) words.emplace_back("--allow-changes");
  return unit_text({this_program(), std::move(words), unit_user(),
                    std::string(setting("BERTH_DIR")), options.changes});
}

Result<int> serve(const ServeOptions& options) {
  if (auto fits = check(options); !fits) return tl::make_unexpected(fits.error());
  const HarbourLocation where = harbour_location();
  if (where.wrong) return tl::make_unexpected(*where.wrong);
  if (const auto limit = driver_time_limit(); !limit) return tl::make_unexpected(limit.error());
  auto listener = listen_at(options.address, options.port);
  if (!listener) return tl::make_unexpected(listener.error());
  auto rules = make_rules(options);
  if (!rules) return tl::make_unexpected(rules.error());
  const std::string line = url_line(options, *listener, *rules);
  allow_many_descriptors();
  // Later helpers must not be forks of a process with threads: whatever another thread had locked
  // would stay so in them.
  set_helper_program(this_program());
  // Before there is any thread, so that all have it blocked and one alone is told.
  SignalQueue signals{SIGINT, SIGTERM, SIGHUP};

  CommandVisibility commands_of;
  if (commands_are_hidden() || !hidepid_option().empty()) commands_of = user_name(::geteuid());
  SnapshotPublisher board;
  ViewerCount audience;
  const Guard guard(std::move(*rules));
  HttpServer* told = nullptr;
  const auto poke = [&told] { told->poke(); };
  WorkQueue archive(poke);
  WorkQueue changes(poke);
  ServerContext counter{guard, board, audience, archive, changes, commands_of};
  HttpLimits limits;
  if (!options.proxy.empty()) limits.count = Clients::Count::by_connection;
  HttpServer server(std::move(*listener), counter, hello_text(options.changes, where), limits);
  told = &server;
  std::thread answers([&] {
    server.run(signals.fd());
    // Nothing is lost by it: nothing is kept. To end in an orderly way could take as long as a
    // driver that hangs.
    const auto signal = signals.next();
    const int number = signal ? static_cast<int>(signal->ssi_signo) : SIGTERM;
    std::_Exit(number == SIGTERM ? 0 : 128 + number);
  });
  StatusPoller looker(board, audience, commands_of, {poke, [&archive] { archive.outdate(); }});
  looker.look();
  print(line);
  std::fflush(stdout);
  for (;;) {
    looker.wait();
    looker.look();
  }
}

}  // namespace berth
