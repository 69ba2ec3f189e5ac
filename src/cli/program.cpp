// Parses the command line, runs the command and reports errors; see program.h.
#include "cli/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <iterator>
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

using Words = std::span<const char* const>;

constexpr const char* kDescription =
    "berth lets people share the GPUs of a server safely.\n"
    "No root, no daemon, no configuration.";

struct HelpGroup {
  CommandGroup group;
  const char* heading;
};
constexpr std::array kHelpGroups{HelpGroup{CommandGroup::jobs, "Jobs"},
                                 HelpGroup{CommandGroup::display, "GPUs and history"},
                                 HelpGroup{CommandGroup::administration, "Administration"},
                                 HelpGroup{CommandGroup::tools, "Settings and shells"}};

constexpr const char* kFooter =
    "Settings ('berth config' shows them; docs/configuration.md):\n"
    "  ~/.config/berth.toml        yours; /etc/berth.toml is that of all users\n"
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

// The error of a command line, with the command in front of it.
Error usage_error(const Error& error, std::string_view command) {
  if (error.kind != ErrorKind::usage || command.empty()) return error;
  return {ErrorKind::usage, fmt::format("{}: {}", command, error.message)};
}

// The index in `words` of the command's name; words.size() if there is none.
std::size_t find_name(Words words) {
  const auto name = std::find_if(words.begin() + std::min<std::ptrdiff_t>(1, std::ssize(words)),
                                 words.end(), [](const char* word) { return word[0] != '-'; });
  return static_cast<std::size_t>(name - words.begin());
}

const Command* find_command(std::string_view name) {
  const auto found = std::find_if(commands().begin(), commands().end(),
                                  [&](const Command& one) { return name == one.name; });
  return found == commands().end() ? nullptr : &*found;
}

bool asks_for_help(std::string_view word) {
  return word == "-h" || word == "--help";
}

// A job that starts later queries the driver then, and a detached one in its own process.
bool delays_request(std::string_view word) {
  return word == "-d" || word == "--detach" || word.starts_with("--after") ||
         word.starts_with("--begin");
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

// The error of a flag of a command that stands before the command, as in `berth --json status`;
// otherwise `error`.
Error misplaced_flag_error(const Error& error, Words words) {
  const auto name = std::find_if(words.begin(), words.end(),
                                 [](const char* word) { return find_command(word) != nullptr; });
  if (name == words.end()) return error;
  return {ErrorKind::usage, fmt::format("{} belongs after the command: berth {} {}",
                                        in_quotes(words.front()), *name, printable(words.front()))};
}

// A command line that does not begin with a command: flags of the program itself.
int run_without_command(Words all_words, Words words) {
  Flags flags;
  bool version = false;
  flags.add_flag("-V,--version", version, "Show the version");
  const auto asked = flags.parse(words);
  if (!asked) return report_error(misplaced_flag_error(asked.error(), all_words));
  if (*asked == Flags::Asked::run && !version) {
    print_error(format_program_help());
    return exit_code(ErrorKind::usage);
  }
  print(*asked == Flags::Asked::help ? format_program_help() : "berth " BERTH_VERSION "\n");
  return flush_output(0);
}

// Declares `called`, and all other commands if `called` shows them.
void declare_commands(const Command& called, CommandContext& context) {
  const bool shows_all = called.define == define_help || called.define == define_complete;
  for (const Command& command : commands()) {
    if (!shows_all && &command != &called) continue;
    context.commands.push_back({command});
    DeclaredCommand& declared = context.commands.back();
    declared.flags.set_usage(fmt::format("berth {}", command.name));
    declared.action = command.define(declared.flags, context);
    if (command.uses_harbour) add_url_flag(declared.flags);
  }
}

// `words` are those behind the command's name.
int parse_and_run(const Command& called, Words words) {
  CommandContext context;
  declare_commands(called, context);
  DeclaredCommand& declared =
      *std::find_if(context.commands.begin(), context.commands.end(),
                    [&](const DeclaredCommand& one) { return &one.command == &called; });
  const std::size_t end = find_trailing_command(declared.flags, called.trailing, words);
  const bool has_dashes = end < words.size() && std::string_view(words[end]) == "--";
  const Words trailing = words.subspan(end + (has_dashes ? 1 : 0));
  if (called.trailing != TrailingCommand::none) {
    context.trailing_command.assign(trailing.begin(), trailing.end());
    words = words.first(end);
  }
  const auto asked = declared.flags.parse(words);
  if (!asked) return report_error(usage_error(asked.error(), called.name));
  if (*asked == Flags::Asked::help) {
    print(format_command_help(declared));
    return flush_output(0);
  }
  const auto code = declared.action();
  return code ? flush_output(*code) : report_error(code.error());
}

}  // namespace

std::string format_program_help() {
  std::string text = fmt::format("{}\nUsage: berth [OPTIONS] COMMAND\n", kDescription);
  for (const auto& [group, heading] : kHelpGroups) {
    text += fmt::format("\n{}:\n", heading);
    for (const Command& command : commands()) {
      if (command.group == group) text += format_help_entry(command.name, command.summary);
    }
  }
  return fmt::format("{}\nOptions:\n{}{}\n{}\n", text,
                     format_help_entry("-h,--help", "Show this help"),
                     format_help_entry("-V,--version", "Show the version"), kFooter);
}

std::string format_command_help(const DeclaredCommand& declared) {
  return declared.flags.format_help(declared.command.summary);
}

int run_program(int argc, const char* const* argv) {
  const Words words(argv, static_cast<std::size_t>(argc));
  const std::size_t name = find_name(words);
  if (name > 1 || name == words.size()) {
    const std::size_t begin = std::min<std::size_t>(1, name);
    return run_without_command(words.subspan(begin), words.first(name).subspan(begin));
  }
  const Command* const called = find_command(words[name]);
  if (called == nullptr) return report_error(unknown_command_error(words[name]));
  const Words rest = words.subspan(name + 1);
  // Ask the driver first: it takes longer to answer than the command line takes to parse.
  const auto flags_end = std::find(rest.begin(), rest.end(), std::string_view("--"));
  if (called->needs_driver && std::none_of(rest.begin(), rest.end(), asks_for_help) &&
      std::none_of(rest.begin(), flags_end, delays_request)) {
    prefetch_driver_snapshot();
  }
  const int code = parse_and_run(*called, rest);
  if (code == 0 || called->failure_output == nullptr || std::ferror(stdout) != 0) return code;
  print(called->failure_output(code, words));
  return flush_output(code);
}

}  // namespace berth
