// Writes the events of a run as JSON lines; see run_event_writer.h.
#include "run/run_event_writer.h"

#include <chrono>
#include <fcntl.h>
#include <unistd.h>

#include "base/json.h"
#include "lease/job_environment.h"
#include "run/grant_message.h"

namespace berth {
namespace {

// Uses one write(2), so that the reader sees whole lines. An error means that the reader is gone,
// and is ignored.
void write_event(int fd, const Json& event) {
  if (fd < 0) return;
  const std::string line = to_ascii_json(event) + "\n";
  (void)!::write(fd, line.data(), line.size());
}

}  // namespace

RunEventWriter::RunEventWriter(int fd) : fd_(fd) {
  if (fd_ >= 0) ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

WaitCallbacks RunEventWriter::wait_callbacks() const {
  if (fd_ < 0) return {};
  return {[fd = fd_](const WaitStatus& status) {
            Json event{{"event", "waiting"}, {"reason", status.reason}};
            if (status.expected_start) {
              const auto starts = status.expected_start->time_since_epoch();
              event["starts_s"] = std::chrono::floor<std::chrono::seconds>(starts).count();
            }
            write_event(fd, event);
          },
          [fd = fd_](const std::string& text) {
            write_event(fd, {{"event", "notice"}, {"text", text}});
          }};
}

void RunEventWriter::write_granted(Lease& lease,
                                   const std::optional<ProfileOptions>& options) const {
  if (fd_ < 0) return;
  write_event(fd_, {{"event", "granted"},
                    {"lease", lease.id()},
                    {"gpus", format_gpu_indices(lease.host_gpus(), lease.record().uuids)},
                    {"reserved", explain_reservation(lease, options)}});
}

void RunEventWriter::write_ended(const AttemptResult& end) const {
  write_event(fd_,
              {{"event", "ended"}, {"out_of_memory", end.exit_class == ExitClass::out_of_memory}});
}

}  // namespace berth
