// The command `berth serve [--port PORT] [--listen ADDRESS] [--allow-changes] [--token-file FILE]
// [--behind-proxy NAME] [--print-unit]`.
#include "serve/serve.h"

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
  const auto number = parse_integer<std::uint16_t>(text);
  if (!number) {
    return fail(ErrorKind::usage, fmt::format("{} is not a port from 0 to 65535", in_quotes(text)));
  }
  port = *number;
  return {};
}

// ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
Result<void> parse_address(std::string_view text, serve::ServeOptions& options) {
  const std::size_t colon = text.rfind(':');
  const bool has_port = colon != std::string_view::npos && !serve::is_ip_address(std::string(text));
  std::string_view address = text.substr(0, has_port ? colon : text.size());
  const bool bracketed = address.starts_with('[') && address.ends_with(']');
  if (bracketed) address = address.substr(1, address.size() - 2);
  if (!serve::is_ip_address(std::string(address))) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not an IP address with or without a port, such as 127.0.0.1, "
                            "0.0.0.0:8080 or ::1",
                            in_quotes(text)));
  }
  if (has_port) TRY(parse_port(text.substr(colon + 1), options.port));
  options.address = address;
  return {};
}

Result<void> parse_proxy(std::string_view text, std::string& proxy) {
  const auto host = serve::extract_host(text);
  const bool name = host && host->find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") ==
                                std::string::npos;
  if (!name) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not a host name, such as gpus.example.org", in_quotes(text)));
  }
  proxy = text;
  return {};
}

}  // namespace

Action define_serve(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<serve::ServeOptions>();
  command.add_value("--port", "PORT", "TCP port to listen on (default 8417; 0: any free port)",
                    [options](std::string_view text) { return parse_port(text, options->port); });
  command.add_value(
      "--listen", "ADDRESS",
      "Address to listen on, with or without a port (default\n127.0.0.1: only this host)",
      [options](std::string_view text) { return parse_address(text, *options); });
  command.add_flag(
      "--allow-changes", options->allow_changes,
      "Let token holders see and end your jobs, cancel, release\nand drain, as your user");
  command.add_text("--token-file", "FILE", "Require the token in this file from every client",
                   options->token_file);
  command.add_value("--behind-proxy", "NAME", "Public hostname of an authenticating reverse proxy",
                    [options](std::string_view text) { return parse_proxy(text, options->proxy); });
  auto unit = std::make_shared<bool>(false);
  command.add_flag("--print-unit", *unit, "Print a systemd unit with these flags, and exit");
  command.set_footer(
      "Serves a live page with every GPU, the queue and the history; the same data as JSON below\n"
      "/api/v1; and /metrics for Prometheus. Prints its URL, and runs until Ctrl-C. The page\n"
      "shows what 'berth status' shows to all users, and changes nothing without --allow-changes.\n"
      "Holders of its token also see your detached jobs ('berth run -d').\n"
      "docs/serve.md explains how to run it for a whole lab.\n"
      "\nExamples:\n"
      "  berth serve\n"
      "  berth serve --allow-changes\n"
      "  ssh -L 8417:localhost:8417 gpu-server      then open http://localhost:8417\n"
      "  berth serve --print-unit | sudo tee /etc/systemd/system/berth-serve.service\n"
      "  berth serve --listen 0.0.0.0 --token-file ~/.config/berth-token\n"
      "\nExit codes: 0 ended by SIGTERM; 64 wrong usage; 74 the port or the harbour cannot be\n"
      "used; 130 ended by Ctrl-C.");
  return [options, unit]() -> Result<int> {
    if (!*unit) return serve::run_server(*options);
    print(TRY(serve::make_systemd_unit(*options)));
    return 0;
  };
}

}  // namespace berth
