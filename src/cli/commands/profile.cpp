// The command `berth profile [show TYPE | set TYPE | forget TYPE… | of CMD…]`.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output/profile_text.h"
#include "cluster/redis/session.h"
#include "lease/request_options.h"
#include "profile/job_type.h"
#include "profile/learning.h"
#include "profile/needs_estimate.h"
#include "profile/profile_store.h"

namespace berth {
namespace {

struct ProfileCommandOptions {
  std::vector<std::string> words;
  std::vector<std::string> command;  // the words behind "--"
  std::optional<Bytes> memory;
  std::optional<std::chrono::milliseconds> time;
  std::optional<unsigned> count;
  bool all = false;
  bool json = false;
};

// The user's own profile whose type is `text`, or the only one whose type contains it.
Result<Profile> find_type(const std::string& text) {
  const auto own = TRY(list_own_profiles(harbour_location()));
  std::vector<const Profile*> found;
  for (const Profile& profile : own.profiles) {
    if (profile.type == text) return profile;
    if (profile.type.find(text) != std::string::npos) found.push_back(&profile);
  }
  if (found.size() == 1) return *found.front();
  if (found.empty()) {
    return fail(ErrorKind::usage, fmt::format("profile: there is no profile of {}; 'berth profile' "
                                              "lists the profiles",
                                              in_quotes(text)));
  }
  const std::string types =
      join_text(found, ", ", [](const Profile* one) { return in_quotes(one->type); });
  return fail(ErrorKind::usage, fmt::format("profile: {} matches {}; write more of the name",
                                            in_quotes(text), types));
}

void print_profiles(const std::vector<Profile>& profiles, const ProfileCommandOptions& options) {
  print(options.json ? profiles_json(profiles)
                     : profiles_table(profiles, terminal_at(STDOUT_FILENO)));
}

void warn_about_damaged_profiles(std::size_t profiles) {
  if (profiles == 0) return;
  print_message(fmt::format("{} {} could not be read, and {} left out", profiles,
                            profiles == 1 ? "profile" : "profiles",
                            profiles == 1 ? "was" : "were"));
}

Result<int> list_profiles(const ProfileCommandOptions& options) {
  const HarbourLocation where = harbour_location();
  const auto found = TRY(options.all ? list_all_profiles(where) : list_own_profiles(where));
  warn_about_damaged_profiles(found.damaged);
  if (found.profiles.empty() && !options.json) {
    if (found.damaged == 0) {
      print_message(
          "no profiles yet; berth learns from jobs that run at least 1 s, or any job with --mem "
          "auto (try: berth run --mem auto -- python train.py)");
    }
    return 0;
  }
  print_profiles(found.profiles, options);
  return 0;
}

Result<int> show_profile(const ProfileCommandOptions& options) {
  if (options.words.size() != 2) {
    return fail(ErrorKind::usage, "profile show: name one type; 'berth profile' lists them");
  }
  const Profile profile = TRY(find_type(options.words[1]));
  print(options.json ? profiles_json({profile})
                     : profile_page(profile, terminal_at(STDOUT_FILENO)));
  return 0;
}

// Tickets that wait for the profile of this type need not wait any longer.
void wake_waiters_for_type(const std::string& type) {
  auto harbour = Harbour::open_existing();
  if (harbour && *harbour) wake_profile_waiters(**harbour, ::geteuid(), type);
}

Result<int> set_profile(const ProfileCommandOptions& options) {
  if (options.words.size() != 2 || (!options.memory && !options.time)) {
    return fail(
        ErrorKind::usage,
        "profile set: name a type and its needs, such as: berth profile set train --mem 8GiB");
  }
  const auto known = find_type(options.words[1]);
  if (!known && known.error().kind != ErrorKind::usage) return tl::make_unexpected(known.error());
  const std::string type = known ? known->type : options.words[1];
  TRY(change_profile(harbour_location(), type, [&](Profile& profile) {
    if (options.memory) profile.set_memory = options.memory;
    if (options.time) profile.set_time = options.time;
  }));
  wake_waiters_for_type(type);
  const auto updated = read_profile(harbour_location(), type);
  print(fmt::format("{} reserves {}\n", terminal_at(STDOUT_FILENO).escape(type),
                    reserve_text(updated ? estimate_needs(*updated) : NeedsEstimate{})));
  if (updated && updated->runs.empty()) {
    print_message(
        fmt::format("no run of {} is known yet; 'berth profile of -- CMD' shows the type of a "
                    "command",
                    in_quotes(type)));
  }
  return 0;
}

Result<int> forget_profiles(const ProfileCommandOptions& options) {
  std::vector<std::string> types;
  if (options.all) {
    const auto own = TRY(list_own_profiles(harbour_location()));
    for (const Profile& profile : own.profiles) types.push_back(profile.type);
  }
  for (std::size_t i = 1; i < options.words.size(); ++i) {
    types.push_back(TRY(find_type(options.words[i])).type);
  }
  if (types.empty() && !options.all) {
    return fail(ErrorKind::usage,
                "profile forget: name types, or use --all for all of your profiles");
  }
  for (const std::string& type : types) {
    TRY(forget_profile(harbour_location(), type));
    print(fmt::format("{} is forgotten\n", terminal_at(STDOUT_FILENO).escape(type)));
  }
  return 0;
}

// Prints the type of a command, how it is derived, and what the command would reserve.
Result<int> explain_type(const ProfileCommandOptions& options) {
  std::vector<std::string> command(options.words.begin() + 1, options.words.end());
  command.insert(command.end(), options.command.begin(), options.command.end());
  if (command.empty()) {
    return fail(ErrorKind::usage,
                "profile of: no command; name one, such as: berth profile of -- python train.py");
  }
  const JobType type = derive_job_type(command, options.count.value_or(1), are_commands_hidden());
  const HarbourLocation where = harbour_location();
  const auto profile = read_profile(where, type.name);
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  print(fmt::format("{}\n  the type is derived from {}\n", terminal.escape(type.name),
                    type.derivation));
  if (profile && estimate_needs(*profile).memory) {
    print(fmt::format("  with --mem auto, a job of this type reserves {}\n",
                      reserve_text(estimate_needs(*profile))));
    return 0;
  }
  print(fmt::format(
      "  {}: with --mem auto, the next run gets exclusive GPUs and is measured\n",
      profile && !profile->runs.empty()
          ? "the memory of your runs was not measured (too short, or without a GPU process)"
          : "no run of yours is recorded"));
  if (const auto other = find_other_users_profile(where, type.name)) {
    print(fmt::format("  another user's runs suggest {}\n", reserve_text(estimate_needs(*other))));
  }
  return 0;
}

struct Verb {
  std::string_view name;
  Result<int> (*run)(const ProfileCommandOptions& options);
  std::string_view flags;  // the flags that it accepts
};

constexpr std::array kVerbs{
    Verb{"list", list_profiles, "--all --json"}, Verb{"show", show_profile, "--json"},
    Verb{"set", set_profile, "--mem --time"}, Verb{"forget", forget_profiles, "--all"},
    Verb{"of", explain_type, "--count"}};

// Rejects arguments that the verb would ignore.
Result<void> check_flags(const Verb& verb, const ProfileCommandOptions& options) {
  const std::array<std::pair<std::string_view, bool>, 5> given{
      {{"--mem", options.memory.has_value()},
       {"--time", options.time.has_value()},
       {"--count", options.count.has_value()},
       {"--all", options.all},
       {"--json", options.json}}};
  for (const auto& [flag, is_given] : given) {
    if (!is_given || verb.flags.find(flag) != std::string_view::npos) continue;
    return fail(ErrorKind::usage,
                fmt::format("profile {}: {} has no effect here; omit it", verb.name, flag));
  }
  if (verb.name != "of" && !options.command.empty()) {
    return fail(ErrorKind::usage,
                fmt::format("profile {}: only 'berth profile of' takes a command", verb.name));
  }
  if (verb.name == "list" && options.words.size() > 1) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "profile list: unexpected argument {}; 'berth profile show TYPE' shows a profile",
            in_quotes(options.words[1])));
  }
  return {};
}

