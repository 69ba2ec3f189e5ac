// The command `berth acquire [REQUEST] [--for PID] [--print FORM]`.
#include "lease/acquire.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <poll.h>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>

#include "base/descriptors.h"
#include "base/json.h"
#include "base/process.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output/lease_json.h"
#include "cli/request_flags.h"
#include "devices/driver.h"
#include "lease/job_environment.h"
#include "profile/job_type.h"
#include "run/earlier_leases.h"
#include "run/keeper.h"
#include "run/lease_owner.h"
#include "run/wait_display.h"

namespace berth {
namespace {

struct AcquireCommandOptions {
  std::shared_ptr<RequestOptions> request;
  std::string format = "shell";
  std::string ids = "index";
  std::string compat;  // the older tool that calls: gpuget, gpuselect or grn-run; empty for none
  pid_t owner = 0;
};

// Scripts of the older tools call them through other programs and know nothing of leases. GPUGET's
// keep their GPU until they release it, whichever of their processes got it.
Result<LeaseOwners> find_owners(const AcquireCommandOptions& options) {
  if (options.owner != 0 || options.compat.empty()) {
    return LeaseOwners{
        TRY(find_lease_owner(options.owner == 0 ? std::nullopt : std::optional(options.owner)))};
  }
  if (options.compat == "gpuget") return find_output_owners("name one with --pid PID");
  LeaseOwners owners = TRY(find_output_owners("start the program with it: gpuselect -- CMD"));
  return LeaseOwners{std::move(owners.first)};
}

// The values need no quotes in a shell: they consist of letters, digits, commas, colons and dashes.
std::string format_exports(const Lease& lease, GpuIdFormat form) {
  std::string text;
  for (const auto& [name, value] : make_job_environment(lease.host_gpus(), lease.record().uuids,
                                                        form, lease.id(), lease.record().epoch)) {
    text += fmt::format("export {}={}\n", name, value);
  }
  return text;
}

std::string format_output(const Lease& lease, const AcquireCommandOptions& options) {
  const GpuIdFormat form = options.ids == "uuid" ? GpuIdFormat::uuid : GpuIdFormat::index;
  if (options.format == "json") return to_ascii_json(lease_json(lease)) + "\n";
  if (options.format == "docker") {
    return fmt::format("{}\n", format_docker_devices(lease.record().uuids));
  }
  if (options.format == "ids") {
    const auto environment = make_job_environment(lease.host_gpus(), lease.record().uuids, form,
                                                  lease.id(), lease.record().epoch);
    for (const auto& [name, value] : environment) {
      if (name == "CUDA_VISIBLE_DEVICES") return fmt::format("{}\n", value);
    }
  }
  return format_exports(lease, form);
}

Result<void> parse_pid(std::string_view text, pid_t& pid) {
  const auto* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, pid);
  if (problem == std::errc{} && rest == end && pid > 0) return {};
  return fail(ErrorKind::usage, fmt::format("{} is not a process ID", in_quotes(text)));
}

// Tells a user at a terminal which GPUs the shell has now, for how long, and how to use them. Says
// nothing in scripts of older tools, which do not expect it.
void print_notice(const Lease& lease, const OwnerProcess& owner,
                  const AcquireCommandOptions& options) {
  if (::isatty(STDERR_FILENO) == 0) return;
  if (!options.compat.empty() && ::isatty(STDOUT_FILENO) == 0) return;
  const std::string gpus = gpu_list(format_gpu_indices(lease.host_gpus(), lease.record().uuids));
  print_message(fmt::format("{} leased to {} (pid {}) until it exits, or until: berth release {}",
                            gpus + (lease.record().uuids.size() == 1 ? " is" : " are"), owner.name,
                            owner.pid, lease.id()));
  if (options.format == "shell" && ::isatty(STDOUT_FILENO) != 0) {
    print_message(
        "the shell does not use the lease yet: paste the lines above into it; next time: "
        "eval \"$(berth acquire)\"");
  }
}

// Waits until a write does not block. False if it will fail: the reader of a pipe is gone.
bool wait_until_writable(int file) {
  pollfd output{file, POLLOUT, 0};
  while (::poll(&output, 1, -1) < 0 && errno == EINTR) {
  }
  return output.revents == POLLOUT;
}

Result<int> run(const AcquireCommandOptions& options, bool has_memory_flag) {
  const bool unnamed_auto = options.request->auto_memory && options.request->job.empty();
  // A default of the configuration, which is meant for commands. A shell has no job type.
  if (unnamed_auto && !has_memory_flag) {
    options.request->auto_memory = false;
  } else if (unnamed_auto) {
    return fail(ErrorKind::usage,
                "acquire: --mem auto needs --job NAME, since a shell does not have a job type");
  }
  LeaseOwners owners = TRY(find_owners(options));
  const OwnerProcess& owner = owners.first;
  (void)raise_descriptor_limit();
  const std::unique_ptr<Probe> probe =
      TRY(open_driver([] { print_message("waiting for the driver to answer"); }));
  if (options.compat == "gpuselect") {
    TRY(release_earlier_leases(owner, options.request->label, *probe));
  }
  AcquireRequest request = make_acquire_request(*options.request);
  request.command = owner.name;
  request.holder_pid = owner.pid;
  request.holder = HolderKind::shell;
  if (!options.request->job.empty()) {
    const auto type = make_named_job_type(options.request->job, request.gpu_request.count);
    request.profile_options = ProfileOptions{type.name, options.request->auto_memory};
  }
  WaitCallbacks callbacks;
  // GPUGET says nothing while it waits, so scripts read stderr with the number (2>&1).
  if (options.compat == "gpuget" && ::isatty(STDERR_FILENO) == 0) {
    callbacks.on_wait = [](const WaitStatus&) {};
  }
  std::variant<Lease, int> outcome =
      TRY(acquire_with_display(*probe, std::move(request), owner.handle.get(), callbacks));
  if (const int* signal = std::get_if<int>(&outcome)) {
    if (*signal != 0) return 128 + *signal;
    return fail(ErrorKind::usage, fmt::format("{} (pid {}), the owner of the request, has ended",
                                              owner.name, owner.pid));
  }
  probe->close_session();
  Lease& lease = std::get<Lease>(outcome);
  auto keeper = Keeper::start(lease, owners);
  if (!keeper) {
    lease.release();
    return tl::make_unexpected(keeper.error());
  }
  lease.hand_over_bell();
  // Confirm first: if this process is killed now, a script may hold a lease that it does not know
  // of, until the script ends, but no script gets GPUs without a lease.
  const bool prints_to_terminal = ::isatty(STDOUT_FILENO) != 0;
  if (wait_until_writable(STDOUT_FILENO)) {
    keeper->confirm_delivery();
    if (!prints_to_terminal) print_notice(lease, owner, options);  // before the reader goes on
  }
  print(format_output(lease, options));
  if (std::fflush(stdout) == 0) {
    keeper->confirm_delivery();
    if (prints_to_terminal) print_notice(lease, owner, options);
  } else {
    keeper->revoke_delivery();  // and run_program() reports the error
  }
  return 0;
}

}  // namespace

