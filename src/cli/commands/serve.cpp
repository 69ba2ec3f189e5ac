// The command `berth serve [--port PORT] [--listen ADDRESS] [--allow-changes] [--token-file FILE]
// [--behind-proxy NAME] [--print-unit]`.
#include "serve/serve.h"

#include <charconv>
#include <fmt/format.h>
#include <memory>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "serve/access.h"
#include "serve/server.h"

namespace berth {
namespace {

Result<void> parse_port(std::string_view text, std::uint16_t& port) {
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, port);
  if (problem == std::errc{} && rest == end && !text.empty()) return {};
  return fail(ErrorKind::usage, fmt::format("{} is not a port from 0 to 65535", in_quotes(text)));
}

Result<void> parse_address(std::string_view text, std::string& address) {
  address = text;
  if (serve::is_ip_address(address)) return {};
  return fail(
      ErrorKind::usage,
      fmt::format("{} is no IP address, such as 127.0.0.1, 0.0.0.0 or ::1", in_quotes(text)));
}

Result<void> parse_proxy(std::string_view text, std::string& proxy) {
  const auto host = serve::extract_host(text);
  const bool name = host && host->find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") ==
                                std::string::npos;
  if (!name) {
    return fail(ErrorKind::usage,
                fmt::format("{} is no host's name, such as gpus.example.org", in_quotes(text)));
  }
  proxy = text;
  return {};
}

}  // namespace

Action define_serve(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<serve::ServeOptions>();
  command.add_value("--port", "PORT", "Where to listen (default 8417); 0: any that is free",
                    [options](std::string_view text) { return parse_port(text, options->port); });
  command.add_value(
      "--listen", "ADDRESS", "At which address (default 127.0.0.1: this host alone)",
      [options](std::string_view text) { return parse_address(text, options->address); });
  command.add_flag("--allow-changes", options->allow_changes,
                   "Who has the token may cancel, release and drain, as you");
  command.add_value("--token-file", "FILE", "Ask everybody for the token in this file",
                    [options](std::string_view text) -> Result<void> {
                      options->token_file = text;
                      return {};
                    });
  command.add_value("--behind-proxy", "NAME", "A proxy of this name asks who it is",
                    [options](std::string_view text) { return parse_proxy(text, options->proxy); });
  auto unit = std::make_shared<bool>(false);
  command.add_flag("--print-unit", *unit, "Print a systemd unit that serves so, and exit");
  command.set_footer(
      "A page with every GPU, the queue and the history, live; the same as JSON below /api/v1,\n"
      "and /metrics for Prometheus. Prints its URL, and serves until Ctrl-C. It shows what 'berth\n"
      "status' shows to everybody, and changes nothing without --allow-changes.\n"
      "docs/serve.md tells how to run it for a whole lab.\n"
      "\nExamples:\n"
      "  berth serve\n"
      "  berth serve --allow-changes\n"
      "  ssh -L 8417:localhost:8417 gpu-server      then open http://localhost:8417\n"
      "  berth serve --print-unit | sudo tee /etc/systemd/system/berth-serve.service\n"
      "  berth serve --listen 0.0.0.0 --token-file ~/.config/berth-token\n"
      "\nExit codes: 0 ended by SIGTERM; 64 wrong usage; 74 the port cannot be had, or the "
      "harbour\n"
      "cannot be used; 130 ended by Ctrl-C.");
  return [options, unit]() -> Result<int> {
    if (!*unit) return serve::run_server(*options);
    print(TRY(serve::make_systemd_unit(*options)));
    return 0;
  };
}

}  // namespace berth
