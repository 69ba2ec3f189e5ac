// The command `berth adopt PID`.
#include "lease/adopt.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/json.h"
#include "base/process.h"
#include "base/read_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/time_text.h"
#include "cli/command.h"
#include "cli/output/lease_json.h"
#include "devices/driver.h"
#include "lease/job_environment.h"
#include "lease/request_options.h"
#include "profile/job_type.h"
#include "run/keeper.h"
#include "run/lease_owner.h"

namespace berth {
namespace {

struct AdoptCommandOptions {
  std::shared_ptr<RequestOptions> request = std::make_shared<RequestOptions>();
  pid_t pid = 0;
  bool json = false;
};

// "python train.py": what other users see of it. Chosen by the process, as its name is.
std::string read_command(const OwnerProcess& process) {
  const std::string text =
      read_proc_file(fmt::format("/proc/{}/cmdline", process.pid).c_str()).value_or("");
  std::vector<std::string> words;
  for (std::string_view rest = text; !rest.empty();) {
    words.emplace_back(rest.substr(0, rest.find('\0')));
    rest.remove_prefix(std::min(rest.size(), words.back().size() + 1));
  }
  return words.empty() ? process.name : public_command(words, are_commands_hidden());
}

std::string describe_adoption(const Lease& lease, const OwnerProcess& process) {
  const auto& uuids = lease.record().uuids;
  const auto& memory = lease.record().request.memory;
  const auto end = lease.record().expected_end();
  return fmt::format("{} {} leased to {} (pid {}){} until it ends{}, or until: berth release {}",
                     gpu_list(format_gpu_indices(lease.host_gpus(), uuids)),
                     uuids.size() == 1 ? "is" : "are", process.name, process.pid,
                     memory ? fmt::format(" with {} on each", format_size(*memory)) : "",
                     end ? fmt::format(" (announced: {})", format_local_time(*end)) : "",
                     lease.id());
}

std::string format_adoption(const Lease& lease, bool as_json) {
  if (!as_json) return lease.id() + "\n";
  const auto end = lease.record().expected_end();
  Json json = lease_json(lease);
  json["pid"] = lease.record().pid;
  json["ends"] = end ? Json(format_iso_time(*end)) : Json(nullptr);
  return to_ascii_json(json) + "\n";
}

Result<int> run(const AdoptCommandOptions& options) {
  LeaseOwners owners{TRY(open_named_process(options.pid, "PID"))};
  const OwnerProcess& process = owners.first;
  // After the handle was opened: the PID is that of the handle's process as long as it runs.
  const auto stat = read_process_stat(options.pid);
  if (!stat)
    return fail(ErrorKind::usage, fmt::format("process {} cannot be read in /proc", options.pid));
  (void)raise_descriptor_limit();
  const std::unique_ptr<Probe> probe = TRY(open_driver(print_driver_is_slow));
  AcquireRequest request;
  request.gpu_request = options.request->request;
  request.label = options.request->label;
  request.command = read_command(process);
  request.holder = HolderKind::shell;
  Lease lease =
      TRY(adopt_process(*probe, {options.pid, process.handle, stat->start_ticks}, request));
  probe->close_session();
  auto keeper = Keeper::start(lease, owners);
  if (!keeper) {
    lease.release();
    return tl::make_unexpected(keeper.error());
  }
  lease.hand_over_bell();
  // Unlike `berth acquire`, only now: no script relies on GPUs because it has read the id. If the
  // reader of the output is gone, the keeper releases the lease.
  print(format_adoption(lease, options.json));
  if (std::fflush(stdout) != 0) return 0;  // run_program() reports the error
  keeper->confirm_delivery();
  print_message(describe_adoption(lease, process));
  return 0;
}

}  // namespace

Action define_adopt(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<AdoptCommandOptions>();
  command.add_value("PID", "", "Process of yours that uses GPUs without a lease",
                    [options](std::string_view text) -> Result<void> {
                      const auto pid = parse_integer<pid_t>(text);
                      if (!pid || *pid <= 0) {
                        return fail(ErrorKind::usage,
                                    fmt::format("{} is not a process ID", in_quotes(text)));
                      }
                      options->pid = *pid;
                      return {};
                    });
  command.require();
  declare_request_values(options->request, [&](std::string_view names, const char* type,
                                               const char* help, RequestValueReader read) {
    if (names == "--mem") {
      command.add_value("--mem", type, "Share its GPUs: reserve SIZE on each (default: whole GPUs)",
                        [options, read = std::move(read)](std::string_view text) -> Result<void> {
                          TRY(read(text));
                          if (!options->request->auto_memory) return {};
                          return fail(ErrorKind::usage,
                                      "auto needs a job type, which a process does not have; "
                                      "write a size such as 8GiB");
                        });
    } else if (names == "--time" || names == "--label") {
      command.add_value(std::string(names).c_str(), type, help, std::move(read));
    }
  });
  command.add_flag("--json", options->json, "Print the lease as JSON");
  command.set_footer(
      "Prints the id of the lease. It covers all GPUs that the process and the processes it "
      "started\n"
      "use now, and lasts until the process ends. 'berth release ID' gives back only the lease;\n"
      "'berth cancel ID' ends the process, too. Refused if another lease, or a process of another\n"
      "user, is on one of the GPUs.\n"
      "\nExample:\n"
      "  berth adopt --time 3h 4711\n"
      "\nExit codes: 0 done; 64 there is no such process, or it uses no GPU; 69 no driver, or its "
      "use\n"
      "cannot be seen from here; 74 the harbour cannot be used; 75 it has a lease, or another "
      "lease,\n"
      "process or drain is in the way; 77 the process belongs to another user.");
  return [options]() { return run(*options); };
}

}  // namespace berth