// In `eval "$(berth acquire)" && train`, train must not run without a lease. The exit code of eval
// is that of the text it reads, so a failure prints a command that fails. Not for other formats,
// and not for a terminal, where the user sees the message.
std::string acquire_failure_output(int code, std::span<const char* const> words) {
  std::string_view format = "shell";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.starts_with("--print=")) format = word.substr(std::strlen("--print="));
    if (word == "--print") format = i + 1 < words.size() ? words[i + 1] : "";
  }
  if (format != "shell" || ::isatty(STDOUT_FILENO) != 0) return "";
  return fmt::format("(exit {})\n", code);
}

Action define_acquire(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<AcquireCommandOptions>();
  options->request = add_request_flags(command);
  command.add_choice("--print", "shell|ids|json|docker",
                     "Output: shell (default, for eval), ids, json, or docker\n"
                     "(for docker run --gpus)",
                     options->format);
  command.add_choice("--ids", "index|uuid", "Form of the GPU ids: index (default) or uuid",
                     options->ids);
  command.add_value("--for", "PID", "Process that owns the lease (default: the calling shell)",
                    [options](std::string_view text) { return parse_pid(text, options->owner); });
  command.set_group("");  // for the commands of berth.compat only
  command.add_choice("--compat", "gpuget|gpuselect|grn-run",
                     "Owner and messages as scripts of this tool need them", options->compat);
  command.set_group("Options");
  command.set_argument_remedy(
      "to lease several GPUs, write -n 2; to run a command: berth run -- COMMAND");
  command.set_footer(
      "The lease belongs to the calling shell or script. It ends when that process ends, or with\n"
      "'berth release'. All commands of that shell use the same GPUs. If no lease is granted,\n"
      "eval fails with berth's exit code.\n"
      "\nExamples:\n"
      "  eval \"$(berth acquire)\" && python train.py; eval \"$(berth release)\"\n"
      "  read GPU < <(berth acquire --print ids)\n"
      "  docker run --gpus \"$(berth acquire --print docker)\" IMAGE; berth release");
  return [options, &command]() { return run(*options, command.find("--mem")->times_given > 0); };
}

}  // namespace berth
