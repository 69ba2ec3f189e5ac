// Reads the values that a shell offers; see completion_values.h.
#include "cli/completion_values.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <set>
#include <unistd.h>
#include <utility>

#include "archive/user_folder.h"
#include "base/configuration.h"
#include "base/text.h"
#include "base/users.h"
#include "cli/command.h"
#include "cluster/store/hosts.h"
#include "devices/driver.h"
#include "harbour/harbour.h"
#include "lease/drain_gpus.h"
#include "profile/profile_store.h"
#include "run/job_sources.h"
#include "run/notify.h"
#include "status/attribution.h"

namespace berth {
namespace {

using CompletionWords = std::vector<CompletionWord>;

std::vector<Gpu> read_gpus() {
  const auto probe = open_driver();
  if (!probe) return {};
  auto snapshot = (*probe)->snapshot();
  return snapshot ? std::move(snapshot->gpus) : std::vector<Gpu>{};
}

CompletionWords gpu_words(const std::function<bool(const Gpu&)>& filter) {
  CompletionWords words;
  for (const Gpu& gpu : read_gpus()) {
    if (filter(gpu)) words.push_back({to_string(gpu.index), gpu.name.value_or("")});
  }
  return words;
}

CompletionWords list_gpus() {
  return gpu_words([](const Gpu&) { return true; });
}

CompletionWords list_drained_gpus() {
  const auto drains = read_removable_drains();
  if (!drains) return {};
  return gpu_words([&](const Gpu& gpu) {
    return std::any_of(drains->begin(), drains->end(),
                       [&](const Drain& drain) { return drain.uuid == gpu.uuid; });
  });
}

struct HarbourRecords {
  std::vector<Record> leases;
  std::vector<Record> tickets;
};

HarbourRecords read_records() {
  HarbourRecords records;
  auto harbour = Harbour::open_existing();
  if (!harbour || !*harbour) return records;
  const auto transaction = (*harbour)->begin(LockMode::shared, {});
  if (!transaction) return records;
  if (auto leases = (*transaction)->read_leases()) {
    for (Client& lease : *leases) records.leases.push_back(std::move(lease.record));
  }
  for (const TicketName& name : (*transaction)->queue()) {
    auto ticket = (*transaction)->read_ticket(name);
    if (ticket && *ticket) records.tickets.push_back(std::move((*ticket)->record));
  }
  return records;
}

// The records that this user may end, with their user if that is another one.
CompletionWords own_ids(const std::vector<Record>& records) {
  CompletionWords words;
  for (const Record& record : records) {
    const bool own = record.uid == ::geteuid();
    if (!own && !is_root()) continue;
    std::string description = record.label.empty() ? record.command : record.label;
    if (!own) description = fmt::format("{}: {}", user_name(record.uid), description);
    words.push_back({record.id, std::move(description)});
  }
  return words;
}

CompletionWords list_shell_leases() {
  std::vector<Record> leases = read_records().leases;
  std::erase_if(leases, [](const Record& lease) { return lease.holder != HolderKind::shell; });
  return own_ids(leases);
}

// The processes of the user that use a GPU without a lease.
CompletionWords list_own_strangers() {
  const std::vector<Record> leases = read_records().leases;
  CompletionWords words;
  std::set<std::int64_t> known;
  for (const Gpu& gpu : read_gpus()) {
    for (const AttributedProcess& one : attribute_processes(gpu, leases)) {
      if (one.is_stranger() && one.process.uid == ::geteuid() &&
          known.insert(one.process.pid).second)
        words.push_back({fmt::format("{}", one.process.pid), one.process.name.value_or("")});
    }
  }
  return words;
}

// The ids of the user's jobs that `filter` accepts, with their state: "running, python train.py".
CompletionWords job_words(bool all_users, const std::function<bool(const JobInfo&)>& filter) {
  JobListOptions options;
  options.all_users = all_users;
  options.asks_driver = false;
  CompletionWords words;
  const auto jobs = list_all_jobs(options);
  for (const JobInfo& job : jobs ? *jobs : std::vector<JobInfo>{}) {
    if (!filter(job)) continue;
    words.push_back(
        {job.id, fmt::format("{}{}, {}", job.is_own ? "" : job.user + ": ", state_name(job.state),
                             job.label.empty() ? job.command : job.label)});
  }
  return words;
}

CompletionWords list_own_jobs() {
  return job_words(false, [](const JobInfo&) { return true; });
}

CompletionWords list_detached_jobs() {
  return job_words(false, [](const JobInfo& job) { return job.is_detached; });
}

// What 'berth cancel' can end.
CompletionWords list_active_jobs() {
  return job_words(is_root(), [](const JobInfo& job) { return job.is_active(); });
}

// Users with a lease, a ticket or a history.
CompletionWords list_users() {
  std::set<std::string> names;
  const HarbourRecords records = read_records();
  for (const auto* list : {&records.leases, &records.tickets}) {
    for (const Record& record : *list) names.insert(user_name(record.uid));
  }
  for (const UserFolder& folder : open_user_folders(archive_path(harbour_location())))
    names.insert(user_name(folder.uid));
  CompletionWords words;
  for (const std::string& name : names) words.push_back({name});
  return words;
}

CompletionWords list_types() {
  CompletionWords words;
  const auto own = list_own_profiles(harbour_location());
  if (!own) return words;
  for (const Profile& profile : own->profiles) words.push_back({profile.type});
  return words;
}

// The names for --job: types without the number of GPUs, which berth adds ("train on 4 GPUs").
CompletionWords list_job_names() {
  std::set<std::string> names;
  for (const CompletionWord& type : list_types()) {
    const std::size_t end =
        type.text.ends_with(" GPUs") ? type.text.rfind(" on ") : std::string::npos;
    names.insert(type.text.substr(0, end));
  }
  CompletionWords words;
  for (const std::string& name : names) words.push_back({name});
  return words;
}

// The hosts that `berth run --host` may start jobs on.
CompletionWords list_job_hosts() {
  CompletionWords words{{"any", "the hosts of the configuration"}};
  const auto configuration = read_configuration();
  if (!configuration || !configuration->hosts) return words;
  for (const std::string& name : *configuration->hosts) words.push_back({name});
  return words;
}

// The hosts that may have leases in the history: those of the harbour, and of the configuration.
CompletionWords list_history_hosts() {
  std::set<std::string> names;
  const HarbourLocation location = harbour_location();
  if (location.url) {
    if (const auto hosts = read_hosts(*location.url)) {
      for (const HostState& host : *hosts) names.insert(host.name);
    }
  }
  const auto configuration = read_configuration();
  if (configuration) names.insert(configuration->host);
  if (configuration && configuration->hosts)
    names.insert(configuration->hosts->begin(), configuration->hosts->end());
  CompletionWords words;
  for (const std::string& name : names) words.push_back({name});
  return words;
}

CompletionWords list_memory_words() {
  return {{"auto", "what earlier runs of this job needed"}, {"all", "whole GPUs"}};
}

// The targets, and each with one event.
CompletionWords list_notify_words() {
  CompletionWords words{{"command", "run the command of [notify]"},
                        {"webhook", "an HTTP POST to the webhook of [notify]"},
                        {"mail", "by sendmail, to you"},
                        {"bell", "the terminal's bell and title"},
                        {"none", "nothing, whatever the configuration says"}};
  for (const NotifyTarget target : kNotifyTargets) {
    for (const NotifyEvent event : kNotifyEvents)
      words.push_back({fmt::format("{}:{}", to_string(target), to_string(event))});
  }
  return words;
}

CompletionWords list_times() {
  return {{"today"}, {"yesterday"}, {"1h"}, {"24h"}, {"7d"}, {"30d"}};
}

CompletionWords list_profile_actions() {
  return {{"list", "your profiles"},
          {"show", "one profile"},
          {"set", "memory or run time of a type"},
          {"forget", "what was learned"},
          {"of", "the type of a command"}};
}

struct SourceEntry {
  std::string_view command;  // empty: any
  std::string_view option;   // the name of an option or argument
  CompletionSource source;
};

using enum ValueForm;
constexpr std::array kSources{
    SourceEntry{"undrain", "GPU", {list, list_drained_gpus}},
    SourceEntry{"", "GPU", {list, list_gpus}},
    SourceEntry{"", "--gpu", {list, list_gpus}},
    SourceEntry{"adopt", "PID", {word, list_own_strangers}},
    SourceEntry{"logs", "ID", {word, list_detached_jobs}},
    SourceEntry{"attach", "ID", {word, list_detached_jobs}},
    SourceEntry{"cancel", "ID", {word, list_active_jobs}},
    SourceEntry{"", "ID", {word, list_own_jobs}},
    SourceEntry{"", "--after", {list, list_own_jobs}},
    SourceEntry{"", "--after-any", {list, list_own_jobs}},
    SourceEntry{"", "LEASE|GPU", {word, list_shell_leases}},
    SourceEntry{"", "--user", {word, list_users}},
    SourceEntry{"", "--job", {word, list_job_names}},
    SourceEntry{"", "TYPE", {word, list_types}},
    SourceEntry{"profile", "ACTION", {word, list_profile_actions}},
    SourceEntry{"run", "--host", {list, list_job_hosts}},
    SourceEntry{"", "--host", {word, list_history_hosts}},
    SourceEntry{"help", "COMMAND", {word, list_commands}},
    SourceEntry{"profile", "--mem", {}},
    SourceEntry{"adopt", "--mem", {}},
    SourceEntry{"", "--mem", {word, list_memory_words}},
    SourceEntry{"", "--since", {word, list_times}},
    SourceEntry{"", "--notify", {word, list_notify_words}},
};

}  // namespace

CompletionWords list_commands() {
  CompletionWords words;
  for (const Command& command : commands()) {
    if (command.group != CommandGroup::hidden) words.push_back({command.name, command.summary});
  }
  return words;
}

CompletionSource find_completion_source(std::string_view command, std::string_view option,
                                        std::string_view type) {
  const auto* const found =
      std::find_if(kSources.begin(), kSources.end(), [&](const SourceEntry& entry) {
        return entry.option == option && (entry.command.empty() || entry.command == command);
      });
  if (found != kSources.end()) return found->source;
  const bool is_path = option == "FILE" || type == "FILE" || type == "DIR" || type == "FOLDER";
  return {is_path ? file : word, nullptr};
}

std::vector<CompletionWord> make_safe(std::vector<CompletionWord> words) {
  std::erase_if(words, [](const CompletionWord& word) {
    return word.text.empty() || printable(word.text) != word.text;
  });
  for (CompletionWord& word : words) {
    std::replace(word.description.begin(), word.description.end(), '\n', ' ');
    word.description = printable(word.description);
  }
  return words;
}

}  // namespace berth
