// Puts the status together; see status.h.
#include "broker/status.h"

#include <array>
#include <unistd.h>
#include <utility>

namespace berth {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

Result<Status> observe(Probe& probe, bool simulated) {
  auto snapshot = probe.snapshot();
  if (!snapshot) return tl::make_unexpected(std::move(snapshot.error()));
  Status status;
  status.host = host_name();
  status.driver = std::move(snapshot->driver_version);
  status.simulated = simulated;
  for (Gpu& gpu : snapshot->gpus) {
    Judgement judgement = judge(gpu);
    status.gpus.push_back({std::move(gpu), std::move(judgement)});
  }
  return status;
}

}  // namespace berth
