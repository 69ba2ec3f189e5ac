// Parses the command line, runs the command and reports errors; see program.h.
#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cluster/redis/url.h"
#include "devices/driver.h"

namespace berth {
namespace {

constexpr const char* kDescription =
    "berth lets people share the GPUs of a server safely.\n"
    "No root, no daemon, no configuration.";

constexpr const char* kFooter =
    "Environment:\n"
    "  BERTH_SIM=4x24GiB           simulated GPUs (or a file, see docs/simulated-driver.md)\n"
    "  BERTH_DIR=/tmp/berth        directory of the harbour, the same for all users of a host\n"
    "  BERTH_URL=redis://HOST      harbour of several hosts, in Redis (see docs/redis.md)\n"
    "  BERTH_DRIVER_TIMEOUT=20s    time limit for a driver that does not answer\n"
    "  NO_COLOR=1                  output without colours\n"
    "\nExit codes: 0 done; 64 wrong usage; 69 no driver, or a request that can never be met;\n"
    "74 the harbour cannot be used, or the output cannot be written; 75 not granted in time;\n"
    "77 permission denied: it belongs to another user.\n"
    "'berth help COMMAND' shows help for a command.";

int report_error(const Error& error) {
  print_message(error.message);
  return exit_code(error.kind);
}

// The parser's error as a message of our own: what is wrong, where, and what to do.
Error usage_error(CLI::App& program, const CLI::ParseError& problem) {
  const auto chosen = program.get_subcommands();
  const auto extra = program.remaining(true);
  if (!extra.empty() && chosen.empty() && !extra.front().starts_with('-')) {
    return unknown_command_error(extra.front());
  }
  const std::string command = chosen.empty() ? "" : chosen.front()->get_name();
  // The parser leaves words over after any error (and a "--"). Name them only if they are the
  // error.
  const bool unexpected =
      !extra.empty() && dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr;
  std::string what = problem.what();
  if (unexpected) {
    const std::string& word = extra.front();
    const bool is_option = word.starts_with('-') && word != "-" && word != "--";
    what = fmt::format("{} {}", is_option ? "there is no option" : "unexpected argument",
                       in_quotes(word));
  }
  constexpr std::string_view kOverride = " was given a disallowed flag override";
  if (what.ends_with(kOverride)) {
    what = fmt::format("--{} takes no value", what.substr(0, what.size() - kOverride.size()));
  }
  // CLI11: "--port: 1 required PORT missing".
  constexpr std::string_view kMissing = ": 1 required ";
  if (const auto end = what.find(kMissing);
      end != std::string::npos && dynamic_cast<const CLI::ArgumentMismatch*>(&problem) != nullptr) {
    what = fmt::format("{} needs a value", what.substr(0, end));
  }
  // A message with a ';' has a remedy of its own; any other message refers to the help.
  if (what.find(';') == std::string::npos) {
    what += fmt::format("; see 'berth {}{}--help'", command, command.empty() ? "" : " ");
  }
  return {ErrorKind::usage, fmt::format("{}{}{}", command, command.empty() ? "" : ": ", what)};
}

// Whether the arguments call `command`.
bool is_called(const Command& command, int argc, const char* const* argv) {
  const auto* const end = argv + argc;
  const auto* const name =
      std::find_if(argv + std::min(1, argc), end, [](const char* word) { return word[0] != '-'; });
  return name != end && std::string_view(*name) == command.name;
}

// Declaring every command and its flags takes longer than all else that berth does in a `berth
// run`, so only the named command is declared, unless help or completion need all of them.
bool is_needed(const Command& command, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool all = word == "help" || word == "completion" || word == "-h" || word == "--help";
    if (all || word == command.name) return true;
    if (!word.starts_with('-')) return false;
  }
  return true;
}

// The index in `argv` where the trailing command begins, behind the flags of `command`; or argc.
int find_trailing_command(const CLI::App& command, TrailingCommand kind, int argc,
                          const char* const* argv) {
  int i = 1;
  while (i < argc && argv[i] != command.get_name()) ++i;
  for (++i; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return i;
    if (!word.starts_with('-') && kind == TrailingCommand::from_first_word) return i;
    const auto* option = command.get_option_no_throw(std::string(word));
    if (option != nullptr && option->get_items_expected_min() > 0) ++i;  // skip its value
  }
  return argc;
}

// Output that could not be written (a full disk) must not look like success.
int flush_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  print_message(fmt::format("the output cannot be written: {}", std::strerror(errno)));
  return code == 0 ? exit_code(ErrorKind::io) : code;
}