// A harbour that cannot be used is an error, so that it does not look like a harbour without
// profiles. A harbour that does not exist yet is not an error.
Result<void> check_harbour() {
  const HarbourLocation where = harbour_location();
  TRY(Harbour::open_existing(where));
  if (where.url) TRY(RedisSession(*where.url).call({"PING"}));
  return {};
}

Result<int> run(const ProfileCommandOptions& options) {
  const std::string name = options.words.empty() ? "list" : options.words.front();
  const auto* const verb =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& one) { return one.name == name; });
  if (verb == kVerbs.end()) {
    return fail(
        ErrorKind::usage,
        fmt::format("profile: {} is not one of list, show, set, forget and of", in_quotes(name)));
  }
  TRY(check_flags(*verb, options));
  TRY(check_harbour());
  return verb->run(options);
}

}  // namespace

Action define_profile(Flags& command, const CommandContext& context) {
  auto options = std::make_shared<ProfileCommandOptions>();
  command.add_positionals("ACTION",
                          "list (default), show TYPE, set TYPE, forget TYPE..., or of CMD...",
                          options->words);
  command.add_value("--mem", "SIZE", "set: memory to reserve, instead of the learned amount",
                    [options](std::string_view text) -> Result<void> {
                      const Bytes size = TRY(parse_size(text));
                      if (size == Bytes{})
                        return fail(ErrorKind::usage,
                                    fmt::format("{} reserves no memory; write a size such as 8GiB",
                                                in_quotes(text)));
                      options->memory = size;
                      return {};
                    });
  command.add_value("--time", "DURATION", "set: expected run time, instead of the learned time",
                    [options](std::string_view text) -> Result<void> {
                      const std::chrono::nanoseconds time = TRY(parse_duration(text));
                      options->time = std::chrono::ceil<std::chrono::milliseconds>(time);
                      return {};
                    });
  command.add_value("-n,--count", "N", "of: number of GPUs of the job (default 1)",
                    [options](std::string_view text) {
                      unsigned number = 0;
                      auto parsed = parse_bounded_number(text, 1, 4096, number);
                      if (parsed) options->count = number;
                      return parsed;
                    });
  command.add_flag("-a,--all", options->all,
                   "list: profiles of all users; forget: all of your profiles");
  command.add_flag("--json", options->json,
                   "Print a line of JSON for each profile (see docs/json.md)");
  command.set_footer(
      "A profile says how much memory a job type needs on each GPU, and how long it runs. Berth\n"
      "learns from runs of the same type (berth run --job NAME; by default the type is derived\n"
      "from the program and its script). With --mem auto, a job reserves what its type needs.\n"
      "TYPE may be a part of a name, if only one name contains it. See docs/learning.md.\n"
      "\nExamples:\n"
      "  berth profile\n"
      "  berth profile of -- python train.py --lr 0.1\n"
      "  berth profile set train.py --mem 8GiB\n"
      "  berth profile forget --all");
  return [options, &context]() {
    options->command = context.trailing_command;
    return run(*options);
  };
}

}  // namespace berth
