// Wires the parts of the server together and starts their threads; see serve.h.
#include "serve/serve.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <thread>
#include <unistd.h>

#include "base/configuration.h"
#include "base/descriptors.h"
#include "base/environment.h"
#include "base/json.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/users.h"
#include "devices/driver.h"
#include "profile/job_type.h"
#include "serve/job_folder_reader.h"
#include "serve/server.h"
#include "serve/status_poller.h"
#include "serve/systemd_unit.h"
#include "status/status.h"

namespace berth::serve {
namespace {

namespace fs = std::filesystem;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// The form of an address in a URL and in a Host header.
std::string bracket_ipv6(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

Result<AccessRules> make_access_rules(const ServeOptions& options) {
  AccessRules rules;
  rules.host_names = {"localhost", "127.0.0.1", "[::1]", bracket_ipv6(options.address)};
  if (const auto name = extract_host(kernel_host_name())) rules.host_names.push_back(*name);
  rules.proxy = options.proxy;
  rules.allow_changes = options.allow_changes;
  rules.view_needs_token = !options.token_file.empty();
  if (!options.token_file.empty() || options.allow_changes) {
    rules.token =
        TRY(options.token_file.empty() ? generate_secret() : read_token(options.token_file));
  }
  return rules;
}

// The URL contains the token only if it was generated: the user of --token-file has the file.
std::string format_url_line(const ServeOptions& options, const Listener& listener,
                            const AccessRules& rules) {
  const bool any_address = options.address == "0.0.0.0" || options.address == "::";
  const std::string host = any_address ? kernel_host_name() : bracket_ipv6(options.address);
  const bool token_generated = !rules.token.empty() && options.token_file.empty();
  return fmt::format("http://{}:{}/{}{}\n", host, listener.port, token_generated ? "#token=" : "",
                     token_generated ? rules.token : "");
}

SharedText make_hello(bool allow_changes, const HarbourLocation& where) {
  const Json json{{"version", BERTH_VERSION},
                  {"changes", allow_changes},
                  {"user", user_name(::geteuid())},
                  {"host", local_host_name(where)}};
  return share_text(to_ascii_json(json));
}

Result<void> check_options(const ServeOptions& options) {
  if (is_loopback(options.address) || !options.token_file.empty() || !options.proxy.empty()) {
    return {};
  }
  return fail(ErrorKind::usage,
              "serve: every client that can reach this --listen address would see the jobs of all "
              "users; add --token-file FILE (viewers need a token) or --behind-proxy NAME (a proxy "
              "authenticates viewers)");
}

}  // namespace

Result<std::string> make_systemd_unit(const ServeOptions& options) {
  TRY(check_options(options));
  const ServeOptions defaults;
  std::vector<std::string> arguments;
  const auto add = [&](const char* flag, const std::string& value) {
    arguments.insert(arguments.end(), {flag, value});
  };
  if (options.port != defaults.port) add("--port", std::to_string(options.port));
  if (options.address != defaults.address) add("--listen", options.address);
  if (!options.token_file.empty()) add("--token-file", fs::absolute(options.token_file));
  if (!options.proxy.empty()) add("--behind-proxy", options.proxy);
  if (options.allow_changes) arguments.emplace_back("--allow-changes");
  return format_unit({executable_path(), std::move(arguments), choose_unit_user(),
                      std::string(get_env_or_empty("BERTH_DIR")), options.allow_changes});
}

Result<int> run_server(const ServeOptions& options) {
  TRY(check_options(options));
  const HarbourLocation where = harbour_location();
  if (where.configuration_error) return tl::make_unexpected(*where.configuration_error);
  TRY(read_driver_timeout());
  Listener listener = TRY(open_listener(options.address, options.port));
  AccessRules rules = TRY(make_access_rules(options));
  const std::string line = format_url_line(options, listener, rules);
  raise_descriptor_limit();
  // The driver's helper must not be a fork of this process, which will have threads: a mutex that
  // another thread holds during the fork would stay locked in the helper.
  set_helper_program(executable_path());
  // Before any thread starts: all threads then inherit the blocked signals, and only this queue
  // receives them.
  SignalQueue signals{SIGINT, SIGTERM, SIGHUP};

  CommandVisibility command_visibility;
  if (are_commands_hidden() || !read_hidepid_option().empty())
    command_visibility = user_name(::geteuid());
  SnapshotPublisher publisher;
  ViewerActivity viewer_activity;
  const bool has_token = !rules.token.empty();
  const AccessControl access_control(std::move(rules));
  HttpServer* server_to_notify = nullptr;
  const auto wake_subscriptions = [&server_to_notify] { server_to_notify->wake_subscriptions(); };
  WorkQueue history_queue(wake_subscriptions);
  WorkQueue change_queue(wake_subscriptions);
  // An end takes up to the grace time. Its result is shared only while it is under way.
  WorkQueue end_queue(wake_subscriptions, {.threads = 8, .max_result_age = {}, .max_results = 64});
  // Two: a job whose output cannot be read (a file server that hangs) does not stop the others.
  WorkQueue job_output_queue(wake_subscriptions,
                             {.threads = 2, .max_result_age = std::chrono::seconds(1)});
  ServerContext context{access_control, publisher, viewer_activity,  history_queue,
                        change_queue,   end_queue, job_output_queue, command_visibility};
  HttpLimits limits;
  if (!options.proxy.empty()) limits.group_by = ConnectionTable::GroupBy::connection;
  HttpServer server(std::move(listener), context, make_hello(options.allow_changes, where), limits);
  server_to_notify = &server;
  std::thread server_thread([&] {
    server.run(signals.fd());
    // An immediate exit loses only the samples of the last minute. An orderly shutdown could hang
    // as long as the driver does.
    const auto signal = signals.next();
    const int number = signal ? static_cast<int>(signal->ssi_signo) : SIGTERM;
    std::_Exit(number == SIGTERM ? 0 : 128 + number);
  });
  std::optional<JobFolderReader> job_reader;
  if (has_token) {
    job_reader.emplace(viewer_activity);
    job_reader->wait_for_first_read(std::chrono::seconds(1));
  }
  StatusPoller poller(publisher, viewer_activity, command_visibility,
                      {wake_subscriptions, [&history_queue] { history_queue.invalidate(); }},
                      job_reader ? &*job_reader : nullptr);
  poller.poll();
  print(line);
  std::fflush(stdout);
  for (;;) {
    poller.wait();
    poller.poll();
  }
}

}  // namespace berth::serve