// Stores the value of --url in the environment, so that processes that this command starts (the
// jobs of a batch, berth inside a job) use the same server.
Result<void> set_harbour_url(std::string_view text) {
  const std::string url(text);
  if (!url.empty() && !url.starts_with("file:")) {
    const RedisUrl parsed = TRY(parse_redis_url(url));
    if (!parsed.password.empty()) {
      return fail(ErrorKind::usage,
                  "the password would be visible in 'ps'; write the URL to a file that "
                  "only you can read (chmod 600), and use --url file:PATH");
    }
  }
  ::setenv("BERTH_URL", url.c_str(), 1);
  return {};
}

void add_url_flag(Flags& command) {
  command.set_group("Options");
  command.add_value("--url", "URL", "Redis server of the harbour, instead of BERTH_URL",
                    set_harbour_url);
}

int parse_and_run(int argc, const char* const* argv) {
  CLI::App program(kDescription, "berth");
  program.footer(kFooter);
  program.set_help_flag("-h,--help", "Show this help");
  program.set_version_flag("--version", "berth " BERTH_VERSION, "Show the version");
  program.get_formatter()->label("SUBCOMMAND", "COMMAND");
  CommandContext context{program, {}};
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : commands()) {
    if (!is_needed(command, argc, argv)) continue;
    CLI::App* sub = program.add_subcommand(command.name, command.summary)->group("Commands");
    Flags flags(*sub);
    actions[sub] = command.define(flags, context);
    if (command.uses_harbour) add_url_flag(flags);
    if (command.trailing == TrailingCommand::none || !is_called(command, argc, argv)) continue;
    const int end = find_trailing_command(*sub, command.trailing, argc, argv);
    const bool dashes = end < argc && std::string_view(argv[end]) == "--";
    context.trailing_command.assign(argv + end + (dashes ? 1 : 0), argv + argc);
    argc = end;
  }
  program.require_subcommand(0, 1);
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(program.help());
    return flush_output(0);
  } catch (const CLI::CallForVersion& version) {
    print(fmt::format("{}\n", version.what()));
    return flush_output(0);
  } catch (const CLI::ParseError& problem) {
    return report_error(usage_error(program, problem));
  }
  const auto chosen = program.get_subcommands();
  if (chosen.empty()) {
    print_error(program.help());
    return exit_code(ErrorKind::usage);
  }
  const auto code = actions.at(chosen.front())();
  return code ? flush_output(*code) : report_error(code.error());
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  const std::span words(argv, static_cast<std::size_t>(argc));
  // Without the declarations of all commands, which take as long as all else.
  if (words.size() == 2 && std::string_view(words[1]) == "--version") {
    print("berth " BERTH_VERSION "\n");
    return flush_output(0);
  }
  const auto called = std::find_if(commands().begin(), commands().end(),
                                   [&](const Command& one) { return is_called(one, argc, argv); });
  if (called == commands().end()) return parse_and_run(argc, argv);
  const bool help = std::any_of(words.begin(), words.end(), [](std::string_view word) {
    return word == "-h" || word == "--help";
  });
  // Ask the driver first: it takes longer to answer than the command line takes to parse.
  if (called->needs_driver && !help) prefetch_driver_snapshot();
  const int code = parse_and_run(argc, argv);
  if (code == 0 || called->failure_output == nullptr || std::ferror(stdout) != 0) return code;
  print(called->failure_output(code, words));
  return flush_output(code);
}

}  // namespace berth
