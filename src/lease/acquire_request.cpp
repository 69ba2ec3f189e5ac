// Makes the record of a request, and finds the GPUs that it allows; see acquire_request.h.
#include "lease/acquire_request.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "lease/gpu_list.h"
#include "schedule/plan.h"

namespace berth {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The driver does not report the load of MIG instances. A request that limits the load would wait
// for them for ever.
Result<void> exclude_mig_if_load_limited(Request& request, const std::vector<Gpu>& gpus,
                                         ArgumentStyle style) {
  if (!request.max_utilization_pct && !request.max_memory_utilization_pct) return {};
  std::vector<std::string> gpus_with_load;
  bool has_mig_instance = false;
  for (const Gpu& gpu : gpus) {
    const bool chosen = gpu.uuid && (!request.uuids || contains(*request.uuids, *gpu.uuid));
    if (!chosen) continue;
    has_mig_instance = has_mig_instance || gpu.index.instance;
    if (!gpu.index.instance) gpus_with_load.push_back(*gpu.uuid);
  }
  if (!has_mig_instance) return {};
  if (gpus_with_load.empty()) {
    return fail(
        ErrorKind::impossible,
        fmt::format("the driver does not report the load of MIG instances; omit {} and {}",
                    argument_name("--max-util", style), argument_name("--max-mem-util", style)));
  }
  request.uuids = std::move(gpus_with_load);
  return {};
}

}  // namespace

Record make_record(const AcquireRequest& request, std::string id) {
  Record record;
  record.id = std::move(id);
  record.uid = ::geteuid();
  record.pid = request.holder_pid == 0 ? ::getpid() : request.holder_pid;
  record.pid_namespace = pid_namespace();
  record.holder = request.holder;
  record.command = request.command;
  record.label = request.label;
  record.job_id = request.job_id;
  record.job_host = request.job_host;
  record.sampled = true;
  if (request.profile_options) record.job = request.profile_options->type;
  record.since = std::chrono::system_clock::now();
  record.request = request.gpu_request;
  return record;
}

std::string argument_name(std::string_view flag, ArgumentStyle style) {
  if (style == ArgumentStyle::flags) return std::string(flag);
  std::string name(flag.substr(std::strlen("--")));
  if (name.starts_with("max-")) name.erase(0, std::strlen("max-"));
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "=";
}

Result<void> restrict_to_allowed_gpus(Request& gpu_request, const AcquireRequest& request,
                                      const std::vector<Gpu>& gpus) {
  gpu_request.uuids = TRY(select_visible_gpus(gpus, request.visible_devices));
  if (request.gpus.empty())
    return exclude_mig_if_load_limited(gpu_request, gpus, request.argument_style);
  std::vector<std::string> named = TRY(select_gpus(gpus, request.gpus));
  if (gpu_request.uuids) {
    std::erase_if(named,
                  [&](const std::string& uuid) { return !contains(*gpu_request.uuids, uuid); });
  }
  if (named.empty() && !request.parent_lease.empty()) {
    return fail(
        ErrorKind::impossible,
        fmt::format("this runs inside a lease without the GPUs that {} selects; select others, or, "
                    "{}",
                    argument_name("--gpu", request.argument_style), kOutsideLeaseRemedy));
  }
  if (named.empty()) {
    return fail(
        ErrorKind::impossible,
        fmt::format("{} and CUDA_VISIBLE_DEVICES have no GPU in common; change or unset one",
                    argument_name("--gpu", request.argument_style)));
  }
  gpu_request.uuids = std::move(named);
  if (request.wants_all_gpus) gpu_request.count = static_cast<unsigned>(gpu_request.uuids->size());
  return exclude_mig_if_load_limited(gpu_request, gpus, request.argument_style);
}

void intersect_allowed_gpus(Request& gpu_request, std::vector<std::string> uuids) {
  if (gpu_request.uuids) {
    std::erase_if(uuids,
                  [&](const std::string& uuid) { return !contains(*gpu_request.uuids, uuid); });
  }
  gpu_request.uuids = std::move(uuids);
}

Bytes subtract_memory_in_use(Bytes needed, Bytes in_use) {
  // The process has its context already, for which the scheduler keeps this margin free.
  const std::uint64_t present = in_use.count + kContextMargin.count;
  return needed.count > present + kMinReservation.count ? Bytes{needed.count - present}
                                                        : kMinReservation;
}

}  // namespace berth
